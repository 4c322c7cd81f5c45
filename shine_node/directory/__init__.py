"""Who is known here, and how this server learns of others (PROTOCOL.md §3)."""
