from ipaddress import ip_network
from typing import Literal

from testbed import Field, HostInterface, IPAddress, Parameters, ProfileName, Run, Scenario, Variant, owner_of
from testbed.workload import Attributes

FLOWS = 8
"""Connections from each rack, each with a flow label, so a UDP source port, of its own."""
TO_RACK = {"e1": "rack 1", "e2": "rack 2"}
"""By the port of the spine."""
STRETCHED = {"fabric": "stretched"}
ARP_UPDATE = {**STRETCHED, "profile": "sonic", "wait": True}


class Settings(Parameters):
    fabric: Literal["routed", "stretched"] = Field(
        "routed", description="routed: BGP says by host routes where an address is; stretched: one VLAN over both racks"
    )
    profile: ProfileName = Field("cisco-nxos", description="ARP and FDB profile of both leaves")
    announce: Literal["no", "garp", "request"] = Field(
        "no", description="how the new owner makes itself known: not; by gratuitous ARP; by asking for its gateway"
    )
    clear: bool = Field(False, description="whether the address is cleared on the old rack's leaf")
    wait: bool = Field(False, description="whether clients come only when that leaf has refreshed its entries")


class IpReuseAcrossLeaves(Scenario[Settings]):
    """An address is reused in another rack, and the old rack's leaf keeps the old MAC.

    A pod in rack 1 is deleted, and a pod in rack 2 gets its address and is silent. For 25 minutes or four hours leaf1
    has no reason to send an ARP request, and it sends to the dead pod's port. The effect depends on the fabric.

    Routed: pods of all racks are in one subnet with one gateway address. Each leaf makes a host route for each
    neighbour, and BGP announces it (Cumulus Linux: redistribute neighbor; others: attached-host or ARP host routes).
    leaf1 still announces the dead pod, and a host route is more specific than a subnet: the whole fabric sends to rack
    1, even from the rack of the new pod. A gratuitous ARP of the new pod does not help, because on most switches it
    changes entries but creates none. When the pod resolves its gateway, leaf2 learns the pod and announces it too. Now
    there are two paths of equal cost, and each flow takes one: of eight connections of one host some work, some die.

    Stretched: both racks are in one VLAN, and each leaf has its own ARP table. leaf2 never had the address: it sends a
    request and gets the new MAC. Hosts behind leaf2 reach the new pod, hosts behind leaf1 do not: half of a job fails.

    On real gear: `show ip arp` for the address differs between the leaves; routed, `show ip route` for it has a /32 by
    the wrong leaf, or by both. On the old leaf `show mac address-table` has the old MAC on a port of the rack. The
    counters of sent packets grow there, and nothing comes back.

    The fixes: in a stretched VLAN any one of these. The new owner announces itself, and the broadcast reaches every
    leaf; the orchestrator clears the address on the leaf of a deleted pod; leaves send requests to their neighbours
    (SONiC's arp_update, every two minutes). A routed fabric needs two things: the old leaf has to delete the address,
    and the new leaf has to receive a request from it (`arping -s ADDRESS GATEWAY`).
    """

    tags = ("arp", "kubernetes", "routing", "switch")
    profiled = ("leaf1", "leaf2")
    variants = (
        Variant("as-is", "fault", "the new owner is silent; leaf1 announces the old one, and nobody gets through"),
        Variant("garp", "fault", "the new owner's gratuitous ARP makes no entry on leaf2", {"announce": "garp"}),
        Variant("request", "fault", "it asks for its gateway; both leaves announce it", {"announce": "request"}),
        Variant("cleared", "healthy", "the same, and leaf1 is cleared", {"announce": "request", "clear": True}),
        Variant("stretched", "fault", "one VLAN over both racks, a silent owner: only rack 1 fails", STRETCHED),
        Variant("stretched-garp", "healthy", "leaf1 hears its gratuitous ARP", {**STRETCHED, "announce": "garp"}),
        Variant("stretched-cleared", "healthy", "leaf1 is cleared when the old pod goes", {**STRETCHED, "clear": True}),
        Variant("stretched-arp-update", "healthy", "SONiC's arp_update finds the new owner", ARP_UPDATE),
    )

    def topology_for(self, parameters: Settings) -> str:
        return "stretched.clab.yml" if parameters.fabric == "stretched" else self.topology

    def run(self, run: Run, p: Settings) -> None:
        routed = p.fabric == "routed"
        leaf1, leaf2 = run.lab.switch("leaf1"), run.lab.switch("leaf2")
        old, new, *nics = run.nics("old", "new", "client1", "client2", *(["client3"] if routed else []))
        clients = {f"rack {number}": nic for number, nic in enumerate(nics, 1)}
        ip = old.address().ip

        run.expect_write("a client in rack 1 works with the old owner, in rack 1 too", clients["rack 1"], old)
        run.expect("leaf1 has its MAC", leaf1.neighbour(ip), old.mac)
        run.expect("leaf2 does not know the address", str(ip) in leaf2.arp_table(), False)
        run.expect("the host in rack 2 knows its gateway", new.ping_gateway(), True)
        if routed:
            run.lab.routing.converged(within=5)
            run.expect("the fabric sends to", sends_to(run, ip), "rack 1")

        with run.step("a pod in rack 2 gets the address"):
            new.add_address(old.remove_address())  # beside its own
            self.make_known(run, p, new)

        with run.step(f"clients in all racks connect to the address, {FLOWS} times each"):
            captured = leaf1["e2"].capture("udp port 4791")
            flows = [Attributes(flow_label=1000 * number) for number in range(1, FLOWS + 1)]
            ends = {rack: [run.write(client, new, flow) for flow in flows] for rack, client in clients.items()}

        astray = len(captured.roce(to=old.mac))
        known1, known2 = (owner_of(leaf.neighbour(ip), old, new) for leaf in (leaf1, leaf2))
        working = {rack: statuses.count("SUCCESS") for rack, statuses in ends.items()}
        run.note(**{rack.replace(" ", ""): f"{count} of {FLOWS} work" for rack, count in working.items()})
        run.note(leaf1_arp=known1, leaf2_arp=known2)
        if routed:
            run.note(fabric_sends_to=sends_to(run, ip))
        if set(working.values()) == {FLOWS}:
            run.observe("healthy", "all racks reach the new owner")
            run.expect("leaf1 has no other MAC for it", known1, "no entry" if routed else "new's MAC")
            run.expect("leaf2 has the new owner's MAC", known2, "new's MAC")
            run.expect("nothing went to the old owner's port", astray, 0)
            return
        failed = sorted({status for statuses in ends.values() for status in statuses} - {"SUCCESS"})
        lost = sum(FLOWS - count for count in working.values())
        run.observe("fault", f"{lost} of {FLOWS * len(clients)} connections die of {', '.join(failed)}")
        run.note(frames_to_dead_port=astray)
        run.expect("they die of unanswered retries", failed, ["RETRY_EXC_ERR"])
        run.expect("leaf1 still has the old owner's MAC", known1, "old's MAC")
        run.expect("their frames went to the old owner's port", astray, lambda frames: frames >= 4)
        self.expect_cut_off(run, p, ip, working, known2)

    def expect_cut_off(self, run: Run, p: Settings, ip: IPAddress, working: dict[str, int], known2: str) -> None:
        """Who is cut off, and why: `working` are the connections that work by rack, `known2` is what leaf2 knows."""
        dead = [rack for rack, count in working.items() if not count]
        routed = p.fabric == "routed"
        if routed and p.announce != "request":
            run.expect("the fabric still sends to", sends_to(run, ip), "rack 1")
            run.expect("leaf2 does not know the address", known2, "no entry")
            run.expect("who is cut off", dead, list(working))
            return
        run.expect("leaf2 has the new owner's MAC", known2, "new's MAC")
        run.expect("who is cut off", dead, ["rack 1"])
        run.expect("everybody in rack 2 gets through", working["rack 2"], FLOWS)
        if routed:
            run.expect("the fabric sends to", sends_to(run, ip), "rack 1 and rack 2")
            run.expect("of rack 3 a part gets through", working["rack 3"], lambda count: 0 < count < FLOWS)

    def make_known(self, run: Run, p: Settings, new: HostInterface) -> None:
        """Makes the address's new owner known to the switches, as the variant does it."""
        ip = new.address().ip
        if p.clear:
            run.lab.switch("leaf1").clear_arp(ip=ip)
        if p.announce == "garp":
            new.announce()
            run.sleep(1, "the leaves hear the announcement")
        elif p.announce == "request":
            new.node.run("arping", "-c", "1", "-I", new.name, "-s", str(ip), str(new.gateway()))
        if p.wait:
            run.sleep(130, "the leaves ask for their neighbours")  # every 120 s
        if p.fabric == "routed":
            run.lab.routing.converged(within=5)


def sends_to(run: Run, ip: IPAddress) -> str:
    """The racks to which the spine sends packets for `ip` by a host route."""
    changes = [e["data"] for e in run.log.events if e["node"] == "spine" and e["kind"].startswith("route.")]
    ports = [change["ports"] for change in changes if change["to"] == str(ip_network(ip))]
    return " and ".join(TO_RACK[port] for port in ports[-1]) if ports else ""
