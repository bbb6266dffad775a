"""Docker inside a machine, for nodes that are containers."""
