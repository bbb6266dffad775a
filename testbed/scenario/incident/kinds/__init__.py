"""The kinds of trouble, by area."""

from collections.abc import Callable, Mapping, Sequence
from random import Random

from testbed.protocol import IncidentArea
from testbed.scenario.incident.kinds import arp, cni, evpn, fabric, lossless, training
from testbed.scenario.incident.trouble import Trouble

Kind = Callable[[Random], Trouble]
"""A kind of trouble: it draws where and how much."""
STEADY: Mapping[IncidentArea, Sequence[Kind]] = {
    "arp": arp.STEADY,
    "fabric": [*fabric.STEADY, *evpn.STEADY],
    "training": training.STEADY,
    "cni": cni.STEADY,
    "lossless": lossless.STEADY,
}
"""Those that stay until they are mended."""
RETURNING: Mapping[IncidentArea, Sequence[Kind]] = {
    "arp": arp.RETURNING,
    "fabric": [*fabric.RETURNING, *evpn.RETURNING],
    "training": training.RETURNING,
    "cni": cni.RETURNING,
    "lossless": lossless.RETURNING,
}
"""Those that heal, and come back."""
