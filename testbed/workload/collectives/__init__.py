"""Collectives over RC queue pairs: each message, queue pair and attribute as a scenario wants it."""
