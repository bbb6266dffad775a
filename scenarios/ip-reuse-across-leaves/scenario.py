"""See the docstring of IpReuseAcrossLeaves, or `testbed describe ip-reuse-across-leaves`."""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import ip_network
from typing import Literal

from pydantic import Field

from testbed import Parameters, Run, Scenario, Variant
from testbed.lab import Host
from testbed.switch.profile import Profile, ProfileName, profile
from testbed.topology import IPAddress
from testbed.workload.attributes import Attributes

REFRESH_S = 130.0
"""SONiC's arp_update asks every 120 s."""
CONVERGED_S = 5.0
FLOWS = 8
"""Connections from each rack, each with a flow label, so a UDP source port, of its own."""
TO_RACK = {"e1": "rack 1", "e2": "rack 2"}
"""By the port of the spine."""


class Settings(Parameters):
    fabric: Literal["routed", "stretched"] = Field(
        "routed",
        description="routed: both racks have the subnet, and BGP says by host routes where each address is; "
        "stretched: both racks are in one VLAN",
    )
    profile: ProfileName = Field("cisco-nxos", description="ARP and FDB profile of both leaves")
    announce: Literal["no", "garp", "request"] = Field(
        "no",
        description="how the new owner makes itself known: not; by gratuitous ARP; by asking for its gateway",
    )
    clear: bool = Field(False, description="whether the address is cleared on the old rack's leaf")
    wait: bool = Field(False, description="whether clients come only when that leaf has refreshed its entries")


class IpReuseAcrossLeaves(Scenario):
    """
    An address is used again in another rack, and the old rack's leaf still sends to the dead owner's port.

    A pod in rack 1 is deleted, one in rack 2 gets its address and is silent. leaf1 has no reason to ask who has the
    address, for 25 minutes or four hours. How far that reaches depends on the fabric.

    Routed: pods of all racks are in one subnet with one gateway address, and each leaf makes a host route of each
    neighbour, which BGP announces (Cumulus Linux: redistribute neighbor; others: attached-host or ARP host routes).
    leaf1 goes on announcing the dead pod, and a host route is more specific than a subnet: the whole fabric sends to
    rack 1, even from the rack in which the new pod runs. A gratuitous ARP of the new pod helps nobody, since on most
    switches it changes entries and makes none. When the pod asks for its gateway leaf2 learns it and announces it too.
    Now there are two ways of equal cost, and each flow takes one: of eight connections of one host some work, some die.

    Stretched: both racks are in one VLAN, and each leaf has an ARP table of its own. leaf2 never knew the address: it
    asks, and has the new MAC. Who is routed by leaf2 reaches the new pod, who is routed by leaf1 does not: half of a
    job fails.

    On real gear: `show ip arp` for the address differs between the leaves; routed, `show ip route` for it has a /32 by
    the wrong leaf, or by both. On the old leaf `show mac address-table` has the old MAC on a port of the rack, where
    the counters of sent packets grow and nothing comes back.

    The cures: in a stretched VLAN it is enough that the new owner announces itself, since the broadcast reaches every
    leaf; or that the orchestrator clears the address on the leaf of a pod that it deletes; or that leaves ask for their
    neighbours (SONiC's arp_update, every two minutes) instead of trusting the age of an entry. A routed fabric needs
    both: the old leaf has to forget the address, the new one has to hear a request from it (`arping -s ADDRESS
    GATEWAY`).
    """

    title = "An IP address moves to another rack, the old rack's leaf keeps the old MAC"
    tags = ("arp", "kubernetes", "routing", "switch")
    parameters = Settings
    variants = (
        Variant("as-is", "fault", "the new owner is silent; leaf1 announces the old one, and nobody gets through"),
        Variant("garp", "fault", "the new owner's gratuitous ARP makes no entry on leaf2", {"announce": "garp"}),
        Variant(
            "request", "fault", "the new owner asks for its gateway; both leaves announce it", {"announce": "request"}
        ),
        Variant(
            "cleared",
            "healthy",
            "the address is cleared on leaf1 when the old pod goes, and the new one asks for its gateway",
            {"announce": "request", "clear": True},
        ),
        Variant(
            "stretched", "fault", "one VLAN over both racks, a silent owner: only rack 1 fails", {"fabric": "stretched"}
        ),
        Variant(
            "stretched-garp",
            "healthy",
            "the new owner announces itself; leaf1 hears it",
            {"fabric": "stretched", "announce": "garp"},
        ),
        Variant(
            "stretched-cleared",
            "healthy",
            "the address is cleared on leaf1 when the old pod goes",
            {"fabric": "stretched", "clear": True},
        ),
        Variant(
            "stretched-arp-update",
            "healthy",
            "the leaves run SONiC; arp_update finds the new owner",
            {"fabric": "stretched", "profile": "sonic", "wait": True},
        ),
    )

    def topology_for(self, parameters: Settings) -> str:
        return "stretched.clab.yml" if parameters.fabric == "stretched" else self.topology

    def profiles(self, parameters: Settings) -> Mapping[str, Profile]:
        return {leaf: profile(parameters.profile) for leaf in ("leaf1", "leaf2")}

    def run(self, run: Run, p: Settings) -> None:
        routed = p.fabric == "routed"
        leaf1, leaf2 = run.lab.switch("leaf1"), run.lab.switch("leaf2")
        old, new = run.lab.host("old"), run.lab.host("new")
        clients = {f"rack {n}": run.lab.host(f"client{n}") for n in ((1, 2, 3) if routed else (1, 2))}
        ip = old.addresses["eth1"].ip
        owners = {old.macs["eth1"]: "old owner's MAC", new.macs["eth1"]: "new owner's MAC"}

        with run.step("a client in rack 1 works with the old owner, in rack 1 too"):
            run.expect("the first WRITE", run.write(clients["rack 1"], old), "SUCCESS")
            run.expect("leaf1 has its MAC", leaf1.arp_table().get(str(ip)), old.macs["eth1"])
            run.expect("leaf2 does not know the address", str(ip) in leaf2.arp_table(), False)
            gateway = str(new.gateway("eth1"))
            run.expect("the host in rack 2 knows its gateway", new.ping(gateway, within=1), True)
            if routed:
                run.lab.routing.converged(within=CONVERGED_S)
                run.expect("the fabric sends to", sends_to(run, ip), "rack 1")

        with run.step("a pod in rack 2 gets the address"):
            new.add_address("eth1", old.remove_address("eth1"))  # beside its own
            self.make_known(run, p, new)

        with run.step(f"clients in all racks connect to the address, {FLOWS} times each"):
            captured = leaf1.capture("e2", "udp port 4791")
            flows = [Attributes(flow_label=1000 * number) for number in range(1, FLOWS + 1)]
            ends = {rack: [run.write(client, new, flow) for flow in flows] for rack, client in clients.items()}
            captured.stop()

        known = [owners.get(leaf.arp_table().get(str(ip), ""), "no entry") for leaf in (leaf1, leaf2)]
        astray = sum(frame.roce and frame.dst == old.macs["eth1"] for frame in captured.frames())
        working = {rack: statuses.count("SUCCESS") for rack, statuses in ends.items()}
        run.note(**{rack.replace(" ", ""): f"{count} of {FLOWS} work" for rack, count in working.items()})
        run.note(leaf1_arp=known[0], leaf2_arp=known[1])
        if routed:
            run.note(fabric_sends_to=sends_to(run, ip))
        if set(working.values()) == {FLOWS}:
            run.observe("healthy", "all racks reach the new owner")
            run.expect("leaf1 has no other MAC for it", known[0], "no entry" if routed else "new owner's MAC")
            run.expect("leaf2 has the new owner's MAC", known[1], "new owner's MAC")
            run.expect("nothing went to the old owner's port", astray, 0)
            return
        failed = sorted({status for statuses in ends.values() for status in statuses} - {"SUCCESS"})
        lost = sum(FLOWS - count for count in working.values())
        run.observe("fault", f"{lost} of {FLOWS * len(clients)} connections die of {', '.join(failed)}")
        run.note(frames_to_dead_port=astray)
        run.expect("they die of unanswered retries", failed, ["RETRY_EXC_ERR"])
        run.expect("leaf1 still has the old owner's MAC", known[0], "old owner's MAC")
        run.expect("their frames went to the old owner's port", astray, lambda frames: frames >= 4)
        self.expect_cut_off(run, p, ip, working, known[1])

    def expect_cut_off(self, run: Run, p: Settings, ip: IPAddress, working: dict[str, int], known2: str) -> None:
        """Who is cut off, and why: `working` are the connections that work by rack, `known2` is what leaf2 knows."""
        dead = [rack for rack, count in working.items() if not count]
        routed = p.fabric == "routed"
        if routed and p.announce != "request":
            run.expect("the fabric still sends to", sends_to(run, ip), "rack 1")
            run.expect("leaf2 does not know the address", known2, "no entry")
            run.expect("who is cut off", dead, list(working))
            return
        run.expect("leaf2 has the new owner's MAC", known2, "new owner's MAC")
        run.expect("who is cut off", dead, ["rack 1"])
        run.expect("everybody in rack 2 gets through", working["rack 2"], FLOWS)
        if routed:
            run.expect("the fabric sends to", sends_to(run, ip), "rack 1 and rack 2")
            run.expect("of rack 3 a part gets through", working["rack 3"], lambda count: 0 < count < FLOWS)

    def make_known(self, run: Run, p: Settings, new: Host) -> None:
        """What is done so that the switches come to know the address's new owner."""
        ip = new.addresses["eth1"].ip
        if p.clear:
            run.lab.agent.clear_arp("leaf1", ip=ip)
        if p.announce == "garp":
            new.announce("eth1")
            run.sleep(1, "the leaves hear the announcement")
        elif p.announce == "request":
            new.run("arping", "-c", "1", "-I", "eth1", "-s", str(ip), str(new.gateway("eth1")))
        if p.wait:
            run.sleep(REFRESH_S, "the leaves ask for their neighbours")
        if p.fabric == "routed":
            run.lab.routing.converged(within=CONVERGED_S)


def sends_to(run: Run, ip: IPAddress) -> str:
    """The racks to which the spine sends packets for `ip` by a host route."""
    told = [e["data"] for e in run.log.events if e["node"] == "spine" and e["kind"].startswith("route.")]
    ports = [data["ports"] for data in told if data["to"] == str(ip_network(ip))]
    return " and ".join(TO_RACK[port] for port in ports[-1]) if ports else ""
