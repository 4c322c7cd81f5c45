"""The configuration: one table of options, and what reads, checks and writes them (PROTOCOL.md §10)."""
