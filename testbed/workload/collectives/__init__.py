"""Collectives over RC queue pairs: a scenario chooses each message, queue pair and attribute."""
