"""Tests of ``shine_node/protocol``."""
