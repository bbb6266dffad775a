"""The state that all parts of a control plane share: its profile as it is now, its SVIs, the effects of this call."""

from __future__ import annotations

from collections.abc import Iterable

from testbed.switch.effects import Effect, Event
from testbed.switch.packets import PROTOCOLS
from testbed.switch.profile import Profile
from testbed.switch.svis import Svis
from testbed.switch.table import Key
from testbed.topology.plan import IPAddress, Svi

Field = str | int | None
"""A field of an event; None: it does not apply."""


class Core:
    def __init__(self, switch: str, svis: Iterable[Svi], profile: Profile) -> None:
        self.profile = profile
        self.svis = Svis(svis)
        self._switch = switch
        self._effects: list[Effect] = []

    def do(self, effect: Effect) -> None:
        self._effects.append(effect)

    def done(self) -> list[Effect]:
        """Return the effects since the last call."""
        effects, self._effects = self._effects, []
        return effects

    def emit(self, kind: str, vlan: int | None = None, ip: IPAddress | None = None, **fields: Field) -> None:
        """Report an event."""
        given = {"switch": self._switch, "vlan": vlan, "ip": None if ip is None else str(ip), **fields}
        self.do(Event(kind, {name: value for name, value in given.items() if value is not None}))

    def emit_of(self, key: Key, what: str, **fields: Field) -> None:
        """Report an event about an address under the name of its protocol: arp.learned, nd.learned."""
        vlan, ip = key
        self.emit(f"{PROTOCOLS[ip.version]}.{what}", vlan, ip, **fields)
