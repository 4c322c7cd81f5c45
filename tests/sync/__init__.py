"""Tests of ``shine_node/sync``."""
