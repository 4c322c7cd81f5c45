"""Tests of the rooms in which a node gets over a damaged store."""
