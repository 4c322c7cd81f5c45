"""Tests of ``shine_node/delivery``."""
