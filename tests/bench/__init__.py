"""Benchmarks: real nodes under load, beside what the machine itself can do; ``python -m tests.bench`` runs them all."""
