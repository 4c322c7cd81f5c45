"""The fixed-size pool that checks signatures, in batches."""
