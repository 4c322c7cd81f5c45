"""Tests of ``shine_node/directory``."""
