"""Catch-up between the two servers of a user (PROTOCOL.md §6)."""
