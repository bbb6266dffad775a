import json
from typing import Any

from testbed import Field, Parameters, Run, Scenario, Variant
from testbed.faults import LinkLoss
from testbed.workload import Attributes

SPINES = {"e2": "spine1", "e3": "spine2"}
"""By an uplink of a leaf."""
KEEPALIVE_S, HOLD_S = 3.0, 9.0
DETECTION_S = 0.9


class Settings(Parameters):
    bfd: bool = Field(True, description="whether BFD watches the sessions of BGP")
    timeout: int = Field(17, ge=1, le=31, description="the QP's ACK timeout, 4.096 us * 2^timeout")
    retry_cnt: int = Field(3, ge=0, le=6, description="the QP's retries; 7 would be infinite on soft-RoCE")


class BfdOneWay(Scenario[Settings]):
    """A link of a spine carries nothing in one direction: which end notices, how soon, and what both ends show.

    The spine's transmitter is dead, or the leaf's receiver; the carrier is up at both ends. The leaf hears no BFD
    packet for the detection time of 0.9 s, goes down and reports so in its own packets, which still arrive. The spine
    is down by these, not by a silence of its own. BGP closes on both ends, and no direction of the link is used any
    more. Without BFD the leaf waits for BGP's hold time of 9 s.

    Then the states tell the direction: the end that is down with "control detection time expired" hears nothing, the
    end that is in init hears its neighbour (RFC 5880 section 6.2). Neither end shows any error on its interface, and
    BGP is Idle on both while BFD is not up. FRR's own BFD discards the packets in which the deaf end no longer knows
    its peer, so there the spine alternates between down and init.

    On real gear: `show bfd peers` of both ends, and the diagnostics in them; received BFD packets grow at one end
    only. An optic's receive power at the deaf end, and its neighbour's transmit power, find the part.

    The fix: BFD at both ends, with a detection time below the retry window of the queue pairs.

    Source: https://github.com/FRRouting/frr/issues/18416, https://github.com/FRRouting/frr/issues/14266.
    """

    tags = ("link", "routing")
    variants = (
        Variant("hold-time", "fault", "no BFD: the leaf notices by BGP's hold time", {"bfd": False}),
        Variant("short-window", "fault", "BFD, and a QP that retries for 0.27 s", {"timeout": 14}),
        Variant("bfd", "healthy", "BFD takes the link out in both directions, the QP retries for 2.1 s"),
    )

    def run(self, run: Run, p: Settings) -> None:
        leaf, spine = run.lab.switch("leaf1"), run.lab.switch("spine1")
        client, server = run.nics("client", "server")
        routing = run.lab.routing

        def shown(switch: Any, daemon: str, command: str) -> Any:
            return json.loads(routing.ask(switch, daemon, command))

        def bgp(switch: Any, port: str) -> str:
            return str(shown(switch, "bgpd", "show bgp ipv4 unicast summary json")["peers"][port]["state"])

        if not p.bfd:
            with run.step("BFD is off"):
                for name in ("leaf1", "leaf2", "spine1", "spine2"):
                    switch = run.lab.switch(name)
                    asn = shown(switch, "bgpd", "show bgp ipv4 unicast summary json")["as"]
                    routing.ask(switch, "bgpd", "configure terminal", f"router bgp {asn}", "no neighbor fabric bfd")
                routing.converged(within=30)

        labels = {label: Attributes(flow_label=label).source_port for label in range(1, 9)}
        uplinks = run.lab.switch("leaf2").uplinks(server.address().ip, client.address().ip, list(labels.values()))
        paths = dict(zip(labels, uplinks, strict=True))
        label = next(label for label, uplink in paths.items() if SPINES[uplink] == "spine1")
        attributes = Attributes(timeout=p.timeout, retry_cnt=p.retry_cnt, flow_label=label)
        connection = run.connect("a connection of the server works, by spine1", server, client, attributes)

        with run.step("spine1 sends nothing to leaf1 any more, and the server writes"):
            began = run.now
            injected = run.inject(LinkLoss(end="spine1:e1", loss=100))
            done = connection.write()
            routing.converged(within=30, without=["spine1:e1"])
        run.sleep(5, "BFD's packets are slower now")

        changes = [event for event in run.events("bfd.changed") if event["t"] / 1e9 > began]
        lost = [event["t"] / 1e9 - began for kind in ("installed", "lost") for event in run.events(f"route.{kind}")]
        converged_s = round(max(lost), 3)
        run.note(completion=done.status, after_s=round(done.elapsed_s, 3), window_s=round(attributes.retry_s, 2))
        run.note(converged_s=converged_s, leaf=bgp(leaf, "e2"), spine=bgp(spine, "e1"))
        if p.bfd:
            story = [f"{event['node']}: {event['data']['state']}, {event['data']['reason']}" for event in changes]
            run.note(bfd="; ".join(story))
            expected = [
                "leaf1: down, control detection time expired",
                "spine1: down, neighbor signaled session down",
                "spine1: init, neighbor signaled session down",
            ]
            run.expect("the leaf hears nothing, the spine is told by it", story, expected)
            run.expect("routes were complete soon", converged_s, lambda seconds: seconds < DETECTION_S + 1)
        else:
            after_hold = HOLD_S - KEEPALIVE_S, HOLD_S + KEEPALIVE_S
            run.expect(
                "routes were complete after BGP's hold time", converged_s, lambda s: after_hold[0] <= s < after_hold[1]
            )
        run.expect("the link is up at both ends", leaf.links_work() and spine.links_work(), True)
        states = [bgp(leaf, "e2"), bgp(spine, "e1")]
        run.expect("BGP is established at neither end", states.count("Established"), 0)
        if p.bfd:
            run.expect("and does not try while BFD is not up", states, ["Idle", "Idle"])
        if not run.observe_status(
            done.status, f"the WRITE arrives after {done.elapsed_s:.3f} s, by spine2", who="the server"
        ):
            run.expect("routes were complete too late", converged_s, lambda seconds: seconds > done.elapsed_s)

        with run.step("the transmitter is replaced"):
            injected.recover()
            seconds = routing.converged(within=60)
            run.note(back_after_s=round(seconds, 3))
