from ipaddress import IPv4Interface
from typing import Literal

from testbed import Field, Host, Parameters, Run, Scenario, Variant

GATEWAYS = {"eth1": IPv4Interface("10.0.10.1/24"), "eth2": IPv4Interface("10.0.20.1/24")}
"""The gateways' addresses, by the routers' interfaces."""
VIRTUAL_MACS = {"eth1": "00:00:5e:00:01:0a", "eth2": "00:00:5e:00:01:14"}
"""Of virtual routers 10 and 20 (RFC 9568 section 7.3)."""


class Settings(Parameters):
    client: Literal["hardware", "soft"] = Field("hardware", description="the client's NIC: hardware, or soft-RoCE")
    virtual_mac: bool = Field(False, description="whether the gateways have a virtual MAC that moves along (VRRP)")
    reconnect: bool = Field(False, description="whether the client makes a new connection when the old one died")


class QpPinnedMac(Scenario[Settings]):
    """The gateway gets another MAC, and connected queue pairs send to the old one.

    A NIC reads the destination MAC of a queue pair from the neighbour table once, at modify to RTR, and keeps it for
    the queue pair's life. Two routers share a gateway address without a virtual MAC, as keepalived does by default. The
    first one fails, the second one takes the address and announces it. The client's neighbour entry is right within a
    millisecond: ping, TCP and new connections work. The old queue pair sends to a MAC that no host has, retries, and
    dies. The same happens when a peer in the same subnet gets another MAC (a bond with fail_over_mac=active, a replaced
    NIC). soft-RoCE looks up the neighbour for each packet, so a test on soft-RoCE passes and hardware fails.

    On real gear: RETRY_EXC_ERR on every connection at the moment of a failover, while `ip neigh` is right and ping
    works; a mirror of the client's port shows RoCE frames to the failed router's MAC. With NCCL's defaults (timeout 20,
    7 retries) half a minute passes before the error.

    The fixes: a virtual MAC that moves along with the address (VRRP's own, keepalived's use_vmac, an anycast gateway on
    leaves); otherwise the application has to reconnect, so a restart of the job helps.
    """

    tags = ("arp", "host")
    variants = (
        Variant("as-is", "fault", "the gateway moves to another MAC; the NIC's queue pair keeps the old one"),
        Variant("reconnect", "healthy", "the client makes a new connection", {"reconnect": True}),
        Variant("virtual-mac", "healthy", "the MAC moves along with the address", {"virtual_mac": True}),
        Variant("soft-roce", "healthy", "soft-RoCE follows the neighbour table", {"client": "soft"}),
    )

    def run(self, run: Run, p: Settings) -> None:
        first, second = run.lab.host("router1"), run.lab.host("router2")
        client, server = run.nics(p.client, "server")
        gateway = GATEWAYS["eth1"].ip
        before = become_gateway(first, p.virtual_mac)

        connection = run.connect("the client works with the server, through router 1", client, server)
        run.expect("the client has router 1's MAC", client.neighbour(gateway), before)

        with run.step("router 1 fails, router 2 takes the gateways' addresses and announces them"):
            for interface in GATEWAYS:
                first[interface].down()
            after = become_gateway(second, p.virtual_mac)
            run.sleep(1, "the hosts hear the announcements")
            run.expect("the client has router 2's MAC", client.neighbour(gateway), after)

        with run.step("the client writes over the old connection"):
            captured = client.capture("udp port 4791")
            status = old = connection.write().status
            captured.stop()

        if p.reconnect:
            with run.step("the client connects anew"):
                status = run.write(client, server)

        names = {before: "router 1's MAC", after: "router 2's MAC"} if before != after else {before: "the virtual MAC"}
        sent = [frame.dst for frame in captured.roce() if frame.src == client.mac]
        sent_to = ", ".join(f"{sent.count(mac)} to {name}" for mac, name in names.items() if mac in sent)
        run.note(old_connection=old, completion=status, neighbour_entry=names[after], frames=sent_to)
        pinned_at = connection.near.connection
        pinned = pinned_at.mac if pinned_at else after
        run.expect("what the old connection sent", set(sent), {pinned})
        run.expect("the MAC that its queue pair kept", pinned, after if p.client == "soft" else before)
        run.expect("it works only with the gateway's MAC", old, "SUCCESS" if pinned == after else "RETRY_EXC_ERR")
        run.observe_status(status, "the client reaches the server")


def become_gateway(router: Host, virtual_mac: bool) -> str:
    """Gives the router both gateways' addresses as keepalived does, and announces them; the MAC of the clients' one."""
    router.sysctl("net/ipv4/ip_forward", 1)
    for name, address in GATEWAYS.items():
        owner = router[name]
        if virtual_mac:
            virtual, mac = f"vrrp-{name}", VIRTUAL_MACS[name]
            router.run("ip", "link", "add", virtual, "link", name, "address", mac, "type", "macvlan")
            router.run("ip", "link", "set", virtual, "up")
            router.sysctl("net/ipv4/conf/all/arp_ignore", 1)  # else the interface below answers for it, too
            owner = router.adopt(virtual, mac)
        owner.add_address(address)
        owner.announce()
    return VIRTUAL_MACS["eth1"] if virtual_mac else router["eth1"].mac
