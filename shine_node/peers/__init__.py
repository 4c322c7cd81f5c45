"""Links to other servers: one WSS a peer (PROTOCOL.md §7)."""
