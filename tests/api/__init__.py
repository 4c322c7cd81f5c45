"""Tests of ``shine_node/api``."""
