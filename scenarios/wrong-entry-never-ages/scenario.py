"""See the docstring of WrongEntryNeverAges, or `testbed describe wrong-entry-never-ages`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from testbed import Parameters, Run, Scenario, Variant
from testbed.switch.profile import Profile, ProfileName, profile

AGES = 3
"""So often the entry could have aged before the client connects."""


class Settings(Parameters):
    profile: ProfileName = Field("cisco-nxos", description="ARP and FDB profile of the leaf switch")
    ghost_asks_every: float = Field(
        60.0, ge=0, description="seconds between packets of the ghost; 0: it says hello once"
    )
    cure: Literal["none", "clear", "fence"] = Field(
        "none", description="what is done: nothing; clear the switch's entry; shut the ghost's port, then clear it"
    )


class WrongEntryNeverAges(Scenario):
    """
    The switch has a wrong MAC for the server, and waiting does not help: somebody confirms it all the time.

    A node was lost, its pods were started elsewhere with their addresses (a StatefulSet with fixed addresses, a virtual
    machine that was evacuated). Then the node comes back, and the old pod on it still runs: nobody could tell it to
    stop. What it sends brings ARP requests for its gateway, and each moves the switch's entry to it, or confirms it
    there. The new owner only speaks RoCE and says nothing. In scenario ip-reuse waiting helps, since nobody is behind
    the old MAC. Here there is: the entry is never older than the ghost's last request. A ghost that says nothing is
    enough, too: before the end of an entry the switch asks the MAC it knows, by unicast, and that one answers.

    On real gear: `show ip arp` has a MAC that is not the server's, with an age that starts again and again; the port
    behind that MAC (`show mac address-table address`) is another node's. On the node the address is on an interface
    that the cluster knows nothing of.

    The cures: fence the ghost first (its port, its power), then clear the entry, so that the switch asks and the server
    answers. Clearing alone asks both, and the ghost takes the entry back with its next packet. Or a switch that asks
    the old owner before it takes a new one (Huawei's entry-check send-ack): the ghost never gets the entry.
    """

    title = "A wrong ARP entry is confirmed for ever"
    tags = ("arp", "kubernetes", "switch")
    parameters = Settings
    variants = (
        Variant("as-is", "fault", "the ghost speaks once a minute, each time its ARP request confirms the entry"),
        Variant("probed", "fault", "the ghost is silent; the switch's own probe asks it", {"ghost_asks_every": 0}),
        Variant("cleared", "fault", "the entry is cleared; the ghost takes it back", {"cure": "clear"}),
        Variant("fenced", "healthy", "the ghost's port is shut, then the entry is cleared", {"cure": "fence"}),
        Variant(
            "send-ack", "healthy", "the switch asks the old owner before it believes", {"profile": "huawei-ce-send-ack"}
        ),
    )

    def profiles(self, parameters: Settings) -> Mapping[str, Profile]:
        return {"leaf": profile(parameters.profile)}

    def run(self, run: Run, p: Settings) -> None:
        leaf = run.lab.switch("leaf")
        client, server, ghost = (run.lab.host(name) for name in ("client", "server", "ghost"))
        address = server.addresses["eth1"]
        gateway = str(ghost.gateway("eth1"))

        with run.step("a node is lost, its pod's address is the server's now"):
            ghost.set_link("eth1", "down")
            ghost.remove_address("eth1")
            ghost.add_address("eth1", address)
            run.expect("the client's WRITE", run.write(client, server), "SUCCESS")

        with run.step("the node comes back, the old pod on it still runs"):
            ghost.set_link("eth1", "up")
            ghost.ping(gateway, within=1)
            if p.ghost_asks_every:
                ghost.spawn("ping", "-q", "-i", f"{p.ghost_asks_every:g}", gateway)
            run.sleep(AGES * profile(p.profile).arp_age, "several times what an entry lives")

        if p.cure == "fence":
            with run.step("its port is shut, and the entry is cleared"):
                leaf.set_link("e3", "down")
                run.lab.agent.clear_arp("leaf", ip=address.ip)
        elif p.cure == "clear":
            with run.step("the entry is cleared"):
                run.lab.agent.clear_arp("leaf", ip=address.ip)
                run.sleep(p.ghost_asks_every, "the ghost goes on")

        with run.step("the client connects anew"):
            age = next((row["age"] for row in leaf.tables()["arp"] if row["ip"] == str(address.ip)), None)
            status = run.write(client, server)

        owners = {server.macs["eth1"]: "server's MAC", ghost.macs["eth1"]: "ghost's MAC"}
        known = owners.get(leaf.arp_table().get(str(address.ip), ""), "no entry")
        aged = len(run.log.find("arp.aged", ip=str(address.ip)))
        probes = len(run.log.find("arp.confirmed", ip=str(address.ip)))
        run.note(completion=status, switch_arp=known, aged=aged)
        run.expect("how often the entry aged", aged, 0)
        if status == "SUCCESS":
            run.observe("healthy", "the client reaches the server")
            run.expect("the switch has the server's MAC", known, "server's MAC")
            if p.profile == "huawei-ce-send-ack":
                said = run.log.find("arp.ignored", ip=str(address.ip), reason="old-owner-answered")
                run.expect("the ghost asked, the server was asked and answered", len(said), lambda times: times > 0)
        else:
            run.observe("fault", f"the client's work request dies of {status}")
            run.expect("it dies of unanswered retries", status, "RETRY_EXC_ERR")
            run.expect("the switch has the ghost's MAC", known, "ghost's MAC")
            run.note(entry_age_s=age and round(age), probes_answered=probes)
            if p.ghost_asks_every:
                young = 2 * p.ghost_asks_every
                run.expect("the entry is as young as the ghost's last request", age, lambda seconds: seconds <= young)
                run.expect("the switch did not have to ask", probes, 0)
            else:
                run.expect("the ghost answered the switch's probes", probes, lambda times: times >= AGES - 1)
