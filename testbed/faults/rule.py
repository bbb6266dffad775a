"""
Faults that are an nftables rule in a switch: it selects packets, counts them, and drops or changes them. The rule is in
the switch's bridge, for a routed port where the kernel routes.

Packets from a host are handled where they enter the switch, packets from a switch where they leave it.
"""

from abc import abstractmethod
from contextlib import ExitStack
from typing import Any, Literal

from testbed.errors import InputError
from testbed.faults.fault import End, Fault, Verified
from testbed.kernel import nftables
from testbed.lab import HostInterface, Interface, Lab
from testbed.lab.namespace import Namespace
from testbed.lab.node import Node

TABLE = "testbed-faults"
Hook = Literal["prerouting", "postrouting"]
HOOKS: dict[Hook, str] = {"prerouting": "iifname", "postrouting": "oifname"}
"""Hooks where the bridge passes incoming packets, and outgoing ones; and the name of the port there."""


class Rule(Fault):
    """Subclasses define the packets and the action, in the language of nft(8)."""

    end: End

    @abstractmethod
    def chosen(self) -> str:
        """Return the matches that select a packet."""

    @abstractmethod
    def act(self) -> str:
        """Return the statement for a selected packet."""

    def inject(self, lab: Lab, undo: ExitStack) -> None:
        port, hooks = self.place(lab)
        family = _family(port)
        for hook in hooks:
            chain = f"{family} {TABLE} {self._chain(hook)}"
            rule = f'{HOOKS[hook]} "{port.name}" {self.chosen()} counter {self.act()}'
            made = f"add table {family} {TABLE}\nadd chain {chain} {{ type filter hook {hook} priority 0; }}\n"
            _nft(port.node, f"{made}add rule {chain} {rule}")
            undo.callback(_nft, port.node, f"{made}flush chain {chain}\ndelete chain {chain}")  # it may be gone

    def verify(self, lab: Lab) -> Verified | None:
        """Find the rule; only packets prove it, see `hits`."""
        port, hooks = self.place(lab)
        return {"rule_at": str(port)} if len(self._counters(lab)) == len(hooks) else None

    def hits(self, lab: Lab) -> int:
        """Return the number of packets that it has selected so far."""
        return sum(self._counters(lab))

    def _counters(self, lab: Lab) -> list[int]:
        port, hooks = self.place(lab)
        chains = [self._chain(hook) for hook in hooks]
        rules = [item["rule"] for item in _nft(port.node, f"list ruleset {_family(port)}") if "rule" in item]
        ours = [part for rule in rules if rule["table"] == TABLE and rule["chain"] in chains for part in rule["expr"]]
        return [part["counter"]["packets"] for part in ours if "counter" in part]

    def place(self, lab: Lab) -> tuple[Interface, tuple[Hook, ...]]:
        """Return the port of a switch or bridge that packets pass, and the hooks on their way."""
        sender = lab.interface(self.end)
        if sender.plan and sender.plan.routed:
            raise InputError(f"fault {self}: {self.end} is a routed port, which is not in a bridge")
        if sender.plan and sender.plan.master:
            hint = f"Name its bond, {sender.node}:{sender.plan.master}."
            raise InputError(
                f"fault {self}: {self.end} is a member of a bond, which the bridge does not see", hint=hint
            )
        if not isinstance(sender, HostInterface):
            return sender, ("postrouting",)
        if len(partners(sender)) > 1:
            hint = f"Name their ends: {', '.join(sorted(partners(sender)))}."
            raise InputError(f"fault {self}: {self.end} is a bond to several switches", hint=hint)
        if sender.peer is None or isinstance(sender.peer, HostInterface):
            raise InputError(f"fault {self}: neither end of this link is on a switch")
        return sender.peer, ("prerouting",)

    def require_port(self, interface: Interface) -> None:
        """Raise InputError for a member of a bond."""
        if interface.plan and interface.plan.master:
            hint = f"Name its bond, {interface.node}:{interface.plan.master}."
            raise InputError(
                f"fault {self}: {self.end} is a member of a bond, which the bridge does not see", hint=hint
            )

    def _chain(self, hook: Hook) -> str:
        return "-".join(map(str, (self.name, *self.model_dump().values(), hook))).replace(":", ".").lower()


def _family(port: Interface) -> str:
    return "inet" if port.plan and port.plan.routed else "bridge"


def partners(sender: Interface) -> set[str]:
    """Return what the members of a bond end at; of another interface nothing."""
    bond = sender.plan.bond if sender.plan else None
    ends = [sender.node[name] for name in bond.members] if bond and isinstance(sender.node, Node) else []
    far = [(str(end.peer.node), end.peer.plan) for end in ends if end.peer]
    return {f"{node}:{plan.master or plan.name}" for node, plan in far if plan}


def _nft(node: Namespace, commands: str) -> list[dict[str, Any]]:
    with node.entered():
        return nftables.run(commands)
