"""The plugin `bond`: a bond of interfaces that the pod has already, as bond-cni makes it (k8snetworkplumbingwg).

Source: bond-cni, bond/bond.go. Its keys, its checks and its messages; `linksInContainer: false`, which moves interfaces
of the node into the pod, is refused: write them as networks of the pod.
"""

import contextlib
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from testbed.cni import spec
from testbed.cni.objects.kinds import Part
from testbed.cni.plugins.contract import Call, Refusal, own, validated
from testbed.cni.spec import CONFIG, OWN
from testbed.kernel import ipv6, netns
from testbed.kernel.links import BOND_OPTIONS
from testbed.kernel.rtnetlink import Rtnetlink
from testbed.topology import address_of, interface_of, network_of

MODES = ("balance-rr", "active-backup", "balance-xor", "broadcast", "802.3ad", "balance-tlb", "balance-alb")
"""The kernel's modes by their numbers."""
HASHES = ("layer2", "layer3+4", "layer2+3", "encap2+3", "encap3+4", "vlan+srcmac")


class Configuration(Part):
    mode: str
    links: list[dict[str, Any]]
    miimon: str
    linksInContainer: bool = False  # noqa: N815 (bond-cni's names, here and below)
    failOverMac: Literal[0, 1, 2] = 0  # noqa: N815
    mtu: Annotated[int, Field(ge=0)] = 0
    allSlavesActive: Literal[0, 1] | None = None  # noqa: N815
    tlbDynamicLb: Literal[0, 1] | None = None  # noqa: N815
    xmitHashPolicy: Literal[HASHES] | None = None  # type: ignore[valid-type]  # noqa: N815

    def names(self) -> list[str]:
        names = [str(link["name"]) for link in self.links if isinstance(link.get("name"), str)]
        if len(names) < len(self.links):
            raise Refusal(CONFIG, "failed to find link name")
        if len(names) < 2:
            raise Refusal(CONFIG, f"bonding requires at least two links, we have {len(names)}")
        return names


def configuration(config: Mapping[str, Any]) -> Configuration:
    """Return the checked configuration. Refusal."""
    found = validated(Configuration, own(config))
    if found.mode not in MODES:
        raise Refusal(CONFIG, f"bonding mode ({found.mode}) is not supported")
    if not found.miimon.isdigit():
        raise Refusal(CONFIG, f"failed to convert bondMiimon value ({found.miimon}) to an int")
    if not found.linksInContainer:
        raise Refusal(CONFIG, "linksInContainer: false is not supported here: write the links as networks of the pod")
    if (config.get("ipam") or {}).get("type") == "bond":
        raise Refusal(CONFIG, "bond is not a suitable IPAM type")
    return found


def call(asked: Call) -> Mapping[str, Any] | None:
    """See `contract.Plugin`."""
    if asked.command in ("GC", "STATUS"):
        return None
    settings = configuration(asked.config)
    ipam = (asked.config.get("ipam") or {}).get("type")
    if asked.command == "DEL":
        if ipam:
            asked.delegate(ipam)
        _delete(asked, settings)
        return None
    if asked.command == "CHECK":
        if ipam:
            asked.delegate(ipam)
        with netns.entered(asked.namespace), Rtnetlink() as pod:
            _index(pod, asked.interface)
        return None
    with contextlib.ExitStack() as undo:
        undo.callback(_delete, asked, settings)
        made = _made(asked, settings)
        if ipam:
            undo.callback(asked.delegate, ipam, "DEL")
            given = spec.convert(asked.delegate(ipam) or {}, "1.0.0")
            if not given.get("ips"):
                raise Refusal(OWN, "IPAM plugin returned missing IP config")
            made |= {key: given[key] for key in ("ips", "routes", "dns") if key in given}
            made["ips"] = [{**one, "interface": 0} for one in made["ips"]]
            _configure(asked, made)
        undo.pop_all()
    return spec.convert(made, asked.version)


def _index(kernel: Rtnetlink, name: str) -> int:
    try:
        return kernel.index(name)
    except OSError:
        raise Refusal(OWN, f"failed to confirm that link ({name}) exists") from None


def _made(asked: Call, settings: Configuration) -> dict[str, Any]:
    options = {"miimon": int(settings.miimon), "fail_over_mac": settings.failOverMac}
    if settings.allSlavesActive is not None:
        options["all_slaves_active"] = settings.allSlavesActive
    if settings.tlbDynamicLb is not None:
        if settings.mode not in ("balance-tlb", "balance-alb"):
            wrong = f"tlbDynamicLb is only supported in balance-tlb or balance-alb mode, actual: {settings.mode}"
            raise Refusal(CONFIG, wrong)
        options["tlb_dynamic_lb"] = settings.tlbDynamicLb
    if settings.xmitHashPolicy:
        options["xmit_hash_policy"] = HASHES.index(settings.xmitHashPolicy)
    with netns.entered(asked.namespace), Rtnetlink() as pod:
        members = [_index(pod, name) for name in settings.names()]
        known = {key: value for key, value in options.items() if key in BOND_OPTIONS}
        bond = pod.add_bond(asked.interface, MODES.index(settings.mode), known)
        if settings.mtu:
            pod.set_link(bond, mtu=settings.mtu)
        for member in members:
            pod.join_bond(member, bond)
            pod.set_link(member, up=True)
        pod.set_link(bond, up=True)
        mac = pod.mac(bond)
    return {"interfaces": [{"name": asked.interface, "mac": mac, "sandbox": asked.namespace}]}


def _configure(asked: Call, result: Mapping[str, Any]) -> None:
    """Give the bond its addresses and routes, as the reference plugins' ConfigureIface."""
    with netns.entered(asked.namespace), Rtnetlink() as pod:
        index = pod.index(asked.interface)
        gateways = {}
        for one in result["ips"]:
            address = interface_of(one["address"])
            if address.version == 6:
                ipv6.enable(pod, asked.interface, pod.mac(index))
            pod.set_address(index, address)
            if one.get("gateway"):
                gateways[address.version] = one["gateway"]
        for route in result.get("routes") or ():
            to = network_of(route["dst"])
            gateway = route.get("gw") or gateways.get(to.version)
            if gateway:
                pod.add_route(to, [address_of(gateway)])


def _delete(asked: Call, settings: Configuration) -> None:
    """Free the members, and delete the bond, if they are there."""
    if not asked.namespace:
        return
    with contextlib.suppress(FileNotFoundError), netns.entered(asked.namespace), Rtnetlink() as pod:
        with contextlib.suppress(OSError):
            pod.delete_link(pod.index(asked.interface))
        for name in settings.names():
            with contextlib.suppress(OSError):
                pod.set_link(pod.index(name), up=True)
