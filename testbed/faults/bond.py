"""Bonds and port channels: a partner that is not heard, a member in the wrong bond, a wrong hash policy."""

import json
from contextlib import ExitStack
from typing import ClassVar

from testbed.errors import InputError
from testbed.faults.fault import End, Fault, Verified
from testbed.lab import Interface, Lab
from testbed.lab.bonding import HASHES, LACP
from testbed.topology import Bond, HashPolicy

SLOW_PROTOCOLS = "0x8809"
"""EtherType of LACPDUs (IEEE 802.3, annex 57A)."""
FIRST = "1"
"""The filter's preference, before any other one."""


class LacpLost(Fault):
    """LACPDUs are lost, in one direction, and everything else passes.

    The carrier stays up. The receiver misses its partner after three periods, 90 s at the slow rate and 3 s at the
    fast one, and takes the member out of its bond. The sender learns that 3 s later: until then what it sends there is
    lost.
    """

    name: ClassVar[str] = "lacp-lost"
    end: End
    """A member of a bond: its LACPDUs are lost."""

    def inject(self, lab: Lab, undo: ExitStack) -> None:
        receiver = self._receiver(lab)
        receiver.add_clsact()
        what = ("dev", receiver.name_now, "ingress", "pref", FIRST, "protocol", SLOW_PROTOCOLS)
        receiver.node.use("tc", "filter", "add", *what, "matchall", "action", "drop")
        undo.callback(receiver.node.use, "tc", "filter", "del", *what, check=False)

    def verify(self, lab: Lab) -> Verified | None:
        receiver = self._receiver(lab)
        return {"dropped_at": str(receiver)} if self._actions(receiver) else None

    def hits(self, lab: Lab) -> int:
        """Return the number of LACPDUs that were lost so far."""
        return sum(action["stats"]["drops"] for action in self._actions(self._receiver(lab)))

    def _receiver(self, lab: Lab) -> Interface:
        sender, _ = member(self, lab, self.end, LACP)
        if sender.peer is None:
            raise InputError(f"fault {self}: {self.end} has no peer")
        return sender.peer

    def _actions(self, receiver: Interface) -> list[dict[str, dict[str, int]]]:
        shown = receiver.node.use("tc", "-s", "-j", "filter", "show", "dev", receiver.name_now, "ingress", check=False)
        filters = [one for one in json.loads(shown.stdout or "[]") if str(one.get("pref")) == FIRST]
        return [action for one in filters for action in one.get("options", {}).get("actions", [])]


class MemberMoved(Fault):
    """A link is in another bond of its node, as with two cables that are swapped, or a port that is configured wrong.

    With LACP the far end does not take it for the same partner's port; a static bond sends into the wrong one.
    """

    name: ClassVar[str] = "bond-member-moved"
    end: End
    """A member of a bond."""
    to: str
    """Another bond of the same node."""

    def inject(self, lab: Lab, undo: ExitStack) -> None:
        interface, own = member(self, lab, self.end)
        other = lab[own.node.name].interfaces.get(self.to)
        if other is None or bond_of(other) is None:
            raise InputError(f"fault {self}: {own.node} has no bond {self.to!r}")
        kernel, before = interface.node.kernel, interface.node.now().links[interface.index].master
        undo.callback(kernel.join_bond, interface.index, before)
        kernel.join_bond(interface.index, other.index)

    def verify(self, lab: Lab) -> Verified | None:
        interface = lab.interface(self.end)
        now = interface.node.now().links
        master = now[interface.index].master if interface.index in now else 0
        name = now[master].name if master in now else ""
        return {"in": name} if name == self.to else None


class HashWrong(Fault):
    """A bond chooses the member of a flow by something else than its partner expects, or than its traffic needs.

    By `layer2` all flows between two MACs take one member: those behind a gateway, and all queue pairs of two hosts.
    """

    name: ClassVar[str] = "bond-hash"
    end: End
    """A bond, such as `leaf:po1`: what it sends."""
    hash: HashPolicy
    """What a flow's member follows from."""

    def inject(self, lab: Lab, undo: ExitStack) -> None:
        interface = lab.interface(self.end)
        bond = bond_of(interface)
        if bond is None or bond.mode not in (LACP, "balance-xor"):
            raise InputError(f"fault {self}: {self.end} is not a bond that chooses a member for each flow")
        kernel = interface.node.kernel
        before = kernel.bond_number(interface.index, "xmit_hash_policy")
        undo.callback(kernel.set_bond, interface.index, xmit_hash_policy=before)
        kernel.set_bond(interface.index, xmit_hash_policy=HASHES[self.hash])

    def verify(self, lab: Lab) -> Verified | None:
        interface = lab.interface(self.end)
        found = interface.node.kernel.bond_number(interface.index, "xmit_hash_policy")
        return {"hash": self.hash} if found == HASHES[self.hash] else None


def bond_of(interface: Interface) -> Bond | None:
    return interface.plan.bond if interface.plan else None


def member(fault: Fault, lab: Lab, end: str, mode: str = "") -> tuple[Interface, Interface]:
    """Return a member of a bond, and the bond. InputError for another interface, or a bond of another mode."""
    interface = lab.interface(end)
    master = interface.plan.master if interface.plan else ""
    own: Interface | None = lab[interface.node.name].interfaces[master] if master else None
    bond = bond_of(own) if own else None
    if own is None or bond is None or (mode and bond.mode != mode):
        raise InputError(f"fault {fault}: {end} is not a member of a bond{f' of mode {mode}' if mode else ''}")
    return interface, own
