"""Mininet's topologies in our format: a file for ``mn --custom`` is read, and its `Topo` becomes a text.

Mininet is neither needed nor used: a `Topo` is a list of things to build, which a stand-in for `mininet.topo` records
too. So a file is converted the same way everywhere, quickly and without root. The tests compare the stand-in with the
real package.
"""

from testbed.topology.mininet.conversion import convert
from testbed.topology.mininet.reading import read

__all__ = ["convert", "read"]
