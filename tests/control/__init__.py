"""Tests of ``shine_node/control``."""
