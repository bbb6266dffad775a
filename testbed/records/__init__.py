"""Readers of a run's files: events, the switch tables at a moment, packets. They run outside, start no machine, and
trust no file, because the user's code may have written any of them."""
