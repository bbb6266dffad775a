"""See the docstring of ProxyArpFalseAnswer, or `testbed describe proxy-arp-false-answer`."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import Field

from testbed import Parameters, Run, Scenario, Variant
from testbed.faults import ProxyArp
from testbed.switch import frames
from testbed.switch.profile import Profile, ProfileName, profile

REFRESH_S = 130.0
"""SONiC asks for all its neighbours within this time (every 120 s), and has the late answers, too."""


class Settings(Parameters):
    profile: ProfileName = Field("sonic", description="ARP and FDB profile of the leaf switch")
    refresh_within: float = Field(REFRESH_S, gt=0, description="seconds in which the switch refreshes its entries once")
    cured: bool = Field(False, description="whether proxy ARP is switched off on the host that answers")


class ProxyArpFalseAnswer(Scenario):
    """
    A host answers ARP requests for an address that is the server's, and the switch believes it.

    A node routes to its pods, or is somebody's VPN gateway, and has proxy_arp on towards the network: set for all
    interfaces where the pods' side was meant, or left from an experiment. It answers every request for an address that
    it has a route to over another interface, and a stale pod route is enough. Nothing happens as long as nobody asks.
    Then the switch refreshes its table by broadcast; the server answers at once, the proxy up to 0.8 s later
    (proxy_delay, so that the owner comes first), and the switch takes the last answer: a reply that changes a MAC is a
    move to it. From then on the server's packets go to a host that has a route for them and no queue pair.

    On real gear: `show ip arp` has one MAC for several addresses; a capture at the switch's CPU has two replies to each
    request; `arping` at another host prints both. On the answering host `sysctl net.ipv4.conf.all.proxy_arp`, and a
    route to the address that should not be there. An address conflict check of a CNI finds every address taken.

    The cures: switch proxy_arp off and the next refresh puts the entry right; or a switch that refreshes by unicast,
    as many do, and so does not ask the wrong one while its entry lives.
    """

    title = "Proxy ARP answers for the server"
    tags = ("arp", "host", "switch")
    parameters = Settings
    variants = (
        Variant("as-is", "fault", "SONiC asks by broadcast, the proxy answers last"),
        Variant("switched-off", "healthy", "proxy ARP is switched off, SONiC asks again", {"cured": True}),
        Variant(
            "unicast-refresh", "healthy", "NX-OS asks the owner only", {"profile": "cisco-nxos", "refresh_within": 1600}
        ),
    )

    def profiles(self, parameters: Settings) -> Mapping[str, Profile]:
        return {"leaf": profile(parameters.profile)}

    def run(self, run: Run, p: Settings) -> None:
        leaf = run.lab.switch("leaf")
        client, server, router = (run.lab.host(name) for name in ("client", "server", "router"))
        ip = server.addresses["eth1"].ip
        owners = {server.macs["eth1"]: "server's MAC", router.macs["eth1"]: "router's MAC"}

        def known() -> str:
            return owners.get(leaf.arp_table().get(str(ip), ""), "no entry")

        with run.step("the client works with the server"):
            run.expect("the first WRITE", run.write(client, server), "SUCCESS")
            run.expect("the switch has the server's MAC", known(), "server's MAC")

        captured = leaf.capture("e3", "arp")
        with run.step("a host begins to answer for the server's address"):
            injection = run.inject(ProxyArp(host="router", ip=ip))
            run.sleep(p.refresh_within, "the switch refreshes its entries")

        if p.cured:
            with run.step("proxy ARP is switched off"):
                run.expect("the switch had the router's MAC", known(), "router's MAC")
                injection.recover()
                run.eventually("the next refresh puts it right", known, "server's MAC", within=p.refresh_within)

        with run.step("the client connects anew"):
            status = run.write(client, server)

        captured.stop()
        replies = [arp for frame in captured.frames() if (arp := frames.parse(frame.data)) and arp.op == frames.REPLY]
        false = sum(arp.sender_ip == ip and arp.sender_mac == router.macs["eth1"] for arp in replies)
        run.note(completion=status, switch_arp=known(), false_answers=false)
        if status == "SUCCESS":
            run.observe("healthy", "the client reaches the server")
            run.expect("the switch has the server's MAC", known(), "server's MAC")
            run.expect("the router answered for it", false, 1 if p.cured else 0)
            if not p.cured:
                asked = [event["data"]["mac"] for event in run.log.find("arp.confirmed", ip=str(ip))]
                run.expect("the switch asked, and the server answered", asked, [server.macs["eth1"]])
        else:
            run.observe("fault", f"the client's work request dies of {status}")
            run.expect("it dies of unanswered retries", status, "RETRY_EXC_ERR")
            run.expect("the router answered for the server", false, 1)
            run.expect("the switch has the router's MAC", known(), "router's MAC")
