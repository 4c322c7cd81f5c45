"""The control socket: what the operator of a running node asks it, on its own machine (PROTOCOL.md §7, §10)."""
