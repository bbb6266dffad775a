from typing import Literal

from testbed import Field, Interface, Parameters, ProfileName, Run, Scenario, Variant

PERIOD_S, SIZE = 60, 65536
"""A WRITE of so many bytes each so many seconds: no connection is idle for long."""


class Settings(Parameters):
    profile: ProfileName = Field("arista-eos", description="ARP and FDB profile of both gateways")
    mac_age: float | None = Field(None, gt=0, description="MAC ageing in seconds; empty: the profile's own")
    arp_age: float | None = Field(None, gt=0, description="ARP timeout in seconds; empty: the profile's own")
    unknown_unicast: Literal["flood", "drop"] | None = Field(None, description="frames to an unknown MAC")
    one_gateway: bool = Field(False, description="whether the server uses the client's gateway too")
    hours: int = Field(2, gt=0, le=24, description="hours for which the client writes")


class FloodingByAgeMismatch(Scenario[Settings]):
    """Two gateways, traffic there by one and back by the other: all of it is flooded, for ever.

    gw1 routes what the client sends, and gw2 what the server answers, as with two VRRP or HSRP groups whose masters are
    different switches. gw1 learned the server's MAC from an ARP reply and hears nothing of it afterwards: the server's
    frames end at gw2. After 5 minutes the MAC is gone, and the ARP entry stays for 4 hours. So gw1 has a MAC to send to
    and no port, and floods each packet to all ports of the VLAN. The traffic itself never mends it, unlike that of a
    server that only was silent. When the ARP entry is renewed after 4 hours, there are 5 minutes of peace.

    Nothing fails: RDMA works, and each server of the VLAN gets all traffic of the one. Its link is full, and nobody
    looks at the gateways.

    On real gear: an idle server's port has output and no input (`show interfaces counters rates`); a capture there has
    unicast frames for another MAC. On gw1 `show ip arp` has the server and `show mac address-table address` has
    nothing; on gw2 both have it.

    The fixes: MAC addresses live longer than ARP entries (`mac address-table aging-time 14460`); or ARP entries go
    first (`arp aging timeout 240`, `arp timeout 240`, Huawei's `arp expire-time`), since the reply to each renewal
    shows the MAC again. SONiC's arp_update and NX-OS' defaults (1500 s and 1800 s) do that. Or both directions use one
    gateway. Dropping unknown unicast (`switchport block unicast`) is no fix: then the server cannot be reached.

    Huawei's command reference warns of it (arp expire-time vlanif), networklessons.com builds it (Unicast Flooding due
    to Asymmetric Routing); Cisco's document is number 23563.
    """

    tags = ("arp", "fdb", "switch", "fabric")
    profiled = ("gw1", "gw2")
    profile_values = ("mac_age", "arp_age", "unknown_unicast")
    variants = (
        Variant("as-is", "fault", "MAC addresses live for 5 minutes, ARP entries for 4 hours"),
        Variant(
            "cisco-ios",
            "fault",
            "so on Cisco IOS; after 4 hours it renews the ARP entry",
            {"profile": "cisco-ios", "hours": 5},
        ),
        Variant("drop", "fault", "the gateways drop unknown unicast", {"unknown_unicast": "drop"}),
        Variant("mac-age", "healthy", "MAC addresses live longer than ARP entries", {"mac_age": 14460, "hours": 5}),
        Variant("arp-age", "healthy", "ARP entries go before MAC addresses", {"arp_age": 240}),
        Variant("cisco-nxos", "healthy", "NX-OS: 25 minutes for ARP, 30 for MAC addresses", {"profile": "cisco-nxos"}),
        Variant("sonic", "healthy", "SONiC asks all neighbours every 120 s", {"profile": "sonic"}),
        Variant("one-gateway", "healthy", "gw1 routes both directions", {"one_gateway": True}),
    )

    def run(self, run: Run, p: Settings) -> None:
        client, server = run.nics("client", "server")
        gw1, gw2 = run.lab.switch("gw1"), run.lab.switch("gw2")
        if p.one_gateway:
            server.node.run("ip", "route", "replace", "default", "via", "10.0.20.1")
        connection = run.connect("the client writes to the server, and gw1 learns its MAC", client, server)
        run.expect("gw1 has the server's port", gw1.fdb_table().get(server.mac), "e3")

        status = "SUCCESS"
        hourly: list[int] = []
        while status == "SUCCESS" and len(hourly) < p.hours:
            with run.step(f"the client writes for hour {len(hourly) + 1}"):
                end, sent, flooded = run.now + 3600, bytes_in(gw1["e1"]), bytes_out(gw1["e2"])
                while status == "SUCCESS" and run.now < end:
                    run.lab.scheduler.sleep(PERIOD_S)
                    status = connection.write(SIZE).status
                sent, flooded = bytes_in(gw1["e1"]) - sent, bytes_out(gw1["e2"]) - flooded
                hourly.append(round(100 * flooded / sent))

        known = gw1.neighbour(server.address().ip) == server.mac
        ports = [gateway.fdb_table().get(server.mac, "none") for gateway in (gw1, gw2)]
        run.note(completion=status, flooded_percent=hourly, ports_of_mac=ports)
        if status == "SUCCESS" and max(hourly) < 50:
            run.observe("healthy", "the server's packets reach the server only")
            run.expect("shares of them that reached the bystander, in %", hourly, [0] * len(hourly))
            return
        run.expect("gw1 has an ARP entry for the server", known, True)
        run.expect("ports of its MAC on gw1 and gw2", ports, ["none", "e1"])
        if status == "SUCCESS":
            run.observe("fault", f"the bystander gets {hourly[-1]} % of the server's packets")
            run.expect("shares in each hour, in %", hourly, lambda shares: min(shares) > 80)
        else:
            run.observe_status(status, "the server is reached")
            run.expect("nothing was flooded", hourly, [0])


def bytes_in(port: Interface) -> int:
    return port.counters()["rx_bytes"]


def bytes_out(port: Interface) -> int:
    return port.counters()["tx_bytes"]
