"""SHiNE node: a server for signed direct messages."""

__version__ = "0.1.0"

RELEASED_MS = 1_772_323_200_000
"""The first day of March 2026: a clock that stands before it is wrong, for this version was made later."""
