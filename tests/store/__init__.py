"""Tests of ``shine_node/store``."""
