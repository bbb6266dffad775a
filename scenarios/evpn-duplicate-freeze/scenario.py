from typing import Literal

from evpn_tables import LEAF2, LEAF3, becomes, behind, entry

from testbed import Field, HostInterface, Parameters, ProfileName, Run, Scenario, Variant

PAUSE_S = 10.0
"""Between two moves."""


class Settings(Parameters):
    profile: ProfileName = Field("cumulus-3-4plus", description="profile of the three leaves")
    evpn_dup_moves: int | None = Field(None, ge=2, description="moves that make a duplicate; empty: the profile's")
    evpn_dup_freeze: int | None = Field(0, ge=0, description="seconds for which it is frozen; 0: until it is cleared")
    moves: int = Field(5, ge=1, description="moves of the service, 10 s apart")
    cure: Literal["none", "clear", "wait"] = Field("none", description="an operator clears it, or a minute passes")


class EvpnDuplicateFreeze(Scenario[Settings]):
    """A service has moved five times in a minute, and the fabric freezes it where it is not.

    A service with an address and a MAC of its own runs on one of two hosts in two racks: a virtual machine that a
    balancer migrates, an active-standby pair whose heartbeat is unstable. Each move is a MAC move of EVPN. After five
    moves within 180 s the leaf that hears the fifth one takes the MAC for a duplicate (RFC 7432, section 15.1), which
    it is not: two hosts with one MAC look the same. If the switch freezes duplicates (FRR and Cumulus Linux:
    `dup-addr-detection freeze`), it no longer announces the service, though the service is at its own port from now
    on. All others go on sending to the rack of the fourth move. The pair is quiet and healthy by then, and nothing
    moves any more; so nothing heals it.

    On real gear: a line in the log of one leaf ("detected as duplicate"), and the flag in `show evpn mac vni` there. On
    all others `show mac address-table` has the service behind the wrong leaf. The service's own leaf reaches it, so
    half of the probes say that all is well.

    The fixes: clear it (`clear evpn dup-addr`); freeze for a time only, 30 s to an hour; report and do not freeze,
    which is FRR's default; a higher number of moves, where migrations are expected. And to mend the pair's heartbeat.
    """

    tags = ("evpn", "fdb", "switch")
    profiled = ("leaf1", "leaf2", "leaf3")
    profile_values = ("evpn_dup_moves", "evpn_dup_freeze")
    variants = (
        Variant("as-is", "fault", "five moves; the fabric freezes the service at its fourth place"),
        Variant("four", "healthy", "four moves are no duplicate", {"moves": 4}),
        Variant("warn", "healthy", "the switches only report it, FRR's default", {"evpn_dup_freeze": None}),
        Variant("moves", "healthy", "twenty moves make a duplicate", {"evpn_dup_moves": 20}),
        Variant("timed", "healthy", "it is frozen for 30 s", {"evpn_dup_freeze": 30, "cure": "wait"}),
        Variant("cleared", "healthy", "an operator clears it on its leaf", {"cure": "clear"}),
    )

    def run(self, run: Run, p: Settings) -> None:
        client, here, there = run.nics("client", "here", "there")
        mac = here.mac
        there.set_mac(mac)  # the service's on both; who does not have it is silent
        there.add_rdma("there-eth1")

        run.expect("the service in rack 2 knows its gateway", here.ping_gateway(), True)
        run.expect_write("the client in rack 1 works with it", client, here)
        run.expect("leaf1 has it behind leaf2", becomes(run, mac, LEAF2), True)

        with run.step(f"the service moves {p.moves} times"):
            at = self.move(run, here, there, p.moves)

        if p.cure == "wait":
            run.sleep(60, "the service stays where it is")
        elif p.cure == "clear":
            leaf3 = run.lab.switch("leaf3")
            run.lab.routing.ask(leaf3, "zebra", "clear evpn dup-addr vni all")
            run.sleep(1, "EVPN takes its time")

        with run.step("the client connects to the service"):
            astray = here.capture("udp port 4791")
            status = run.write(client, at)

        rack = "leaf3" if at is there else "leaf2"
        lost = len(astray.roce(to=mac)) if at is there else 0
        found = [event["node"] for event in run.events("evpn.duplicate", mac=mac)]
        number = entry(run, rack, mac).get("sequence")
        run.note(completion=status, duplicate_at=", ".join(dict.fromkeys(found)) or "nowhere", sequence=number)
        run.note(frames_to_old_host=lost, leaf1_sends_to=", ".join(behind(run, mac)))
        detected = p.moves >= (p.evpn_dup_moves or 5)
        run.expect("the leaf of the last move has found a duplicate", rack in found, detected)
        if run.observe_status(status, "the service is reached where it is"):
            run.expect("leaf1 sends to its rack", behind(run, mac), [LEAF3 if at is there else LEAF2])
            return
        run.expect("the service's own leaf has it at its port", entry(run, rack, mac).get("port"), "e1")
        run.expect("as a duplicate", entry(run, rack, mac).get("duplicate"), True)
        run.expect("leaf1 sends to the rack of the fourth move", behind(run, mac), [LEAF2])
        run.expect("the frames went to the host that does not have it", lost, lambda frames: frames >= 4)
        run.expect("the service reaches its gateway all the time", at.ping_gateway(), True)

    def move(self, run: Run, one: HostInterface, other: HostInterface, times: int) -> HostInterface:
        """Moves the service's address from host to host, which announce it; returns the last one."""
        for _ in range(times):
            other.add_address(one.remove_address())  # beside its own
            other.announce(ip=other.address().ip)
            one, other = other, one
            run.sleep(PAUSE_S, "until the next move")
        return one
