from testbed import Field, HostInterface, Parameters, Run, Scenario, Variant


class Settings(Parameters):
    arp_ignore: int = Field(0, ge=0, le=2, description="the server's sysctl net.ipv4.conf.all.arp_ignore")
    arp_announce: int = Field(0, ge=0, le=2, description="the server's sysctl net.ipv4.conf.all.arp_announce")


class ArpFluxTwoRails(Scenario[Settings]):
    """One of a host's two NICs answers ARP for the address of the other.

    In Linux an address belongs to the host: with arp_ignore 0, the default, each NIC that receives a request answers it
    with its own MAC. Two rails in one subnet are in one VLAN, so the switch gets two answers for each address, and
    keeps the last one. TCP works all the same, as the host accepts the packet at either NIC. RoCE does not: a packet
    for rail 2 that arrives at rail 1 finds no queue pair there. It works at first, because the host's own request has
    the right MAC; it breaks at the switch's next broadcast. In the field a race decides which answer is the last one,
    so only some hosts are affected. Here the last answer is rail 1's, by the order in which a bridge floods its ports.
    NCCL and RCCL have the case in their trackers (NVIDIA/nccl#1269, ROCm/rccl#1303).

    On real gear: `show ip arp` has the same MAC for both addresses of a host; `arping -I` from a neighbour prints two
    MACs for one address; the NIC that gets the packets counts them and RDMA does not.

    The fixes: arp_ignore 1 (answer only for the address of the receiving NIC) with arp_announce 2 (send requests only
    with that NIC's address). arp_announce alone, as in some guides, does not change the answers. Or a subnet for each
    rail.
    """

    tags = ("arp", "host", "switch")
    variants = (
        Variant("as-is", "fault", "arp_ignore and arp_announce are 0, Linux's defaults"),
        Variant("announce-only", "fault", "arp_announce is 2, arp_ignore is not set", {"arp_announce": 2}),
        Variant("fixed", "healthy", "arp_ignore is 1, arp_announce is 2", {"arp_ignore": 1, "arp_announce": 2}),
    )

    def run(self, run: Run, p: Settings) -> None:
        leaf, client, server = run.lab.switch("leaf"), run.lab.host("client")["eth1"], run.lab.host("server")
        server.sysctl("net/ipv4/conf/all/arp_ignore", p.arp_ignore)
        server.sysctl("net/ipv4/conf/all/arp_announce", p.arp_announce)
        rails = {"rail 1": server["eth1"], "rail 2": server["eth2"]}

        def known(rail: HostInterface) -> str:
            mac = leaf.neighbour(rail.address().ip)
            return next((name for name, other in rails.items() if other.mac == mac), "no entry")

        with run.step("the client works with both rails"):
            for name, rail in rails.items():
                run.expect(f"the WRITE to {name}", run.write(client, rail), "SUCCESS")
            run.expect("the switch's MACs for both addresses", [known(rail) for rail in rails.values()], list(rails))

        with run.step("the switch refreshes its entries"):
            run.sleep(130, "SONiC asks for all its neighbours by broadcast")  # every 120 s

        with run.step("the client connects anew"):
            captured = leaf["e2"].capture("udp port 4791")
            status_1, status_2 = (run.write(client, rail) for rail in rails.values())

        second = server["eth2"].address().ip.packed
        astray = sum(frame.data[30:34] == second for frame in captured.roce())  # the IPv4 destination
        known_1, known_2 = (known(rail) for rail in rails.values())
        run.note(rail_1=status_1, rail_2=status_2, mac_for_rail_1=known_1, mac_for_rail_2=known_2)
        run.note(frames_for_rail_2_on_rail_1=astray)
        run.expect("rail 1", status_1, "SUCCESS")
        reached = run.observe_status(status_2, "the client reaches both rails", who="the client to rail 2")
        run.expect("the switch's MAC for rail 2", known_2, "rail 2" if reached else "rail 1")
        run.expect("frames for rail 2 on rail 1", astray, 0 if reached else lambda frames: frames >= 4)
