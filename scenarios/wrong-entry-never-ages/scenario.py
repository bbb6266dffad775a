from typing import Literal

from testbed import Field, Parameters, ProfileName, Run, Scenario, Variant, owner_of, profile

AGES = 3
"""How often the entry could have aged before the client connects."""


class Settings(Parameters):
    profile: ProfileName = Field("cisco-nxos", description="ARP and FDB profile of the leaf switch")
    ghost_asks_every: float = Field(60.0, ge=0, description="seconds between packets of the ghost; 0: it sends one")
    fix: Literal["none", "clear", "fence"] = Field("none", description="clear the entry; fence the ghost before that")


class WrongEntryNeverAges(Scenario[Settings]):
    """A wrong ARP entry never ages, because a ghost pod keeps confirming it.

    A node was lost, and its pods were started elsewhere with their addresses (a StatefulSet with fixed addresses, an
    evacuated virtual machine). Then the node comes back, and the old pod on it, the ghost, still runs: nobody could
    stop it. Its traffic causes ARP requests for its gateway, and each moves the switch's entry to the ghost, or
    confirms it. The new owner sends only RoCE and no ARP. In scenario ip-reuse waiting helps, because no host has the
    old MAC; here the entry is never older than the ghost's last request. Even a silent ghost is enough: before an entry
    ages, the switch sends a unicast request to its MAC, and the ghost answers.

    On real gear: `show ip arp` has a MAC that is not the server's, with an age that restarts again and again; the port
    of that MAC (`show mac address-table address`) is another node's. On the node the address is on an interface that is
    unknown to the cluster.

    The fixes: fence the ghost first (its port, its power), then clear the entry, so that the switch sends a request and
    the server answers. After clearing alone, both receive the request, and the ghost gets the entry back with its next
    packet. Or a switch that probes the old owner before it accepts a new one (Huawei's entry-check send-ack): the ghost
    never gets the entry.
    """

    tags = ("arp", "kubernetes", "switch")
    variants = (
        Variant("as-is", "fault", "the ghost speaks once a minute, each time its ARP request confirms the entry"),
        Variant("probed", "fault", "the ghost is silent; the switch's own probe asks it", {"ghost_asks_every": 0}),
        Variant("cleared", "fault", "the entry is cleared; the ghost takes it back", {"fix": "clear"}),
        Variant("fenced", "healthy", "the ghost's port is shut, then the entry is cleared", {"fix": "fence"}),
        Variant("send-ack", "healthy", "the switch asks the old owner first", {"profile": "huawei-ce-send-ack"}),
    )

    def run(self, run: Run, p: Settings) -> None:
        leaf, (client, server, ghost) = run.lab.switch("leaf"), run.nics("client", "server", "ghost")
        ip = server.address().ip

        with run.step("a node is lost, its pod's address is the server's now"):
            ghost.down()
            ghost.remove_address()
            ghost.add_address(server.address())
            run.expect("the client's WRITE", run.write(client, server), "SUCCESS")

        with run.step("the node comes back, the old pod on it still runs"):
            ghost.up()
            ghost.ping_gateway()
            if p.ghost_asks_every:
                ghost.node.spawn("ping", "-q", "-i", f"{p.ghost_asks_every:g}", str(ghost.gateway()))
            run.sleep(AGES * profile(p.profile).arp_age, "several times what an entry lives")

        if p.fix != "none":
            with run.step("the entry is cleared"):
                if p.fix == "fence":
                    leaf["e3"].down()
                leaf.clear_arp(ip=ip)
                if p.fix == "clear":
                    run.sleep(p.ghost_asks_every, "the ghost goes on")

        with run.step("the client connects anew"):
            age = next((entry["age"] for entry in leaf.tables()["arp"] if entry["ip"] == str(ip)), None)
            status = run.write(client, server)

        known = owner_of(leaf.neighbour(ip), server, ghost)
        aged, probes = (len(run.events(kind, ip=ip)) for kind in ("arp.aged", "arp.confirmed"))
        run.note(completion=status, switch_arp=known, aged=aged)
        run.expect("how often the entry aged", aged, 0)
        reached = run.observe_status(status, "the client reaches the server")
        run.expect("the switch has", known, "server's MAC" if reached else "ghost's MAC")
        if reached and p.profile == "huawei-ce-send-ack":
            answered = len(run.events("arp.ignored", ip=ip, reason="old-owner-answered"))
            run.expect("the ghost asked, the server was asked and answered", answered, lambda times: times > 0)
        if reached:
            return
        run.note(entry_age_s=age and round(age), probes_answered=probes)
        if p.ghost_asks_every:
            run.expect("the entry is as young as the ghost's last request", age, lambda s: s <= 2 * p.ghost_asks_every)
            run.expect("the switch did not have to ask", probes, 0)
        else:
            run.expect("the ghost answered the switch's probes", probes, lambda times: times >= AGES - 1)
