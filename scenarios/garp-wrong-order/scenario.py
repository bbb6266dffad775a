"""See the docstring of GarpWrongOrder, or `testbed describe garp-wrong-order`."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import Field

from testbed import Parameters, Run, Scenario, Variant
from testbed.switch import frames
from testbed.switch.profile import Profile, ProfileName, profile


class Settings(Parameters):
    profile: ProfileName = Field("cisco-nxos", description="ARP and FDB profile of the leaf switch")
    late: float = Field(4.0, gt=0, description="seconds from the failover to the old owner's last announcement")
    fenced: bool = Field(False, description="whether the old owner is silenced before the address moves")
    again_after: float = Field(
        0.0, ge=0, description="seconds from then until the standby announces itself again; 0: it does not"
    )


class GarpWrongOrder(Scenario):
    """
    The new owner announces the address, then the old owner does so once more, and the last word counts.

    An address moves to a standby. It announces itself, and the switch has the new MAC. But on the old owner something
    still speaks for the address: a daemon that announces by a timer (keepalived's garp_master_refresh, a speaker of a
    load balancer), an agent on a node that has lost its quorum and does not know it yet, a reply that sat in a queue.
    The switch believes the last announcement. Then the old owner is silent at last, and the address is dead for as long
    as an ARP entry lives. The same is seen when a pod is announced before its interface gets its final MAC.

    On real gear: the switch's log has two moves of the address within seconds, the second one back ("moved from … to …"
    and again); `show ip arp` has the old owner's MAC with an age that is less than that of the failover. A capture in
    the VLAN shows both announcements in this order.

    The cures: the right order, which is to silence the old owner first (fencing; a pod's address is given away when the
    pod is gone, not when it is told to go); or the standby announces itself again, later than any old owner would
    (keepalived's second set after garp_master_delay, 5 s); or a switch that asks the owner it knows before it believes
    another one (Huawei's entry-check send-ack). The last one helps when the standby has become that owner: an old owner
    that speaks within the seconds of the first question, before the standby is believed, still wins.
    """

    title = "The old owner's announcement comes after the new owner's"
    tags = ("arp", "switch")
    parameters = Settings
    variants = (
        Variant("as-is", "fault", "the old owner announces itself once more, 4 s after the standby did"),
        Variant(
            "fenced", "healthy", "the old owner's last announcement comes before the address moves", {"fenced": True}
        ),
        Variant("again", "healthy", "the standby announces itself again, 1 s after that", {"again_after": 1}),
        Variant(
            "verified",
            "healthy",
            "the switch asks the owner that it knows before it believes",
            {"profile": "huawei-ce-send-ack"},
        ),
    )

    def profiles(self, parameters: Settings) -> Mapping[str, Profile]:
        return {"leaf": profile(parameters.profile)}

    def run(self, run: Run, p: Settings) -> None:
        leaf = run.lab.switch("leaf")
        client, server, standby = (run.lab.host(name) for name in ("client", "server", "standby"))
        ip = server.addresses["eth1"].ip
        owners = {server.macs["eth1"]: "server's MAC", standby.macs["eth1"]: "standby's MAC"}

        with run.step("the client works with the server"):
            run.expect("the first WRITE", run.write(client, server), "SUCCESS")
            gateway = str(standby.gateway("eth1"))
            run.expect("the standby knows its gateway, too", standby.ping(gateway, within=1), True)

        with run.step("the server's address moves to the standby"):
            last_word = frames.gratuitous_arp(server.macs["eth1"], ip)
            if p.fenced:
                server.send("eth1", last_word)
            standby.add_address("eth1", server.remove_address("eth1"))  # beside its own
            standby.announce("eth1")
            if not p.fenced:
                run.sleep(p.late, "a daemon on the server has not heard of it")
                server.send("eth1", last_word)
            if p.again_after:
                run.sleep(p.again_after, "before the standby's second set of announcements")
                standby.announce("eth1")
            run.sleep(1, "the switch hears the last announcement")

        with run.step("the client connects to the address"):
            status = run.write(client, standby)

        known = owners.get(leaf.arp_table().get(str(ip), ""), "no entry")
        moves = [owners[event["data"]["mac"]] for event in run.log.find("arp.updated", ip=str(ip))]
        run.note(completion=status, switch_arp=known, moved_to=", then ".join(moves))
        if status == "SUCCESS":
            run.observe("healthy", "the client reaches the standby")
            run.expect("the switch has the standby's MAC", known, "standby's MAC")
            back = ["server's MAC", "standby's MAC"] if p.again_after else []
            run.expect("how the switch's entry moved", moves, ["standby's MAC", *back])
        else:
            run.observe("fault", f"the client's work request dies of {status}")
            run.expect("it dies of unanswered retries", status, "RETRY_EXC_ERR")
            run.expect("how the switch's entry moved", moves, ["standby's MAC", "server's MAC"])
            run.expect("the switch has the server's MAC", known, "server's MAC")
