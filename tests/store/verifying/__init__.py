"""Tests of the rooms in which a store is verified and repaired."""
