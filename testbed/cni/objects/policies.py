"""NetworkPolicies and MultiNetworkPolicies: what pods may receive and send, by interface.

A NetworkPolicy is for eth0; a MultiNetworkPolicy (k8snetworkplumbingwg) for the interfaces on the networks of its
annotation `k8s.v1.cni.cncf.io/policy-for`. Source: Kubernetes API 1.31, networking/v1; multi-networkpolicy, README.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from ipaddress import ip_network
from typing import Annotated, Any, Literal

from pydantic import Field

from testbed.cni.objects.kinds import Free, Metadata, Part, Selector, Spec
from testbed.errors import InputError

POLICY, MULTI = "NetworkPolicy", "MultiNetworkPolicy"
POLICY_FOR = "k8s.v1.cni.cncf.io/policy-for"
FIRST = "eth0"
"""The interface that a NetworkPolicy is for."""
Direction = Literal["ingress", "egress"]


class PolicyPort(Free):
    port: int | str | None = None
    endPort: int | None = None  # noqa: N815 (Kubernetes' names, here and below)
    protocol: Literal["TCP", "UDP"] = "TCP"


class IpBlock(Part):
    cidr: str
    without: list[str] = Field(default_factory=list, alias="except")


class Peer(Free):
    podSelector: Selector | None = None  # noqa: N815
    namespaceSelector: Selector | None = None  # noqa: N815
    ipBlock: IpBlock | None = None  # noqa: N815


class Rule(Free):
    peers_in: Annotated[list[Peer] | None, Field(alias="from")] = None
    to: list[Peer] | None = None
    ports: list[PolicyPort] | None = None

    @property
    def peers(self) -> list[Peer]:
        return [*(self.peers_in or ()), *(self.to or ())]


class PolicySpec(Free, Spec):
    podSelector: Selector  # noqa: N815
    policyTypes: list[Literal["Ingress", "Egress"]] | None = None  # noqa: N815
    ingress: list[Rule] | None = None
    egress: list[Rule] | None = None

    def check(self, metadata: Metadata) -> None:
        for direction, rules in (("ingress", self.ingress), ("egress", self.egress)):
            for number, rule in enumerate(rules or ()):
                for peer in rule.peers:
                    where = f"spec.{direction}[{number}]"
                    if peer.ipBlock and (peer.podSelector or peer.namespaceSelector):
                        raise InputError(f"{where}: may not specify both ipBlock and another peer")
                    _check_blocks(where, peer)

    def isolates(self, direction: Direction) -> bool:
        """Return whether chosen pods may have nothing in a direction but what the rules allow."""
        if self.policyTypes is not None:
            return direction.title() in self.policyTypes
        return direction == "ingress" or bool(self.egress)


def _check_blocks(where: str, peer: Peer) -> None:
    for text in (peer.ipBlock.cidr, *peer.ipBlock.without) if peer.ipBlock else ():
        try:
            ip_network(text)
        except ValueError as error:
            raise InputError(f"{where}: ipBlock: {error}") from None


@dataclass(frozen=True)
class PolicyPod:
    """A pod that runs, as policies see it: its addresses by interface, and the networks of these."""

    namespace: str
    name: str
    labels: Mapping[str, str]
    addresses: Mapping[str, Sequence[str]]
    networks: Mapping[str, str]
    """Namespace and name of a definition, by interface."""
    ports: Mapping[str, int]


@dataclass(frozen=True)
class Allowed:
    """What is allowed: peers as networks, ports as protocol with the first and the last. None: all."""

    peers: tuple[str, ...] | None
    without: tuple[str, ...]
    ports: tuple[tuple[str, int, int], ...] | None


@dataclass
class Filter:
    """What an interface may receive and send, besides answers; None: all."""

    ingress: list[Allowed] | None = None
    egress: list[Allowed] | None = None
    names: list[str] = field(default_factory=list)
    """The policies."""


def filters(
    pod: PolicyPod,
    policies: Iterable[tuple[str, str, str, Mapping[str, str], Mapping[str, Any]]],
    pods: Sequence[PolicyPod],
    namespaces: Mapping[str, Mapping[str, str]],
) -> dict[str, Filter]:
    """Return the filters of a pod's interfaces that have one. `policies` are their kinds, namespaces, names,
    annotations and specs; `namespaces` have their labels."""
    found: dict[str, Filter] = {}
    for kind, namespace, name, annotations, given in policies:
        spec = PolicySpec.model_validate(given)
        if namespace != pod.namespace or not spec.podSelector.matches(pod.labels):
            continue
        for interface in _interfaces(kind, namespace, annotations, pod):
            one = found.setdefault(interface, Filter())
            one.names.append(f"{namespace}/{name}")
            known = partial(_allowed, namespace=namespace, pods=pods, namespaces=namespaces)
            if spec.isolates("ingress"):
                one.ingress = [*(one.ingress or ()), *(known(rule, of=pod) for rule in spec.ingress or ())]
            if spec.isolates("egress"):
                one.egress = [*(one.egress or ()), *(known(rule) for rule in spec.egress or ())]
    return found


def _interfaces(kind: str, namespace: str, annotations: Mapping[str, str], pod: PolicyPod) -> Iterator[str]:
    if kind == POLICY:
        yield from [FIRST] if FIRST in pod.addresses else []
        return
    wanted = [one.strip() for one in annotations.get(POLICY_FOR, "").split(",") if one.strip()]
    networks = {one if "/" in one else f"{namespace}/{one}" for one in wanted}
    yield from (interface for interface, network in pod.networks.items() if network in networks)


def _allowed(
    rule: Rule,
    *,
    namespace: str,
    pods: Sequence[PolicyPod],
    namespaces: Mapping[str, Mapping[str, str]],
    of: PolicyPod | None = None,
) -> Allowed:
    """Return what a rule allows; `of` is the pod whose ports have names, if they are its own."""
    ports = tuple(filter(None, (_port(one, of) for one in rule.ports))) if rule.ports else None
    if not rule.peers:
        return Allowed(None, (), ports)
    peers: list[str] = []
    without: list[str] = []
    for peer in rule.peers:
        if peer.ipBlock:
            peers.append(peer.ipBlock.cidr)
            without += peer.ipBlock.without
            continue
        for pod in pods:
            labels = {"kubernetes.io/metadata.name": pod.namespace, **namespaces.get(pod.namespace, {})}
            near = peer.namespaceSelector.matches(labels) if peer.namespaceSelector else pod.namespace == namespace
            if near and (peer.podSelector is None or peer.podSelector.matches(pod.labels)):
                peers += [address for addresses in pod.addresses.values() for address in addresses]
    return Allowed(tuple(dict.fromkeys(peers)), tuple(without), ports)


def _port(one: PolicyPort, of: PolicyPod | None) -> tuple[str, int, int] | None:
    """Return a protocol with the first and the last port; None for a name that is not known."""
    if one.port is None:
        return one.protocol, 0, 65535
    number = one.port if isinstance(one.port, int) else (of.ports if of else {}).get(one.port)
    return (one.protocol, number, one.endPort or number) if number else None
