"""Delivery of direct messages: intake, attempts, worker (PROTOCOL.md §5)."""
