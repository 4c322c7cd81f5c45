"""The tests: they mirror ``shine_node``, and each module is covered by its own test file."""

from hypothesis import HealthCheck, settings

# No deadline: the machine may be slow and busy, and a slow example is no wrong one.
settings.register_profile("house", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("house")
