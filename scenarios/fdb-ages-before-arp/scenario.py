"""See the docstring of FdbAgesBeforeArp, or `testbed describe fdb-ages-before-arp`."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import Field

from testbed import Parameters, Run, Scenario, Variant
from testbed.switch.profile import Profile, ProfileName, profile
from testbed.workload.attributes import Attributes
from testbed.workload.verbs import connect_pair

MESSAGE = 4096
LOSSLESS = 26 << 2
"""ToS of DSCP 26, which the profiles count among the lossless classes."""


class Settings(Parameters):
    profile: ProfileName = Field("arista-eos", description="ARP and FDB profile of the leaf switch")
    mac_age: float | None = Field(None, gt=0, description="MAC ageing of the leaf in seconds; empty: the profile's own")
    silence: float = Field(400.0, gt=0, description="seconds for which the server sends nothing")


class FdbAgesBeforeArp(Scenario):
    """
    The switch knows the server's MAC and no longer its port: the ARP entry lives for hours, the MAC entry for minutes.

    A server is attached and silent for longer than MAC addresses live: an idle training node, a storage target. Its ARP
    entry is still there, so packets are routed; its MAC has left the table, so they are unknown unicast and go to every
    port. RDMA works, and everybody beside the server gets its traffic. In a lossless class that is how pause-frame
    deadlocks begin (Guo et al., SIGCOMM 2016), so switches were taught to drop such packets: then nothing is flooded,
    and the server cannot be reached until it speaks.

    On real gear: `show mac address-table address` has nothing for the MAC in `show ip arp`; traffic of one server is
    seen at all ports of its VLAN; or the port counts drops and the server is unreachable until it is pinged from its
    own side. SONiC's tests call it unknown MAC (tests/arp/test_unknown_mac.py).

    The cure: MAC addresses that live longer than ARP entries (`mac address-table aging-time`); or a switch that asks
    for its neighbours before their MAC entries go (SONiC's arp_update).
    """

    title = "Known IP address, unknown MAC: flooded, or dropped"
    tags = ("arp", "fdb", "switch")
    parameters = Settings
    variants = (
        Variant("flood", "healthy", "the packets go to every port, the server's too; the bystander gets them"),
        Variant("drop", "fault", "the switch drops lossless packets then", {"profile": "msft-2016-tor-fixed"}),
        Variant("mac-age", "healthy", "MAC addresses live longer than the silence", {"mac_age": 14400}),
        Variant("sonic", "healthy", "SONiC asks for its neighbours every 120 s", {"profile": "sonic", "silence": 1500}),
    )

    def profiles(self, parameters: Settings) -> Mapping[str, Profile]:
        chosen = profile(parameters.profile)
        return {"leaf": chosen.replace(mac_age=parameters.mac_age) if parameters.mac_age else chosen}

    def run(self, run: Run, p: Settings) -> None:
        leaf, client, server = run.lab.switch("leaf"), run.lab.host("client"), run.lab.host("server")
        ip, mac = str(server.addresses["eth1"].ip), server.macs["eth1"]
        attributes = Attributes(traffic_class=LOSSLESS)
        with run.endpoint(client, "eth1") as near, run.endpoint(server, "eth1") as far:
            with run.step("a connection works"):
                connect_pair(near, far, attributes)
                run.expect("the first WRITE", run.completed(client, near.write(MESSAGE, within=5)).status, "SUCCESS")

            with run.step("nobody sends anything"):
                run.sleep(p.silence, "client and server are idle")
                run.expect("the switch has the server's ARP entry", leaf.arp_table().get(ip), mac)
                port = leaf.fdb_table().get(mac, "none")

            with run.step("the client writes again"):
                captured = leaf.capture("e3", "udp port 4791")
                done = run.completed(client, near.write(MESSAGE, within=60))
                captured.stop()

        flooded = sum(frame.roce for frame in captured.frames())
        run.note(completion=done.status, port_of_mac=port, frames_to_bystander=flooded)
        leafs = self.profiles(p)["leaf"]
        refreshed = leafs.arp_refresh == "daemon" and leafs.refresh_period < leafs.mac_age
        known = refreshed or leafs.mac_age > p.silence
        run.expect("the switch's port for the MAC", port, "e2" if known else "none")
        if done.ok:
            run.observe("healthy", "the server is reached")
            run.expect("what the bystander got", flooded, 0 if known else lambda frames: frames > 0)
        else:
            run.observe("fault", f"the client's work request dies of {done.status}")
            run.expect("it dies of unanswered retries", done.status, "RETRY_EXC_ERR")
            run.expect("nothing was flooded", flooded, 0)
            run.expect(
                "the switch drops lossless packets for it", bool(run.log.find("lossless.blocked", mac=mac)), True
            )
            server.ping(str(server.gateway("eth1")), within=1)
            run.expect("once the server spoke, it is reached", run.write(client, server, attributes), "SUCCESS")
