"""
Faults that are a rule of nftables in a switch's bridge: it chooses packets, counts them, and drops or changes them.

Packets from a host are handled where they enter the switch, packets from a switch where they leave it.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from contextlib import ExitStack
from typing import Any, Literal

from testbed.errors import InputError
from testbed.faults.fault import End, Fault, Verified
from testbed.kernel import nftables
from testbed.lab import HostInterface, Interface, Lab
from testbed.lab.namespace import Namespace

TABLE = {"family": "bridge", "name": "testbed-faults"}
Hook = Literal["prerouting", "postrouting"]
HOOKS: dict[Hook, str] = {"prerouting": "iifname", "postrouting": "oifname"}
"""The hooks where the bridge shows packets that come in, and those that go out; and the name of the port there."""
Expression = dict[str, Any]
"""A statement in nftables' JSON, libnftables-json(5)."""


class Rule(Fault):
    """Subclasses define the packets and the action."""

    end: End

    @abstractmethod
    def chosen(self) -> list[Expression]:
        """The matches that choose a packet."""

    @abstractmethod
    def act(self) -> Expression:
        """The statement for a chosen packet."""

    def inject(self, lab: Lab, undo: ExitStack) -> None:
        port, hooks = self.place(lab)
        node = port.node
        counter: Expression = {"counter": {"packets": 0, "bytes": 0}}
        _nft(node, {"add": {"table": TABLE}})
        for hook in hooks:
            chain = {"family": TABLE["family"], "table": TABLE["name"], "name": self._chain(hook)}
            expressions = [equal({"meta": {"key": HOOKS[hook]}}, port.name), *self.chosen(), counter, self.act()]
            _nft(
                node,
                {"add": {"chain": {**chain, "type": "filter", "hook": hook, "prio": 0, "policy": "accept"}}},
                {"add": {"rule": {**chain, "chain": chain["name"], "expr": expressions}}},
            )
            undo.callback(_nft, node, {"flush": {"chain": chain}}, {"delete": {"chain": chain}})

    def verify(self, lab: Lab) -> Verified | None:
        port, hooks = self.place(lab)
        chains, hits = {self._chain(hook) for hook in hooks}, {}
        for item in _nft(port.node, {"list": {"ruleset": {"family": TABLE["family"]}}}):
            rule = item.get("rule", {})
            if rule.get("table") == TABLE["name"] and rule["chain"] in chains:
                counter = next(part["counter"] for part in rule["expr"] if "counter" in part)
                hits[rule["chain"]] = counter["packets"]
        return {"hits": sum(hits.values())} if hits.keys() == chains else None

    def hits(self, lab: Lab) -> int:
        """The number of packets that it has chosen so far."""
        verified = self.verify(lab)
        return verified["hits"] if verified else 0

    def place(self, lab: Lab) -> tuple[Interface, tuple[Hook, ...]]:
        """The port of a switch or bridge at which packets can be met, and where they are on their way through."""
        sender = lab.interface(self.end)
        if sender.plan and sender.plan.routed:
            raise InputError(f"fault {self}: {self.end} is a routed port, which is in no bridge")
        if not isinstance(sender, HostInterface):
            return sender, ("postrouting",)
        if sender.peer is None or isinstance(sender.peer, HostInterface):
            raise InputError(f"fault {self}: there is no switch at either end of this link")
        return sender.peer, ("prerouting",)

    def _chain(self, hook: Hook) -> str:
        """Of this fault and no other."""
        return "-".join(map(str, (self.name, *self.model_dump().values(), hook))).replace(":", ".").lower()


def field(protocol: str, name: str) -> Expression:
    return {"payload": {"protocol": protocol, "field": name}}


def raw(offset: int, length: int) -> Expression:
    """Bits behind the begin of the transport header."""
    return {"payload": {"base": "th", "offset": offset, "len": length}}


def equal(left: Expression, right: object) -> Expression:
    return {"match": {"op": "==", "left": left, "right": right}}


def _nft(node: Namespace, *commands: Expression) -> list[Expression]:
    """Has nftables in the node's namespace carry out commands in its JSON; what they list."""
    with node.entered():
        return nftables.run(json.dumps({"nftables": list(commands)}))
