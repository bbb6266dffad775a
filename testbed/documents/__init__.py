"""Files that users write: YAML and JSON under limits, and the places of all errors in them. Only `testbed.errors` of
testbed is imported."""
