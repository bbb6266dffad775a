from typing import Literal

from testbed import Field, Parameters, ProfileName, Run, Scenario, Variant
from testbed.faults import LinkDown
from testbed.workload import Attributes

TORS = ("tor1", "tor2")
LINKS = {"both": ("peer", "keep"), "peer-link": ("peer",), "keepalive": ("keep",), "none": ()}
FLOWS = 8
"""Connections, each with a flow label, so a UDP source port, of its own."""


class Settings(Parameters):
    profile: ProfileName = Field("cisco-nxos", description="profile of both leaves")
    lost: Literal["both", "peer-link", "keepalive", "none"] = Field("both", description="links between the leaves")
    fix: Literal["none", "links", "clear"] = Field(
        "none", description="before the connections: the links come back, and the ARP tables are cleared, too"
    )


class MlagSplitBrain(Scenario[Settings]):
    """Both links between two leaves fail, and each goes on alone as one switch that is two: half of the flows die.

    Two leaves are one switch to their servers (MLAG, vPC). The peer link and the keepalive link fail, by one cable
    duct or one line card. Neither leaf knows whether the other one lives. On Cisco's vPC both go on with the LACP
    system of the pair, so servers use both, and nothing seems to have happened. Then a pod ends, and another one on
    another server gets its address. It announces itself. Its bond sends that to one leaf, which no longer tells the
    other: that has the old pod's MAC until its ARP entry is renewed. The client's hash gives about half of its
    connections to each leaf, and those of the wrong one die.

    By SONiC the standby takes its own LACP system as soon as it hears nobody. Servers see two switches and use one of
    them: everything goes on by one leaf. Servers with one link, to the standby, are cut off. If only the peer link
    fails, vPC's secondary gives its servers up at once; SONiC's goes on, and both stay in step by the keepalive link.

    On real gear: `show vpc` has both as primary, `peer link is down` and the keep-alive as not reachable; `show ip arp`
    and `show mac address-table` differ. SONiC: `show mclag brief` has the session as down on both; on the servers
    `cat /proc/net/bonding/bond0` has two partner MACs.

    The fixes: links between the leaves that do not fail together; a standby that leaves (SONiC, Dell). When the links
    are back, both leaves tell all they have, and nothing says which word is newer: each may take over the other's, so
    that the right one and the wrong one change sides. The entry has to be cleared on both, or to be renewed.

    Sources: Cisco, NX-OS Virtual PortChannel: Fundamental Design Concepts (C07-572835), dual-active failure; SONiC,
    doc/mclag/Sonic-mclag-hld.md, 7.3 and 7.4; Dell, article 000213968 (the session is down, the peer link up).
    """

    tags = ("arp", "switch", "fabric")
    profiled = TORS
    variants = (
        Variant("as-is", "fault", "vPC: both leaves stay one LACP system"),
        Variant("sonic", "healthy", "SONiC: the standby leaves it", {"profile": "sonic"}),
        Variant(
            "peer-link", "healthy", "vPC: only the peer link fails, and the standby gives up", {"lost": "peer-link"}
        ),
        Variant(
            "sonic-peer-link",
            "healthy",
            "SONiC: only the peer link fails; the leaves talk by the keepalive link",
            {"profile": "sonic", "lost": "peer-link"},
        ),
        Variant("links", "fault", "the links come back, and each leaf believes the other one", {"fix": "links"}),
        Variant("clear", "healthy", "the links come back, and the entry is cleared on both", {"fix": "clear"}),
        Variant("none", "healthy", "the links stay", {"lost": "none"}),
    )

    def run(self, run: Run, p: Settings) -> None:
        client, old, new = (run.lab.host(name)["bond0"] for name in ("client", "old", "new"))
        orphan = run.lab.host("orphan")["eth1"]
        labels = [Attributes(flow_label=777 * number) for number in range(1, FLOWS + 1)]
        ip = old.address().ip

        for nic in client, old, new, orphan:
            run.expect(f"{nic.node} knows its gateway", nic.ping_gateway(), True)
        run.expect_write("the client works with the pod", client, old)
        run.eventually("both leaves have its MAC", lambda: macs(run, ip), [old.mac, old.mac], within=3)

        faults = [run.inject(LinkDown(end=f"tor1:{link}")) for link in LINKS[p.lost]]
        run.sleep(30, "the leaves notice that they do not hear each other")
        state = [run.lab.switch(tor).mlag() for tor in TORS]
        heard = "up" if p.lost in ("peer-link", "none") else "down"
        run.expect("sessions", [one["session"] for one in state], [heard, heard])
        run.note(partners=partners(run, "client"), channels_of_tor2=[one["up"] for one in state[1]["channels"]])
        with run.step("the pod ends, and one on another server gets its address and announces itself"):
            new.add_address(old.remove_address())
            new.announce(ip=ip)
            run.sleep(5, "the pod waits for the client")
        if p.fix != "none":
            for fault in faults:
                fault.recover()
            run.eventually("the leaves hear each other", lambda: sessions(run), ["up", "up"], within=5)
            run.sleep(5, "they tell each other all")
        if p.fix == "clear":
            for tor in TORS:
                run.lab.switch(tor).clear_arp(ip=ip)

        known = macs(run, ip)
        with run.step("the client connects to the pod"):
            ends = [run.write(client, new, one) for one in labels]
        alive = ends.count("SUCCESS")
        run.note(alive=f"{alive} of {FLOWS}", right_mac=[mac == new.mac for mac in known])
        run.note(orphan_reached=run.lab.host("client").ping(orphan.address().ip, within=3))
        if alive == FLOWS:
            run.observe("healthy", "all connections work")
            return
        died = ", ".join(sorted({*ends} - {"SUCCESS"}))
        run.observe("fault", f"{FLOWS - alive} of {FLOWS} connections die of {died}")
        run.expect("of all connections live", alive, lambda live: 0 < live < FLOWS)
        run.expect("leaves with the old pod's MAC", known.count(old.mac), 1)


def macs(run: Run, ip: object) -> list[str | None]:
    return [run.lab.switch(tor).neighbour(str(ip)) for tor in TORS]


def sessions(run: Run) -> list[str]:
    return [run.lab.switch(tor).mlag()["session"] for tor in TORS]


def partners(run: Run, host: str) -> int:
    """How many LACP systems a server sees at the other ends of its links."""
    shown = run.lab.host(host).run("cat", "/proc/net/bonding/bond0").stdout
    found = [part.partition("system mac address:")[2].split()[0] for part in shown.split("partner lacp pdu:")[1:]]
    return len(set(found))
