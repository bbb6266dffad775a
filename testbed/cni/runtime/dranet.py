"""DraNet, the driver dra.net: it offers the NICs of nodes for claims, and moves those of a pod into it, and back.

Source: DraNet (kubernetes-sigs/dranet), pkg/inventory, pkg/driver. What it offers is observed on the node, but for two
things: the NIC of a host with `nic: hardware` is a `device` and not virtual, and a lab's NICs have no PCI address. The
driver gives a NIC back without its addresses and routes (kubernetes-sigs/dranet#42), and fails if a claim gives other
addresses to a NIC that has one on its node, whose connected route it copies: so does this.
"""

from __future__ import annotations

import base64
import json
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_network
from typing import Any

from testbed.cni.objects.dra import claims as of_pods
from testbed.cni.objects.dra import network_config
from testbed.cni.objects.dra.network_config import DRIVER, LINK, NetworkConfig
from testbed.cni.objects.lab_objects import Cluster
from testbed.cni.objects.manifests import Object, written
from testbed.errors import InputError, TestbedError
from testbed.kernel.link_readings import LinkState, kind_of
from testbed.kernel.netns import LOOPBACK
from testbed.kernel.rdma import Rdma
from testbed.lab import Host, Pod
from testbed.protocol import events

HIDDEN = ("cilium_net", "cilium_host", "docker0")
LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
LOCAL_TABLE = "local"
EXISTS = "File exists"
"""What iproute2 says of a route that is there, which is no error of the driver."""
BIG_TCP = {
    "gsoMaxSize": "gso_max_size",
    "groMaxSize": "gro_max_size",
    "gsoIPv4MaxSize": "gso_ipv4_max_size",
    "groIPv4MaxSize": "gro_ipv4_max_size",
}
"""Keys of the configuration, and what iproute2 calls them."""


def devices(host: Host) -> list[dict[str, Any]]:
    """Return the NICs of a node as devices of a ResourceSlice, in the order of their names."""
    with host.entered(), Rdma() as here:
        rdma = here.links()
    uplinks = _uplinks(host)
    found = [
        {"name": device_name(link.name), "attributes": _attributes(host, index, link, rdma=link.name in rdma)}
        for index, link in host.now().links.items()
        if index != LOOPBACK and link.name not in (*HIDDEN, *uplinks)
    ]
    return sorted(found, key=lambda device: str(device["name"]))


def device_name(interface: str) -> str:
    """Return the name of a device: that of its interface, if it can be one."""
    if LABEL.fullmatch(interface):
        return interface
    return f"net-{base64.b32encode(interface.encode()).decode().rstrip('=').lower()}"


def _uplinks(host: Host) -> set[str]:
    """Return the interfaces by which default routes go, which DraNet does not offer."""
    found = [route for family in ("-4", "-6") for route in _listed(host, family, "route", "show", "default")]
    return {route["dev"] for route in found if route.get("gateway") and route.get("dev")}


def _listed(host: Host, *command: str) -> list[dict[str, Any]]:
    family, *rest = command
    found: list[dict[str, Any]] = json.loads(host.use("ip", family, "-j", *rest, check=False).stdout or "[]")
    return found


def _attributes(host: Host, index: int, link: LinkState, *, rdma: bool) -> dict[str, dict[str, Any]]:
    interface = host.interfaces.get(link.name)
    hardware = host.nic == "hardware" and interface is not None and interface.plan is not None
    kind = "device" if hardware else kind_of(host.kernel.read(index)[2])[0] or "device"
    addresses = host.now().addresses.get(index, ())
    ips = {family: [str(one) for one in addresses if one.version == family] for family in (4, 6)}
    texts = {
        "ifName": link.name,
        "mac": link.mac,
        "encapsulation": "ether",
        "state": "up" if link.carrier else "down",
        "type": kind,
        **{f"ipv{family}": ",".join(given) for family, given in ips.items() if given},
    }
    flags = {"sriov": False, "virtual": not hardware, "rdma": rdma}
    found: dict[str, dict[str, Any]] = {key: {"string": value} for key, value in texts.items()}
    found |= {key: {"bool": value} for key, value in flags.items()}
    return {f"{DRIVER}/{key}": value for key, value in {**found, "mtu": {"int": link.mtu}}.items()}


FEATURES = {
    "rx": "rx-checksumming",
    "tx": "tx-checksumming",
    "sg": "scatter-gather",
    "tso": "tcp-segmentation-offload",
    "ufo": "udp-fragmentation-offload",
    "gso": "generic-segmentation-offload",
    "gro": "generic-receive-offload",
    "lro": "large-receive-offload",
    "rxvlan": "rx-vlan-offload",
    "txvlan": "tx-vlan-offload",
    "ntuple": "ntuple-filters",
    "rxhash": "receive-hashing",
}
"""ethtool's short names of features, and those that it prints."""


@dataclass
class Nic:
    """A NIC of a claim for a pod: on its node, and as it is to be in the pod."""

    claim: Object
    result: Mapping[str, str]
    interface: str
    config: NetworkConfig
    commands: list[list[str]] = field(default_factory=list)
    """What `ip` gets in the pod: routes, rules and neighbours of the node that belong to the NIC, and the claim's."""

    @property
    def name(self) -> str:
        return self.config.interface.name or self.interface


class Dranet:
    """The NICs that pods have by their claims."""

    def __init__(self, cluster: Callable[[], Cluster]) -> None:
        self._cluster = cluster
        self._there: dict[Pod, list[Nic]] = {}
        self._prepared: dict[str, list[Nic]] = {}
        """What was prepared for pods, by their UIDs: once, for all their sandboxes until their node reboots."""

    def prepare(self, pod: Pod, known: Object) -> list[Nic]:
        """Return the NICs of a pod that is to start, as kubelet has the driver prepare them. TestbedError."""
        if pod.uid not in self._prepared:
            self._prepared[pod.uid] = self._prepare(pod, known)
        return self._prepared[pod.uid]

    def _prepare(self, pod: Pod, known: Object) -> list[Nic]:
        asked = of_pods.asked(known)
        look = self._cluster().look
        given = [look(of_pods.CLAIM, of_pods.name_of(known, one), known.namespace) for one in asked]
        nics = []
        for claim, result, parameters in of_pods.network_configs([one for one in given if one]):
            if pod.metadata.host_network:
                who = f"{known.namespace}/{known.name}"
                raise TestbedError(f"RunPodSandbox pod {who} using host network can not claim host devices")
            try:
                nics.append(self._nic(pod.host, claim, result, network_config.read(parameters)))
            except InputError as error:
                what = f"NodePrepareResources failed for ResourceClaim {claim.name}"
                raise TestbedError(f"failed to prepare dynamic resources: {what}: {error.message}") from None
        return nics

    @staticmethod
    def _nic(host: Host, claim: Object, result: Mapping[str, str], config: NetworkConfig) -> Nic:
        users = len(of_pods.status_of(claim).get("reservedFor") or ())
        if users > 1:
            raise InputError(f"driver only supports one pod per claim, got {users}")
        links = host.now().links.items()
        here = {device_name(link.name): (index, link.name) for index, link in links}
        if result["device"] not in here:
            raise InputError(f"failed to get network interface name for device {result['device']}")
        if config.interface.dhcp:
            raise InputError(f"fail to get configuration via DHCP for {result['device']}: a lab has no DHCP server")
        index, name = here[result["device"]]
        if config.ethtool and config.ethtool.features:
            lines = host.use("ethtool", "-k", name).stdout.splitlines()
            known = {line.partition(":")[0].strip() for line in lines if "[fixed]" not in line}
            if unknown := [one for one in config.ethtool.features if FEATURES.get(one, one) not in known]:
                raise InputError("; ".join(f"feature {one} not supported by interface" for one in unknown))
        addresses = config.interface.addresses
        if not addresses:
            addresses = [str(one) for one in host.now().addresses.get(index, ()) if not one.ip.is_link_local]
        own = config.interface.model_copy(update={"addresses": addresses})
        nic = Nic(claim, result, name, config.model_copy(update={"interface": own}))
        nic.commands = [*_of_config(nic), *_of_node(host, nic)]
        return nic

    def attach(self, pod: Pod, nics: Sequence[Nic]) -> None:
        """Move the NICs into a pod whose networks are there, and say so in the status of its claims. TestbedError."""
        if not nics:
            return
        there = self._there.setdefault(pod, [])
        for nic in nics:
            try:
                index = pod.host.lend(nic.interface, pod, nic.name)
                there.append(nic)
                rdma = self._configure(pod, nic, index)
            except OSError as error:
                what = f"error moving network device {nic.interface} to namespace {pod.name}"
                raise TestbedError(f"{what}: {error.strerror or error}") from None
            self._cluster().put(_reported(self._cluster(), nic, pod, rdma=rdma))
            data = events.POD(host=pod.host.name)
            pod.context.emit(data, pod.name, f"{nic.interface} of {pod.host.name} is {nic.name} of the pod, by a claim")

    @staticmethod
    def _configure(pod: Pod, nic: Nic, index: int) -> bool:
        """Give a NIC in a pod what the claim says. Return whether it has an RDMA device."""
        config = nic.config.interface
        pod.kernel.set_link(index, mtu=config.mtu or 0, mac=_mac(config.hardwareAddr or ""))
        for key, word in BIG_TCP.items():
            if value := getattr(config, key):
                pod.use("ip", "link", "set", "dev", nic.name, word, str(value))
        for address in config.addresses:
            pod.use("ip", "address", "add", address, "dev", nic.name)
        pod.kernel.set_link(index, up=True)
        for key, value in (nic.config.ethtool.features if nic.config.ethtool else {}).items():
            pod.use("ethtool", "-K", nic.name, key, "on" if value else "off")
        for key, value in (nic.config.ethtool.privateFlags if nic.config.ethtool else {}).items():
            pod.use("ethtool", "--set-priv-flags", nic.name, key, "on" if value else "off")
        for command in nic.commands:
            done = pod.use("ip", *command, check=False)
            if done.returncode and EXISTS not in done.stderr:
                what = f"error configuring device {nic.result['device']} namespace {pod.name}"
                raise TestbedError(f"{what}: ip {' '.join(command)}: {done.stderr.strip()}")
        made = pod.adopt(nic.name)
        made.take_addresses()
        if device := pod.host.lent_rdma(nic.interface):
            made.add_rdma(device)
        return bool(device)

    def detach(self, pod: Pod, *, again: bool) -> None:
        """Give the NICs of a pod that ends back to its node: up, and without addresses. A second call does nothing.
        With `again` the pod gets another sandbox, and the same NICs as they were prepared."""
        if not again:
            self._prepared.pop(pod.uid, None)
        for nic in reversed(self._there.pop(pod, [])):
            where, data = f"{nic.interface} of {pod.host.name}", events.POD(host=pod.host.name)
            try:
                if nic.name in pod.interfaces:
                    pod.delete_rdma(pod.interfaces[nic.name])
                pod.host.take_back(nic.interface, up=True)
            except (TestbedError, OSError) as error:  # the kernel gives it back when the pod's namespace ends
                pod.context.emit(data, pod.name, f"{where} does not come back: {error}")
            else:
                pod.context.emit(data, pod.name, f"{where} is back, without addresses")

    def forget(self, pod: Pod) -> None:
        """Forget a pod whose sandbox is lost: the kernel gives its NICs back."""
        self._there.pop(pod, None)
        self._prepared.pop(pod.uid, None)


def _of_config(nic: Nic) -> Iterator[list[str]]:
    """Yield the commands of `ip` for what a claim says, routes to neighbours first."""
    for route in sorted(nic.config.routes, key=lambda route: -route.scope):
        destination = str(ip_network(route.destination, strict=False))
        words = ["route", "add", destination, "dev", nic.name]
        words += ["via", route.gateway] if route.gateway else ["scope", "link"] if route.scope == LINK else []
        words += ["src", route.source] if route.source else []
        yield _family(route.destination) + words + (["table", str(route.table)] if route.table else [])
    for rule in nic.config.rules:
        words = ["rule", "add", "from", rule.source or "all", *(["to", rule.destination] if rule.destination else [])]
        words += ["priority", str(rule.priority)] if rule.priority else []
        yield _family(rule.source or rule.destination) + words + (["table", str(rule.table)] if rule.table else [])
    for one in nic.config.neighbors:
        words = ["neighbour", "add", one.destination, "lladdr", one.hardwareAddr, "nud", "permanent"]
        yield _family(one.destination) + words + ["dev", nic.name]


def _of_node(host: Host, nic: Nic) -> Iterator[list[str]]:
    """Yield the commands for the routes, rules and neighbours that the NIC has on its node."""
    tables = set()
    for family in ("-4", "-6"):
        for route in _listed(host, family, "route", "show", "table", "all", "dev", nic.interface):
            table = str(route.get("table", ""))
            link_local = route["dst"].startswith(("fe80:", "ff00:"))
            by_kernel = family == "-6" and route.get("protocol") == "kernel"
            if table == LOCAL_TABLE or route["dst"] == "default" or link_local or by_kernel:
                continue
            words = ["route", "add", route["dst"], "dev", nic.name]
            words += ["via", route["gateway"]] if "gateway" in route else ["scope", route.get("scope", "link")]
            words += ["src", route["prefsrc"]] if "prefsrc" in route else []
            tables.add(table)
            yield [family, *words, *(["table", table] if table else [])]
        for rule in _listed(host, family, "rule"):
            if rule.get("table") in tables - {"", "main", "default"}:
                prefix = f"/{rule['srclen']}" if "srclen" in rule else ""
                words = ["rule", "add", "from", f"{rule.get('src', 'all')}{prefix}", "table", rule["table"]]
                yield [family, *words, "priority", str(rule["priority"])]
        for one in _listed(host, family, "neighbour", "show", "dev", nic.interface, "nud", "permanent"):
            words = ["neighbour", "add", one["dst"], "lladdr", one.get("lladdr", ""), "nud", "permanent"]
            if "lladdr" in one:
                yield [family, *words, "dev", nic.name]


def _mac(text: str) -> str:
    """Return a MAC with colons, of one of the forms that Go reads."""
    digits = re.sub(r"[^0-9A-Fa-f]", "", text)
    return ":".join(digits[place : place + 2] for place in range(0, len(digits), 2))


def _family(address: str) -> list[str]:
    return ["-6" if ":" in address else "-4"]


def _reported(cluster: Cluster, nic: Nic, pod: Pod, *, rdma: bool) -> Object:
    """Return the claim with the status of its NIC in the pod, as the driver writes it."""
    claim = cluster.find(of_pods.CLAIM, nic.claim.name, nic.claim.namespace)
    now = written(time.time())
    ready = {
        "Ready": "NetworkDeviceReady",
        "NetworkReady": "NetworkReady",
        **({"RDMALinkReady": "RDMALinkReady"} if rdma else {}),
    }
    conditions = [
        {"type": kind, "status": "True", "reason": reason, "lastTransitionTime": now} for kind, reason in ready.items()
    ]
    end = pod.interfaces[nic.name]
    ips = [str(one) for one in end.all_addresses]
    network = {"interfaceName": nic.name, "hardwareAddress": end.mac, "ips": ips}
    device = {key: nic.result[key] for key in ("driver", "pool", "device")}
    status = of_pods.status_of(claim)
    others = [one for one in status.get("devices") or () if {key: one[key] for key in device} != device]
    one = {**device, "conditions": conditions, "networkData": network}
    return of_pods.with_status(claim, {**status, "devices": [*others, one]})
