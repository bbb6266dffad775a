"""
Faults that are a rule of nftables in a switch's bridge: it chooses packets, counts them, and does something to them.

What a host sends is met when it comes in at the switch, what a switch sends when it goes out.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from contextlib import ExitStack
from typing import Any, Literal

from testbed.errors import InputError
from testbed.faults.fault import End, Fault, Seen
from testbed.kernel import nftables
from testbed.lab import Host, Lab, Node

TABLE = {"family": "bridge", "name": "testbed-faults"}
Hook = Literal["prerouting", "postrouting"]
HOOKS: dict[Hook, str] = {"prerouting": "iifname", "postrouting": "oifname"}
"""Where the bridge shows packets that come in, and those that go out; and what the port is called there."""
Expression = dict[str, Any]
"""A statement in nftables' JSON, libnftables-json(5)."""


class Rule(Fault):
    """A fault of this kind says which packets it chooses and what becomes of them."""

    end: End

    @abstractmethod
    def chosen(self) -> list[Expression]:
        """What a packet has to match."""

    @abstractmethod
    def act(self) -> Expression:
        """What is done to it."""

    def inject(self, lab: Lab, undo: ExitStack) -> None:
        node, port, hooks = self.place(lab)
        counter: Expression = {"counter": {"packets": 0, "bytes": 0}}
        _nft(node, {"add": {"table": TABLE}})
        for hook in hooks:
            chain = {"family": TABLE["family"], "table": TABLE["name"], "name": self._chain(hook)}
            expressions = [equal({"meta": {"key": HOOKS[hook]}}, port), *self.chosen(), counter, self.act()]
            _nft(
                node,
                {"add": {"chain": {**chain, "type": "filter", "hook": hook, "prio": 0, "policy": "accept"}}},
                {"add": {"rule": {**chain, "chain": chain["name"], "expr": expressions}}},
            )
            undo.callback(_nft, node, {"flush": {"chain": chain}}, {"delete": {"chain": chain}})

    def seen(self, lab: Lab) -> Seen | None:
        node, _, hooks = self.place(lab)
        chains, hits = {self._chain(hook) for hook in hooks}, {}
        for item in _nft(node, {"list": {"ruleset": {"family": TABLE["family"]}}}):
            rule = item.get("rule", {})
            if rule.get("table") == TABLE["name"] and rule["chain"] in chains:
                counter = next(part["counter"] for part in rule["expr"] if "counter" in part)
                hits[rule["chain"]] = counter["packets"]
        return {"hits": sum(hits.values())} if hits.keys() == chains else None

    def hits(self, lab: Lab) -> int:
        """How many packets it has met so far."""
        seen = self.seen(lab)
        return seen["hits"] if seen else 0

    def place(self, lab: Lab) -> tuple[Node, str, tuple[Hook, ...]]:
        """The switch or bridge at which packets can be met, the port, and where they are on its way through."""
        sender = lab.interface(self.end)
        if sender.routed:
            raise InputError(f"fault {self}: {self.end} is a routed port, which is in no bridge")
        node, port = lab.nodes[sender.node], sender.name
        if not isinstance(node, Host):
            return node, port, ("postrouting",)
        peer = lab.nodes[sender.peer[0]]
        if isinstance(peer, Host):
            raise InputError(f"fault {self}: there is no switch at either end of this link")
        return peer, sender.peer[1], ("prerouting",)

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


def _nft(node: Node, *commands: Expression) -> list[Expression]:
    """Has nftables in the node's namespace carry out commands in its JSON; what they list."""
    with node.entered():
        said = nftables.run(json.dumps({"nftables": list(commands)}))
    found: list[Expression] = json.loads(said)["nftables"] if said else []
    return found
