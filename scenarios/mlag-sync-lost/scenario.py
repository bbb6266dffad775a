from typing import Literal

from testbed import Field, Parameters, ProfileName, Run, Scenario, Variant
from testbed.faults import MlagSyncLate as SyncLate
from testbed.faults import MlagSyncLost as SyncLost
from testbed.workload import Attributes

TORS = ("tor1", "tor2")
OLD, NEW = "po2", "po3"
FLOWS = 8
"""Connections, each with a flow label, so a UDP source port, of its own."""


class Settings(Parameters):
    profile: ProfileName = Field("sonic", description="profile of both leaves")
    sync: Literal["lost", "late", "works"] = Field(
        "lost", description="what the leaves tell each other of their tables"
    )
    late: float = Field(60.0, gt=0, description="seconds by which it comes late")
    wait: float = Field(10.0, ge=0, description="seconds from the move to the first connection")
    fix: Literal["none", "clear", "resync"] = Field(
        "none", description="before the connections: clear the MAC on the wrong leaf, or restart the synchronisation"
    )


class MlagSyncLost(Scenario[Settings]):
    """One leaf of a pair knows the machine's new port, the other one the old: half of the connections die.

    Two leaves are one switch to their servers (MLAG, vPC, MC-LAG). Each learns what it hears, and tells the other one.
    On the peer link neither learns: a MAC would move there and back. A virtual machine moves to another hypervisor and
    announces itself. Its bond sends all frames by one link, so one leaf hears it. The announcement is flooded over the
    peer link, too, and the other leaf sees it there and learns nothing: it relies on the word of the first, and that
    is lost. So its MAC table has the old hypervisor. The ARP tables are right on both. Of the client's connections the
    hash gives about half to each leaf, and those die; a new connection is lucky or not. `ping` shows the same: it
    works, or it does not, and always the same way for a pair of addresses.

    On real gear: `show mac` (SONiC), `show mac address-table address` differ between the two; both have the session up
    (`show mclag brief`, `mclagdctl dump state`; `show mlag`; `show vpc`). The old hypervisor's port counts packets for
    a machine that is not there.

    The fix: restart the synchronisation, by which both tell all again (SONiC: `systemctl restart iccpd`). To clear the
    MAC on the leaf that is wrong does not help: the old word of the other one still counts, and brings it back. A
    machine whose frames take both links heals it by itself: Linux' default hash, layer2, uses one for all that goes by
    the gateway.

    Sources: SONiC, doc/mclag/Sonic-mclag-hld.md, 7.2.4 and 7.2.5; sonic-swss pull request 2625 (a MAC that moves from
    an orphan port to an MCLAG interface: the peer is never told) and issue 2810; sonic-buildimage issue 17606 (iccpd
    and the ASIC differ).
    """

    tags = ("fdb", "switch", "fabric")
    profiled = TORS
    variants = (
        Variant("as-is", "fault", "the leaves do not tell each other of MACs"),
        Variant("late", "fault", "they do so a minute late, and the client connects before", {"sync": "late"}),
        Variant("late-enough", "healthy", "the client connects later", {"sync": "late", "wait": 90.0}),
        Variant("clear", "fault", "the MAC is cleared on the leaf that is wrong, and comes back", {"fix": "clear"}),
        Variant("resync", "healthy", "the synchronisation is restarted", {"fix": "resync"}),
        Variant("works", "healthy", "the leaves tell each other of MACs", {"sync": "works"}),
    )

    def run(self, run: Run, p: Settings) -> None:
        client, here, there = (run.lab.host(name)["bond0"] for name in ("client", "here", "there"))
        ip, mac = here.address().ip, here.mac
        labels = [Attributes(flow_label=777 * number) for number in range(1, FLOWS + 1)]

        for nic in client, here:
            run.expect(f"{nic.node} knows its gateway", nic.ping_gateway(), True)
        run.expect_write("the client works with the machine", client, here)
        run.eventually("both leaves have its port", lambda: ports(run, mac), [OLD, OLD], within=3)

        faults = [run.inject(fault) for fault in lost(p)]
        with run.step("the machine moves to the other hypervisor, with its MAC and its address, and announces itself"):
            there.set_mac(mac)
            there.add_address(here.remove_address())  # beside its own
            run.silence(there)  # a machine keeps what it knew
            there.add_rdma("there-bond0")
            there.announce(ip=ip)
            run.sleep(p.wait, "the machine waits for the client")
        before = ports(run, mac)
        wrong = [tor for tor, port in zip(TORS, before, strict=True) if port == OLD]
        if p.fix == "clear":
            for tor in wrong:
                run.lab.switch(tor).clear_fdb(mac=mac)
        elif p.fix == "resync":
            for fault in faults:
                fault.recover()
            run.eventually("both leaves have the new port", lambda: ports(run, mac), [NEW, NEW], within=5)

        with run.step("the client connects to the machine"):
            captured = [run.lab[tor][OLD].capture("udp port 4791") for tor in TORS]
            ends = [run.write(client, there, one) for one in labels]

        astray = sum(len(capture.roce(to=mac)) for capture in captured)
        alive = ends.count("SUCCESS")
        run.note(alive=f"{alive} of {FLOWS}", port_after_move=before, port_at_end=ports(run, mac), astray=astray)
        macs = [run.lab.switch(tor).neighbour(ip) for tor in TORS]
        run.expect("both leaves have the machine's MAC in ARP", macs, [mac, mac])
        run.expect("the leaves hear each other", [run.lab.switch(tor).mlag()["session"] for tor in TORS], ["up", "up"])
        if alive == FLOWS:
            run.observe("healthy", "all connections work")
            run.expect("packets to the old hypervisor", astray, 0)
            return
        died = ", ".join(sorted({*ends} - {"SUCCESS"}))
        run.observe("fault", f"{FLOWS - alive} of {FLOWS} connections die of {died}")
        run.expect("of all connections live", alive, lambda live: 0 < live < FLOWS)
        run.expect("leaves with the old port", len(wrong), 1)
        run.expect("packets went to the old hypervisor", astray, lambda packets: packets >= FLOWS - alive)


def lost(p: Settings) -> list[SyncLost | SyncLate]:
    """The faults of a synchronisation, of both leaves."""
    if p.sync == "lost":
        return [SyncLost(switch=tor) for tor in TORS]
    return [SyncLate(switch=tor, delay=p.late) for tor in TORS] if p.sync == "late" else []


def ports(run: Run, mac: str) -> list[str]:
    return [run.lab.switch(tor).fdb_table().get(mac, "none") for tor in TORS]
