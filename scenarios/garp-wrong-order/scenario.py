from testbed import Field, Parameters, ProfileName, Run, Scenario, Variant, owner_of


class Settings(Parameters):
    profile: ProfileName = Field("cisco-nxos", description="ARP and FDB profile of the leaf switch")
    late: float = Field(4.0, gt=0, description="seconds from the failover to the old owner's last announcement")
    fenced: bool = Field(False, description="whether the old owner is silenced before the address moves")
    again_after: float = Field(0.0, ge=0, description="seconds until the standby announces itself again; 0: never")


class GarpWrongOrder(Scenario[Settings]):
    """The old owner's announcement of an address comes after the new owner's.

    An address moves to a standby. The standby announces itself, and the switch has the new MAC. But something on the
    old owner still announces the address: a daemon with a timer (keepalived's garp_master_refresh, a speaker of a load
    balancer), an agent on a node that has lost its quorum unnoticed, a reply that waited in a queue. The switch accepts
    the last announcement. When the old owner finally becomes silent, the address is unreachable until the ARP entry
    ages out. The same happens when a pod is announced before its interface gets its final MAC.

    On real gear: the switch's log has two moves of the address within seconds, the second one back ("moved from … to …"
    and again). `show ip arp` has the old owner's MAC, younger than the failover. A capture in the VLAN shows both
    announcements in this order.

    The fixes: silence the old owner first (fencing; a pod's address is reused when the pod is gone, not when its
    deletion is requested). Or the standby announces itself again, later than any announcement of an old owner
    (keepalived's second set after garp_master_delay, 5 s). Or the switch probes the current owner before it accepts
    another one (Huawei's entry-check send-ack). This works only after the standby has become the current owner: an old
    owner that announces within the seconds of the first probe still wins.
    """

    tags = ("arp", "switch")
    variants = (
        Variant("as-is", "fault", "the old owner announces itself once more, 4 s after the standby did"),
        Variant("fenced", "healthy", "the old owner's last announcement precedes the move", {"fenced": True}),
        Variant("again", "healthy", "the standby announces itself again, 1 s after that", {"again_after": 1}),
        Variant("verified", "healthy", "the switch asks the owner it knows first", {"profile": "huawei-ce-send-ack"}),
    )

    def run(self, run: Run, p: Settings) -> None:
        client, server, standby = run.nics("client", "server", "standby")
        ip = server.address().ip

        run.expect_write("the client works with the server", client, server)
        run.expect("the standby knows its gateway, too", standby.ping_gateway(), True)

        with run.step("the server's address moves to the standby"):
            if p.fenced:
                server.announce()
            standby.add_address(server.remove_address())  # beside its own
            standby.announce()
            if not p.fenced:
                run.sleep(p.late, "a daemon on the server does not know of the move")
                server.announce(ip=ip)
            if p.again_after:
                run.sleep(p.again_after, "before the standby's second set of announcements")
                standby.announce()
            run.sleep(1, "the switch hears the last announcement")

        with run.step("the client connects to the address"):
            status = run.write(client, standby)

        known = owner_of(run.lab.switch("leaf").neighbour(ip), server, standby)
        moves = [owner_of(event["data"]["mac"], server, standby) for event in run.events("arp.updated", ip=ip)]
        run.note(completion=status, switch_arp=known, moved_to=", then ".join(moves))
        reached = run.observe_status(status, "the client reaches the standby")
        run.expect("the switch has the MAC of", known, "standby's MAC" if reached else "server's MAC")
        back = ["server's MAC", "standby's MAC"] if p.again_after else []
        expected = ["standby's MAC", *back] if reached else ["standby's MAC", "server's MAC"]
        run.expect("how the switch's entry moved", moves, expected)
