"""See the docstring of ArpFluxTwoRails, or `testbed describe arp-flux-two-rails`."""

from __future__ import annotations

from pydantic import Field

from testbed import Parameters, Run, Scenario, Variant

RAILS = ("eth1", "eth2")
REFRESH_S = 130.0
"""SONiC asks for all its neighbours within this time (every 120 s)."""
DESTINATION = slice(30, 34)
"""Of an IPv4 packet in an untagged frame."""


class Settings(Parameters):
    arp_ignore: int = Field(0, ge=0, le=2, description="the server's sysctl net.ipv4.conf.all.arp_ignore")
    arp_announce: int = Field(0, ge=0, le=2, description="the server's sysctl net.ipv4.conf.all.arp_announce")


class ArpFluxTwoRails(Scenario):
    """
    A host has two NICs in one subnet, and one NIC answers ARP for the address of the other.

    To Linux an address belongs to the host, not to a NIC: with arp_ignore 0, the default, each NIC that hears a request
    answers it with its own MAC. Two rails in one subnet are in one VLAN, so both hear it and the switch gets two
    answers for each address; the last one stays. TCP does not mind, the host takes the packet at either NIC. RoCE does:
    a packet for rail 2 that arrives at rail 1 finds no queue pair there. It works at first, for the host's own request
    names the right MAC; it breaks at the switch's next broadcast. Which answer is the last one is a race in the field,
    so some hosts are hit and others are not; here it is rail 1's, by the order in which a bridge floods its ports. NCCL
    and RCCL have the case in their trackers (NVIDIA/nccl#1269, ROCm/rccl#1303).

    On real gear: `show ip arp` has the same MAC for both addresses of a host; `arping -I` from a neighbour prints two
    MACs for one address; the NIC that gets the packets counts them and RDMA does not.

    The cures: arp_ignore 1 (answer only for the address of the NIC that was asked) with arp_announce 2 (ask only with
    that address); or a subnet for each rail, which is how fabrics with rails are built. arp_announce alone, as some
    guides have it, does not touch the answers.
    """

    title = "One NIC answers ARP for the other rail's address"
    tags = ("arp", "host", "switch")
    parameters = Settings
    variants = (
        Variant("as-is", "fault", "arp_ignore and arp_announce are 0, Linux's defaults"),
        Variant("announce-only", "fault", "arp_announce is 2, arp_ignore is not set", {"arp_announce": 2}),
        Variant("cured", "healthy", "arp_ignore is 1, arp_announce is 2", {"arp_ignore": 1, "arp_announce": 2}),
    )

    def run(self, run: Run, p: Settings) -> None:
        leaf, client, server = run.lab.switch("leaf"), run.lab.host("client"), run.lab.host("server")
        server.sysctl("net/ipv4/conf/all/arp_ignore", p.arp_ignore)
        server.sysctl("net/ipv4/conf/all/arp_announce", p.arp_announce)
        rails = {server.macs["eth1"]: "rail 1", server.macs["eth2"]: "rail 2"}

        def known(rail: str) -> str:
            return rails.get(leaf.arp_table().get(str(server.addresses[rail].ip), ""), "no entry")

        with run.step("the client works with both rails"):
            for rail in RAILS:
                run.expect(f"the WRITE to {rail}", run.write(client, server, interfaces=("eth1", rail)), "SUCCESS")
            run.expect("the switch's MACs for both addresses", list(map(known, RAILS)), list(rails.values()))

        with run.step("the switch refreshes its entries"):
            run.sleep(REFRESH_S, "SONiC asks for all its neighbours by broadcast")

        with run.step("the client connects anew"):
            captured = [leaf.capture(port, "udp port 4791") for port in ("e2", "e3")]
            statuses = [run.write(client, server, interfaces=("eth1", rail)) for rail in RAILS]
            for capture in captured:
                capture.stop()

        second = server.addresses["eth2"].ip.packed
        astray = sum(frame.roce and frame.data[DESTINATION] == second for frame in captured[0].frames())
        run.note(rail_1=statuses[0], rail_2=statuses[1], mac_for_rail_1=known("eth1"), mac_for_rail_2=known("eth2"))
        run.note(frames_for_rail_2_on_rail_1=astray)
        run.expect("rail 1", statuses[0], "SUCCESS")
        if statuses[1] == "SUCCESS":
            run.observe("healthy", "the client reaches both rails")
            run.expect("the switch's MAC for rail 2", known("eth2"), "rail 2")
            run.expect("frames for rail 2 on rail 1", astray, 0)
        else:
            run.observe("fault", f"the client's work request to rail 2 dies of {statuses[1]}")
            run.expect("it dies of unanswered retries", statuses[1], "RETRY_EXC_ERR")
            run.expect("the switch has rail 1's MAC for rail 2", known("eth2"), "rail 1")
            run.expect("the frames for rail 2 arrive on rail 1", astray, lambda frames: frames >= 4)
