"""Tests of ``shine_node/crypto``."""
