"""The state that all parts of a control plane share: its current profile, its SVIs, the effects of this call."""

from collections.abc import Iterable, Mapping

from testbed.protocol.events import Data, Neighbour
from testbed.switch.effects import Effect, Event
from testbed.switch.profile import Profile
from testbed.switch.svis import Svis
from testbed.switch.table import Key
from testbed.topology.plan import Family, Svi


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

    def emit(self, data: Data, family: Family = 4, about: Mapping[str, int | str] = {}) -> None:
        """Report an event; omit fields that are None."""
        given = {"switch": self._switch, **about, **vars(data)}
        name = data.kind_name if family == 4 else data.kind.nd
        self.do(Event(name, {key: value for key, value in given.items() if value is not None}))

    def emit_of(self, key: Key, data: Neighbour) -> None:
        """Report an event about an address."""
        vlan, ip = key
        self.emit(data, ip.version, {"vlan": vlan, "ip": str(ip)})
