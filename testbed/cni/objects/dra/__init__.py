"""Dynamic resource allocation (DRA): its kinds, CEL selectors of devices, and the choice of devices for claims."""
