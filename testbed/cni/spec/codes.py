"""Error codes: CNI specification 1.1.0, section 5; `NETNS` is libcni's own."""

VERSION, ENVIRONMENT, IO, DECODE, CONFIG, NETNS, LATER, UNAVAILABLE, OWN = 1, 4, 5, 6, 7, 8, 11, 50, 100
"""Codes from `OWN` on are a plugin's own."""
