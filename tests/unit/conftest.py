"""Property tests try the same few examples in every run, on every machine."""

from hypothesis import settings

settings.register_profile("unit", derandomize=True, database=None, deadline=None, max_examples=60)
settings.load_profile("unit")
