"""What the bytes and the rules are. Pure: no I/O, no clock, no asyncio, no LMDB."""
