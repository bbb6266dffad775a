"""Readers of what a run left: its events, the switch tables at a moment, its packets. Runs outside; nothing here starts
a machine, and nothing trusts a file, because the user's code may have written any of them."""
