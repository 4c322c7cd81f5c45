"""The endpoint that clients and servers speak to (PROTOCOL.md §2)."""
