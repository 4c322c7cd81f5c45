"""Tests of ``shine_node/peers``."""
