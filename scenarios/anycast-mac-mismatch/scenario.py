from typing import Literal

from testbed import Field, Parameters, ProfileName, Run, Scenario, Variant
from testbed.faults import LinkDown
from testbed.workload import Attributes

FLOWS = 8
"""Connections, each with a flow label, so a UDP source port, of its own."""


class Settings(Parameters):
    profile: ProfileName = Field("arista-eos", description="profile of the leaves")
    macs: Literal["different", "equal"] = Field("different", description="the gateway's MAC on leaf1 and leaf2")
    after: Literal["go-on", "one-side", "both-sides"] = Field(
        "go-on", description="the old connections go on; or new ones, for which the server, or both ends, ask again"
    )


class AnycastMacMismatch(Scenario[Settings]):
    """Two leaves are one gateway with two MACs, and connections die with one of them, in other racks, too.

    A server has LACP to two leaves of an EVPN fabric, and both have its gateway's address. The gateway's MAC has to be
    the same on all leaves (anycast gateway): a host has one entry for it, and its hash chooses the leaf for each flow.
    leaf1 has another MAC than all others, a typing error. All works: the server has learned leaf1's MAC, and leaf2
    bridges to leaf1 what the hash gives it for that MAC. It also spreads. When leaf1 asks for a host in another rack,
    its request has its own MAC and the gateway's address, and that host corrects its entry for its gateway by it (RFC
    826, "merge"), although its own leaf has another MAC. Then leaf1 dies. The bond changes over in a moment, and its
    packets go to a MAC that nobody has any more; so do the answers of hosts in other racks. RDMA NICs have that MAC in
    each queue pair: all connections die, those over the living leaf, too. Reconnecting does not help as long as the
    other end has the wrong entry.

    On real gear: `show ip virtual-router` (EOS), `show fabric forwarding anycast-gateway-mac` (NX-OS) differ between
    the leaves; `ip neigh` of hosts, also of other racks, has the one MAC or the other for the gateway.

    The fix: one MAC on all leaves. After the failure: new ARP requests by both ends, which they send when their entries
    have become stale, and new connections.
    """

    tags = ("arp", "evpn", "host", "switch")
    profiled = ("leaf1", "leaf2", "leaf3")
    variants = (
        Variant("as-is", "fault", "two MACs: all connections die with one leaf"),
        Variant("one-side", "fault", "the server asks again and connects anew, its peer not", {"after": "one-side"}),
        Variant("both-sides", "healthy", "both ask again, and connect anew", {"after": "both-sides"}),
        Variant("equal", "healthy", "one MAC: all connections live on", {"macs": "equal"}),
    )

    def topology_for(self, parameters: Settings) -> str:
        return "equal.clab.yml" if parameters.macs == "equal" else self.topology

    def run(self, run: Run, p: Settings) -> None:
        (storage,) = run.nics("storage")
        gpu = run.lab.host("gpu")["bond0"]
        labels = [Attributes(flow_label=number) for number in range(1, FLOWS + 1)]

        run.expect("the server knows its gateway", gpu.ping_gateway(), True)
        known = gpu.neighbour(gpu.gateway())
        owners = [leaf for leaf in ("leaf1", "leaf2") if run.lab.switch(leaf).svi_mac() == known]
        run.expect("leaves with the MAC that it has", owners, ["leaf1", "leaf2"] if p.macs == "equal" else ["leaf1"])
        before = sent(run)
        flows = [run.connect(f"connection {number}", gpu, storage, one) for number, one in enumerate(labels, 1)]
        least = min(after - was for was, after in zip(before, sent(run), strict=True))
        run.expect("packets over the link that has fewer: some WRITEs", least, lambda packets: packets >= 8)
        spread = storage.neighbour(storage.gateway())
        run.expect("its peer in another rack has the same MAC for its gateway", spread, known)

        with run.step("leaf1 dies"):
            for end in ("leaf1:up", "leaf1:e1"):
                run.inject(LinkDown(end=end), may_outlast_run=True)
            run.sleep(1, "the bond and the fabric change over")

        with run.step("the connections are used again"):
            if p.after == "go-on":
                ends = [flow.write().status for flow in flows]
            else:
                for flow in flows:
                    flow.close()
                for nic in (gpu, storage)[: 1 if p.after == "one-side" else 2]:
                    nic.node.run("ip", "neigh", "flush", "dev", nic.name)
                ends = [run.write(gpu, storage, one) for one in labels]

        alive = ends.count("SUCCESS")
        run.note(alive=f"{alive} of {FLOWS}", server_has=gpu.neighbour(gpu.gateway()))
        run.note(peer_has=storage.neighbour(storage.gateway()))
        if alive == FLOWS:
            run.observe("healthy", "all connections work")
            return
        died = ", ".join(sorted({*ends} - {"SUCCESS"}))
        run.observe("fault", f"{FLOWS - alive} of {FLOWS} connections die of {died}")
        run.expect("of all connections live", alive, 0)
        run.expect("the peer still has the dead leaf's MAC", storage.neighbour(storage.gateway()), known)
        run.expect("leaf2 is the server's gateway, with another MAC", gpu.ping_gateway(within=3), True)
        run.expect("which it has now", gpu.neighbour(gpu.gateway()), run.lab.switch("leaf2").svi_mac())


def sent(run: Run) -> list[int]:
    """The packets that each link of the server has sent."""
    return [run.lab.host("gpu")[link].counters()["tx_packets"] for link in ("eth1", "eth2")]
