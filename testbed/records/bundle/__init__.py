"""What people collect of a real cluster: a directory with the files that docs/diagnosis.md names.

All of it comes from outside, and any part of it may be missing. A file that is none, or is damaged, is a remark; what
nothing says is not known.
"""

from testbed.records.bundle.bundle import Bundle

__all__ = ["Bundle"]
