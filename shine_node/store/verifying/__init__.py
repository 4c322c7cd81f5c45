"""Whether a store is what it must be: all signatures, all indexes against their rows, and all rows against them."""
