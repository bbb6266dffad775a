from testbed import Field, Parameters, ProfileName, Run, Scenario, Variant, owner_of
from testbed.faults import ProxyArp

UNICAST = {"profile": "cisco-nxos", "refresh_within": 1600}


class Settings(Parameters):
    profile: ProfileName = Field("sonic", description="ARP and FDB profile of the leaf switch")
    refresh_within: float = Field(
        130.0, gt=0, description="seconds in which the switch refreshes once; SONiC: every 120 s"
    )
    switch_off: bool = Field(False, description="whether proxy ARP is switched off on the host that answers")


class ProxyArpFalseAnswer(Scenario[Settings]):
    """A host answers ARP requests for the server's address, and the switch believes it.

    A node routes to its pods, or is a VPN gateway, and has proxy_arp on towards the network: it was set for all
    interfaces instead of the pods' side, or left from an experiment. It answers every request for an address to which
    it has a route over another interface; a stale pod route is enough. Nothing happens until the switch refreshes its
    table by broadcast. The server answers at once, the proxy up to 0.8 s later (proxy_delay, so that the owner comes
    first), and the switch accepts the last answer: it treats a reply with another MAC as a move. From then on the
    server's packets go to a host with a route for them but without the queue pair.

    On real gear: `show ip arp` has one MAC for several addresses; a capture at the switch's CPU has two replies to each
    request; `arping` at another host prints both. On the answering host `sysctl net.ipv4.conf.all.proxy_arp`, and a
    route to the address that should not be there. A CNI's check for address conflicts finds every address taken.

    The fixes: disable proxy_arp, and the next refresh corrects the entry; or a switch that refreshes by unicast, as
    many do, and so sends no request to the wrong host while its entry lives.
    """

    tags = ("arp", "host", "switch")
    variants = (
        Variant("as-is", "fault", "SONiC asks by broadcast, the proxy answers last"),
        Variant("switched-off", "healthy", "proxy ARP is switched off, SONiC asks again", {"switch_off": True}),
        Variant("unicast-refresh", "healthy", "NX-OS asks the owner only", UNICAST),
    )

    def run(self, run: Run, p: Settings) -> None:
        leaf, (client, server, router) = run.lab.switch("leaf"), run.nics("client", "server", "router")
        ip = server.address().ip

        def known() -> str:
            return owner_of(leaf.neighbour(ip), server, router)

        run.expect_write("the client works with the server", client, server)
        run.expect("the switch has", known(), "server's MAC")

        captured = leaf["e3"].capture(f"arp[6:2] = 2 and arp src host {ip}")
        with run.step("a host begins to answer for the server's address"):
            injection = run.inject(ProxyArp(host="router", ip=ip))
            run.sleep(p.refresh_within, "the switch refreshes its entries")

        if p.switch_off:
            with run.step("proxy ARP is switched off"):
                run.expect("the switch had", known(), "router's MAC")
                injection.recover()
                run.eventually("the next refresh corrects it", known, "server's MAC", within=p.refresh_within)

        with run.step("the client connects anew"):
            status = run.write(client, server)

        false = sum(reply.src == router.mac for reply in captured.frames())
        run.note(completion=status, switch_arp=known(), false_answers=false)
        if run.observe_status(status, "the client reaches the server"):
            run.expect("the switch has", known(), "server's MAC")
            run.expect("the router answered for it", false, 1 if p.switch_off else 0)
            if not p.switch_off:
                asked = [event["data"]["mac"] for event in run.events("arp.confirmed", ip=ip)]
                run.expect("the switch asked, and the server answered", asked, [server.mac])
        else:
            run.expect("the router answered for the server", false, 1)
            run.expect("the switch has", known(), "router's MAC")
