"""Tests of ``shine_node/cli``."""
