"""Plugins that stand in for those of the field that no package has, under the names that users write.

Where no plugin of the name is installed, its configuration becomes that of others, which do the same to a pod:

- ``sriov`` (sriov-cni): the reference plugins host-device and, for an MTU or a MAC, tuning
- ``rdma`` (rdma-cni): ``rxe``, at the end of the list
- ``whereabouts``: ``ippool``, with the ranges as pools of the whole cluster
- ``spiderpool`` (its IPAM plugin): ``ippool``, which has its keys

Sources: sriov-cni, pkg/config/config.go; whereabouts, pkg/config and pkg/allocate.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_interface, ip_network
from typing import Any

from testbed.cni.spec import conflist
from testbed.cni.spec.conflist import Conflist
from testbed.errors import InputError

ETHERNET = "the lab's NICs are Ethernet"
INSTEAD: Mapping[str, str] = {
    "ib-sriov": ETHERNET,
    "ipoib": ETHERNET,
    "ovs": "the lab has no Open vSwitch: write `bridge`, or `macvlan` for the fabric",
    "ovs-cni": "the lab has no Open vSwitch: write `bridge`, or `macvlan` for the fabric",
    "calico": "the lab has no overlay of a cluster: write `ptp` or `bridge` with host-local for eth0",
    "calico-ipam": "write host-local, or `ippool` for addresses of the whole cluster",
    "flannel": "write `bridge` with host-local: flannel delegates to it",
    "cilium-cni": "the lab has no overlay of a cluster: write `ptp` or `bridge` with host-local for eth0",
    "nv-ipam": "write `ippool`, or whereabouts",
    "route-override": "write the routes into `ipam`, or the annotation ipam.spidernet.io/routes",
    "netavark": "write a conflist: netavark is podman's own network stack",
}
"""What to write in the place of plugins that are not there, or why nothing is."""
IGNORED = (
    "type",
    "datastore",
    "kubernetes",
    "log_file",
    "log_level",
    "configuration_path",
    "enable_overlapping_ranges",
    "sleep_for_race",
    "reconciler_cron_expression",
    *(f"leader_{key}" for key in ("lease_duration", "renew_deadline", "retry_period")),
    *(f"etcd_{key}" for key in ("host", "username", "password", "key_file", "cert_file", "ca_cert_file")),
)
"""Keys of whereabouts that say where it keeps what it knows."""
MOST = 1 << 16
"""The most addresses of a pool. The first ones of a larger range are used: the lowest that is free is given."""
MOST_VLAN = 4094
UNAVAILABLE = ("min_tx_rate", "max_tx_rate")


def replaced(network: Conflist, lacks: Callable[[str], bool]) -> Conflist:
    """Return the network with stand-ins for the plugins that `lacks` says are not there, or the network itself.
    InputError, whose `where` is the plugin, for a configuration that cannot be had."""
    plugins: list[dict[str, Any]] = []
    last: list[dict[str, Any]] = []
    for given in network.plugins:
        config = dict(given)
        kind = str(config["type"])
        ipam = config.get("ipam")
        try:
            if isinstance(ipam, Mapping) and (of := str(ipam.get("type"))) in IPAM and lacks(of):
                config["ipam"] = IPAM[of](ipam)
            if kind == "sriov" and lacks(kind):
                plugins += _host_device(config)
            elif kind == "rdma" and lacks(kind):
                last.append({"type": "rxe", "exclusive": True})
            else:
                plugins.append(config)
        except InputError as error:
            error.where = kind
            raise
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            raise InputError(f"its configuration is malformed: {error}", where=kind) from None
    if [*plugins, *last] == list(network.plugins):
        return network
    return conflist.make({**json.loads(network.data), "plugins": [*plugins, *last]})


def _host_device(config: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    if not (device := config.get("deviceID")):
        raise InputError("LoadConf(): VF pci addr is required")
    if rate := next((key for key in UNAVAILABLE if config.get(key)), ""):
        raise InputError(f"{rate} is not supported: a VF of the lab has no rate of its own")
    vlan = config.get("vlan", 0)
    if not isinstance(vlan, int) or not 0 <= vlan <= MOST_VLAN:
        raise InputError(f"LoadConf(): vlan id {vlan} invalid: value must be in the range 0-{MOST_VLAN}")
    if config.get("link_state") == "disable":
        raise InputError("link_state disable is not supported: the VFs of a NIC have its link")
    if config.get("vlanQoS") and not config.get("vlan"):
        raise InputError("LoadConf(): non-zero vlan id must be configured to set vlan QoS to a non-zero value")
    ipam = {"ipam": config["ipam"]} if config.get("ipam") else {}
    yield {"type": "host-device", "device": device, **ipam}
    tuned = {key: config[key] for key in ("mtu", "mac") if config.get(key)}
    if able := {key: True for key in ("mac",) if (config.get("capabilities") or {}).get(key)}:
        tuned["capabilities"] = able
    if tuned:
        yield {"type": "tuning", **tuned}


def _ippool(ipam: Mapping[str, Any]) -> dict[str, Any]:
    known = ("range", "range_start", "range_end", "exclude", "ipRanges", "gateway", "routes", "dns", "network_name")
    if other := next((key for key in ipam if key not in (*known, *IGNORED)), ""):
        raise InputError(f"ipam.{other} of whereabouts is not supported here")
    ranges = list(ipam.get("ipRanges") or [])
    if ipam.get("range"):
        ranges.insert(0, {key: ipam[key] for key in ("range", "range_start", "range_end", "exclude") if key in ipam})
    if not ranges:
        raise InputError("invalid CIDR (do you have the 'range' parameter set for Whereabouts?)")
    pools = [_pool(one, str(ipam.get("network_name") or "")) for one in ranges]
    families = [":" in pool["subnet"] for pool in pools]
    if len(set(families)) < len(families):
        raise InputError("ipam.ipRanges: two ranges of one family are not supported here: an interface has one address")
    gateway = ipam.get("gateway")
    routes = [{"dst": one["dst"], "gw": one.get("gw") or gateway} for one in ipam.get("routes") or ()]
    if any(not route["gw"] for route in routes):
        raise InputError("ipam.routes: a route without `gw` needs `gateway`")
    dns = {"dns": ipam["dns"]} if ipam.get("dns") else {}
    return {"type": "ippool", "of_pods": False, "pools": pools, **({"routes": routes} if routes else {}), **dns}


def _spiderpool(ipam: Mapping[str, Any]) -> dict[str, Any]:
    own = {key: value for key, value in ipam.items() if not key.startswith("log_") and key != "ipam_unix_socket_path"}
    return {**own, "type": "ippool"}


IPAM: Mapping[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {"whereabouts": _ippool, "spiderpool": _spiderpool}


def _pool(given: Mapping[str, Any], network: str) -> dict[str, Any]:
    """Return a range as a pool: all networks with this range share it. As in whereabouts the first and the last address
    of the subnet are not given."""
    text = str(given.get("range") or "")
    first_text, dash, rest = text.partition("-")
    try:
        subnet = ip_network((rest if dash else text).strip(), strict=False)
        size = 1 if subnet.num_addresses > 2 else 0
        low, high = int(subnet.network_address) + size, int(subnet.broadcast_address) - size
        start = first_text if dash else given.get("range_start")
        end = str(ip_interface(rest.strip()).ip) if dash else given.get("range_end")
        low = _bound(start, subnet, low, max)
        high = _bound(end, subnet, high, min)
        excluded = [ip_network(str(one), strict=False) for one in given.get("exclude") or ()]
    except ValueError as error:
        raise InputError(f"invalid CIDR {text}: {error}") from None
    of_family = type(subnet.network_address)
    without = [
        f"{of_family(max(low, int(one.network_address)))}-{of_family(min(high, int(one.broadcast_address)))}"
        for one in excluded
        if one.version == subnet.version and int(one.broadcast_address) >= low and int(one.network_address) <= high
    ]
    last = min(high, low + MOST - 1)
    name = "-".join(filter(None, ("whereabouts", network, str(subnet).replace("/", "-"))))
    ips = [f"{of_family(low)}-{of_family(last)}"] if low <= last else []
    return {"name": name, "subnet": str(subnet), "ips": ips, **({"excludeIPs": without} if without else {})}


def _bound(given: Any, subnet: IPv4Network | IPv6Network, usual: int, choose: Callable[[int, int], int]) -> int:
    """Return the end of a range; one that is not in the subnet does not count (GetIPRange)."""
    address = ip_address(str(given)) if given else None
    return choose(usual, int(address)) if address and address in subnet else usual
