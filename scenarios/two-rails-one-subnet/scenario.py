import json
from pathlib import Path
from typing import Any

from testbed import Field, Parameters, Run, Scenario, Variant

RAIL = Path(__file__).with_name("rail.conflist")
SECOND_POOL = {"name": "rail2", "subnet": "10.0.20.0/24", "ips": ["10.0.20.100-10.0.20.199"]}
SBR = {"type": "sbr"}
TUNING = {
    "type": "tuning",
    "sysctl": {"net.ipv4.conf.IFNAME.arp_ignore": "1", "net.ipv4.conf.IFNAME.arp_announce": "2"},
}


class Settings(Parameters):
    two_subnets: bool = Field(False, description="whether rail 2 has a subnet of its own, in the same VLAN")
    sbr: bool = Field(False, description="whether the plugin sbr gives each rail routes and a rule of its own")
    tuning: bool = Field(False, description="whether the plugin tuning has a rail answer ARP for its own address only")


class TwoRailsOneSubnet(Scenario[Settings]):
    """Pods have two NICs in one VLAN, and peers get the MAC of one for the address of the other.

    Each pod has a macvlan on either NIC of its node. A peer sends a broadcast request for an address, and both NICs of
    the pod receive it. In Linux an address belongs to the host, here to the pod: both answer, each with its own MAC.
    The peer keeps the first answer. Packets for one rail then arrive at the other, and its RDMA device has no such
    queue pair. `arp-flux-two-rails` is the same for a host and its switch.

    Two apparent fixes do not work. sbr gives each rail a rule and a table by its source address: they apply to packets
    that the pod sends, and not to ARP answers. A subnet for each rail in the same VLAN does not help either, because
    both NICs still receive the request.

    On real gear: `ip neigh` in a pod has one MAC for two addresses of its peer; `arping` prints two for one address.
    NCCL ends with "transport retry counter exceeded" in some pairs of ranks, other pairs with each restart
    (NVIDIA/nccl#1269, ROCm/rccl#1303).

    The fixes: the plugin tuning in the chain, with arp_ignore 1 and arp_announce 2 for the pod's interface, and sbr, so
    that other traffic leaves by the rail of its source address; or a VLAN and subnet for each rail.
    """

    tags = ("arp", "cni", "kubernetes")
    variants = (
        Variant("as-is", "fault", "macvlan and rxe on both NICs, in one subnet"),
        Variant("sbr-only", "fault", "each rail has rules and routes of its own", {"sbr": True}),
        Variant("subnets-only", "fault", "each rail has a subnet of its own, the VLAN is one", {"two_subnets": True}),
        Variant("fixed", "healthy", "a rail answers for its own address only", {"sbr": True, "tuning": True}),
    )

    def run(self, run: Run, p: Settings) -> None:
        networks = [rail(number, p) for number in (1, 2)]
        with run.step("a pod starts on each node"):
            nodes = {"near": "node1", "far": "node2"}
            near, far = (run.lab.pods.create(run.lab.host(node), name, networks) for name, node in nodes.items())
        rails = {"rail 1": (near["eth0"], far["eth0"]), "rail 2": (near["net1"], far["net1"])}
        of_mac = {there.mac: name for name, (_, there) in rails.items()}

        with run.step("they write from rail to rail"):
            captured = [run.lab.switch("leaf")[port].capture("udp port 4791") for port in ("e3", "e4")]
            statuses = {name: run.write(here, there) for name, (here, there) in rails.items()}
            known = {
                name: of_mac.get(here.neighbour(there.address().ip) or "") for name, (here, there) in rails.items()
            }

        frames = {name: capture.roce() for name, capture in zip(rails, captured, strict=True)}
        ip_of = {name: there.address().ip.packed for name, (_, there) in rails.items()}
        astray = {
            name: sum(frame.data[30:34] == ip_of[name] for other in rails if other != name for frame in frames[other])
            for name in rails
        }
        for name in rails:
            run.note(
                **{name.replace(" ", "_"): f"{statuses[name]}, MAC of {known[name]}, {astray[name]} frames astray"}
            )
        wrong = {name for name in rails if known[name] != name}
        run.expect("rails that fail", {name for name in rails if statuses[name] != "SUCCESS"}, wrong)
        run.expect("rails whose frames go to the other one", {name for name in rails if astray[name]}, wrong)
        worst = next((status for status in statuses.values() if status != "SUCCESS"), "SUCCESS")
        if not run.observe_status(worst, "both rails work", who="pod near"):
            run.expect("rails with the other one's MAC", len(wrong), 1)


def rail(number: int, p: Settings) -> dict[str, Any]:
    """The conflist of a rail."""
    found: dict[str, Any] = json.loads(RAIL.read_text())
    macvlan = found["plugins"][0]
    found["name"], macvlan["master"] = f"rail{number}", f"eth{number}"
    if p.two_subnets and number == 2:
        macvlan["ipam"]["pools"] = [SECOND_POOL]
    found["plugins"] += [SBR] * p.sbr + [TUNING] * p.tuning
    return found
