"""The CNI plugin `coordinator`: the work of Spiderpool's coordinator and IPAM on a pod's interface, except making it.

It comes after the plugin that made the interface, and before `rxe`. ADD runs steps. Their order is configured, because
a wrong order is a common error; docs/cni-plugins.md describes them.
"""

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any, NamedTuple

from testbed.cni.ipam import reclaim
from testbed.cni.plugins.contract import Call, Refusal, own, validated
from testbed.cni.plugins.coordinator import detection, tuning, veth
from testbed.cni.plugins.coordinator.detection import Wire
from testbed.cni.plugins.coordinator.nic import POD_VETH, Configuration, Nic, StepName, addresses_in
from testbed.cni.spec import OWN
from testbed.kernel import netns
from testbed.kernel.link_readings import IFLA_ADDRESS
from testbed.kernel.policy_routing import PolicyRouting
from testbed.switch import frames, packets
from testbed.switch.frames import BROADCAST, REQUEST, Arp
from testbed.topology import IPAddress


class Step(NamedTuple):
    do: Callable[[Nic, ExitStack], None]
    """The action of ADD; it registers its undo on the stack."""
    check: Callable[[Nic], Iterator[str]] = lambda _: iter(())
    """A generator of the differences from the state that `do` left."""
    alone: bool = False
    """True if it chooses a routing table: networks of a pod may be added at the same time."""


def frame(mac: str, ip: IPAddress) -> bytes:
    """Return the frame that announces `ip` at `mac`. In ARP the target MAC is all ones, as in Spiderpool."""
    if isinstance(ip, IPv4Address):
        return frames.pack(BROADCAST, mac, Arp(REQUEST, mac, ip, BROADCAST, ip))
    return packets.gratuitous(mac, ip)


def announce(nic: Nic, _: ExitStack) -> None:
    settings = nic.settings.announce
    with contextlib.ExitStack() as wires:
        families = {family: wires.enter_context(contextlib.closing(Wire(nic, family))) for family in (4, 6)}
        for number in range(settings.count):
            if number:
                time.sleep(settings.interval)
            for ip in _addresses(nic):
                families[ip.version].send(frame(nic.mac, ip))


def _addresses(nic: Nic) -> Iterator[IPAddress]:
    if nic.settings.announce.addresses == "interface":
        yield from (address.ip for address in nic.addresses)
    else:
        found = (address.ip for _, address in nic.kernel.addresses())
        yield from (ip for ip in found if not ip.is_loopback and not ip.is_link_local)


STEPS: dict[StepName, Step] = {
    "mac": Step(tuning.set_mac, tuning.check_mac),
    "conflict": Step(detection.conflict),
    "gateway": Step(detection.gateway),
    "announce": Step(announce),
    "queue": Step(tuning.set_queue, tuning.check_queue),
    "rp_filter": Step(tuning.set_rp_filter, tuning.check_rp_filter),
    "veth": Step(veth.connect, veth.check, alone=True),
    "routes": Step(tuning.tune_routes, tuning.check_routes, alone=True),
    "policy_routes": Step(tuning.put_policy_routes, tuning.check_policy_routes, alone=True),
}
_turn = threading.Lock()


def call(asked: Call, shared: Path | None = None) -> Mapping[str, Any] | None:
    """See `contract.Plugin`. The calling thread is in the node's network namespace. `shared` has the objects."""
    if asked.command == "DEL":
        delete(asked)
        return None
    settings = validated(Configuration, own(asked.config))
    if asked.command in ("GC", "STATUS"):  # its objects end with their pod
        return None
    with Nic.opened(asked, settings, shared) as nic:
        if settings.mode == "disable":
            return nic.result if asked.command == "ADD" else None
        if asked.command == "CHECK":
            check(nic)
            return None
        try:
            return add(nic)
        except Refusal as refusal:
            if shared and refusal.code == detection.CONFLICT:
                reclaim.release_conflicting(shared, asked.container)
            raise


def add(nic: Nic) -> Mapping[str, Any]:
    with ExitStack() as undo:
        for name in nic.settings.steps:
            step = STEPS[name]
            with _turn if step.alone else contextlib.nullcontext():
                step.do(nic, undo)
        undo.pop_all()
    return _result(nic)


def _result(nic: Nic) -> Mapping[str, Any]:
    interfaces = [
        {**entry, "mac": nic.mac} if (entry["name"], entry.get("sandbox")) == (nic.name, nic.asked.namespace) else entry
        for entry in nic.result.get("interfaces", [])
    ]
    if nic.first and "veth" in nic.settings.steps:
        name = veth.host_end(nic.asked.container)
        pod, host = nic.kernel.read(POD_VETH)[2], nic.host.read(name)[2]
        interfaces += [
            {"name": name, "mac": host[IFLA_ADDRESS].hex(":")},
            {"name": POD_VETH, "mac": pod[IFLA_ADDRESS].hex(":"), "sandbox": nic.asked.namespace},
        ]
    return {**nic.result, **({"interfaces": interfaces} if interfaces else {})}


def check(nic: Nic) -> None:
    wrong = [text for name in nic.settings.steps for text in STEPS[name].check(nic)]
    if wrong:
        raise Refusal(OWN, f"{nic.name}: {'; '.join(wrong)}")


def delete(asked: Call) -> None:
    """Delete what outlives both the interface and the pod. Data that it does not need may be missing."""
    try:
        settings = validated(Configuration, own(asked.config))
    except Refusal:
        return  # ADD refused it too
    if settings.mode == "disable":
        return
    addresses = addresses_in(asked.config.get("prevResult") or {}, asked.interface)
    with PolicyRouting() as host:
        veth.disconnect(host, asked, settings.hostRuleTable, addresses)
    if asked.namespace and os.path.exists(asked.namespace):
        with netns.entered(asked.namespace), PolicyRouting() as kernel:
            tuning.delete_routes(kernel, addresses)
