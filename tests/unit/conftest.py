"""Property tests try the same few examples in every run, on every machine."""

from hypothesis import HealthCheck, settings

SLOW_HOST = (HealthCheck.too_slow,)  # wall time says nothing of the code
settings.register_profile(
    "unit", derandomize=True, database=None, deadline=None, max_examples=60, suppress_health_check=SLOW_HOST
)
settings.load_profile("unit")
