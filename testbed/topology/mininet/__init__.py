"""
Mininet's topologies in our format: a file as ``mn --custom`` takes it is read, and its `Topo` becomes a text.

Mininet itself need not be there, and is not used if it is: a `Topo` is a list of what is to be built, which a stand-in
for `mininet.topo` records as well. So a file is converted the same way everywhere, in a moment and without root. The
tests compare the stand-in with the real package.
"""

from testbed.topology.mininet.conversion import convert
from testbed.topology.mininet.reading import read

__all__ = ["convert", "read"]
