"""The files that users write: YAML and JSON under limits, and the places of all that is wrong in them.

Of ours only `testbed.errors` is imported.
"""
