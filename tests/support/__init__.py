"""What several tests use; no test stands here."""
