"""The only rooms that know LMDB."""
