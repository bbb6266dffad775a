from testbed import Field, Parameters, ProfileName, Run, Scenario, Variant
from testbed.workload import Attributes


class Settings(Parameters):
    profile: ProfileName = Field("arista-eos", description="ARP and FDB profile of the leaf switch")
    mac_age: float | None = Field(None, gt=0, description="MAC ageing of the leaf in seconds; empty: the profile's own")
    silence: float = Field(400.0, gt=0, description="seconds for which the server sends nothing")


class FdbAgesBeforeArp(Scenario[Settings]):
    """The switch has the server's MAC but no longer its port: packets are flooded, or dropped.

    An ARP entry lives for hours, a MAC entry for minutes. A server is silent for longer than the MAC ageing: an idle
    training node, a storage target. Its ARP entry still exists, so packets are routed. Its MAC entry is gone, so they
    are unknown unicast and go to every port. RDMA works, and all neighbours of the server get its traffic. In a
    lossless class pause-frame deadlocks begin this way (Guo et al., SIGCOMM 2016), so some switches drop such packets:
    then the server cannot be reached until it sends something.

    On real gear: `show mac address-table address` has nothing for the MAC in `show ip arp`. Traffic of one server
    appears at all ports of its VLAN; or the port counts drops, and the server is unreachable until it sends a ping.
    SONiC's tests call this case unknown MAC (tests/arp/test_unknown_mac.py).

    The fix: a MAC ageing longer than ARP's (`mac address-table aging-time`); or a switch that sends ARP requests to its
    neighbours before their MAC entries age out (SONiC's arp_update).
    """

    tags = ("arp", "fdb", "switch")
    profile_values = ("mac_age",)
    variants = (
        Variant("flood", "healthy", "the packets go to every port, the server's too; the bystander gets them"),
        Variant("drop", "fault", "the switch drops lossless packets then", {"profile": "msft-2016-tor-fixed"}),
        Variant("mac-age", "healthy", "MAC addresses live longer than the silence", {"mac_age": 14400}),
        Variant("sonic", "healthy", "SONiC asks for its neighbours every 120 s", {"profile": "sonic", "silence": 1500}),
    )

    def run(self, run: Run, p: Settings) -> None:
        leaf, (client, server) = run.lab.switch("leaf"), run.nics("client", "server")
        attributes = Attributes(traffic_class=26 << 2)  # DSCP 26, which the profiles count among the lossless classes
        connection = run.connect("a connection works", client, server, attributes)

        with run.step("nobody sends anything"):
            run.sleep(p.silence, "client and server are idle")
            run.expect("the switch has the server's ARP entry", leaf.neighbour(server.address().ip), server.mac)
            port = leaf.fdb_table().get(server.mac, "none")

        with run.step("the client writes again"):
            captured = leaf["e3"].capture("udp port 4791")
            status = connection.write().status

        flooded = len(captured.roce())
        run.note(completion=status, port_of_mac=port, frames_to_bystander=flooded)
        profile = self.profiles(p)["leaf"]
        refreshed = profile.arp_refresh == "daemon" and profile.refresh_period < profile.mac_age
        known = refreshed or profile.mac_age > p.silence
        run.expect("the switch's port for the MAC", port, "e2" if known else "none")
        if run.observe_status(status, "the server is reached"):
            run.expect("frames to the bystander", flooded, 0 if known else lambda frames: frames > 0)
        else:
            run.expect("nothing was flooded", flooded, 0)
            blocked = run.events("lossless.blocked", mac=server.mac)
            run.expect("the switch drops lossless packets for it", bool(blocked), True)
            server.ping_gateway()
            run.expect("once the server spoke, it is reached", run.write(client, server, attributes), "SUCCESS")
