"""See the docstring of StaleNeighbourOnPeer, or `testbed describe stale-neighbour-on-peer`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from testbed import Parameters, Run, Scenario, Variant
from testbed.lab import Host

IDLE_S = 60.0
"""Longer than the kernel's reachable time of 15 to 45 s: the entry is STALE then."""
PAUSE_S, LONGEST_PAUSE_S = 0.5, 300.0


class Settings(Parameters):
    client: Literal["soft", "card"] = Field(
        "soft", description="soft: soft-RoCE, whose packets make the kernel verify; card: a hardware NIC, whose do not"
    )
    announce: bool = Field(False, description="whether the new owner announces itself by gratuitous ARP")
    retry_for: float = Field(30.0, ge=0, description="seconds for which the client connects anew")


class StaleNeighbourOnPeer(Scenario):
    """
    An address gets another owner in the same subnet, and it is the peer that keeps the old MAC, not the switch.

    No gateway is between them: two pods of one bridge or macvlan network, two GPUs of one rail. The client's kernel has
    a neighbour entry for the address, STALE for long, and STALE is good enough: RoCE takes the MAC without a question.
    What happens then depends on who sends. IP packets make the kernel verify the entry: 5 s in DELAY, three unicast
    requests to the old MAC a second apart in PROBE, then FAILED, and the next connection asks everybody. That is an
    outage of 8 to 11 s, and soft-RoCE, whose packets are IP packets to the kernel, has it. A hardware NIC sends past
    the kernel: nobody verifies, each new queue pair gets the dead MAC again, and it stays so until something else
    speaks IP to the address (a rail that only carries RoCE has nothing else) or the new owner is heard.

    On real gear: `ip neigh show` on the client has the old MAC; the switch's tables are right; other clients work.
    Reports of the bridge plugin tell of these seconds after each restart of a pod (containernetworking/plugins #756,
    #858).

    The cure: the new owner announces itself after its start, when its port forwards; three times, a gratuitous ARP may
    be lost. A client that has an entry takes it from that, without any setting. By hand: `ip neigh flush`.
    """

    title = "The peer's own neighbour entry is stale, not the switch's"
    tags = ("arp", "host", "kubernetes")
    parameters = Settings
    variants = (
        Variant("as-is", "fault", "the kernel verifies the entry of soft-RoCE; the outage is 8 to 11 s"),
        Variant(
            "hardware", "fault", "nothing verifies it for a NIC; 20 minutes", {"client": "card", "retry_for": 1200}
        ),
        Variant("announced", "healthy", "the new owner announces itself", {"announce": True}),
        Variant("announced-hardware", "healthy", "it helps a NIC as well", {"announce": True, "client": "card"}),
    )

    def run(self, run: Run, p: Settings) -> None:
        client, old, new = (run.lab.host(name) for name in (p.client, "old", "new"))
        ip = old.addresses["eth1"].ip
        owners = {old.macs["eth1"]: "old owner's MAC", new.macs["eth1"]: "new owner's MAC"}

        with run.step("the client works with the old owner, then both are idle"):
            run.expect("the first WRITE", run.write(client, old), "SUCCESS")
            run.expect("the new owner knows the client", new.ping(str(client.addresses["eth1"].ip), within=1), True)
            run.sleep(IDLE_S, "nobody sends anything")
            # For a NIC's packets the kernel has no entry to verify; rxe's leave theirs in DELAY, for ever here.
            not_fresh = "STALE" if p.client == "soft" else "DELAY"
            run.expect("the client's entry is not confirmed any more", client.neighbour_state("eth1", ip), not_fresh)

        with run.step("the address gets a new owner"):
            new.add_address("eth1", old.remove_address("eth1"))  # beside its own
            if p.announce:
                new.announce("eth1")
                run.sleep(1, "the client hears the announcement")

        with run.step("the client connects anew, until it works"):
            known = owners.get(client.neighbour("eth1", ip) or "", "no entry")
            began = run.log.now
            statuses, states = self.connect(run, client, new, p)
            outage_s = round((run.log.now - began) / 1e9, 1)

        run.note(first_completion=statuses[0], client_arp=known, tries=len(statuses))
        if statuses[0] == "SUCCESS":
            run.observe("healthy", "the first connection works")
            run.expect("the client has the new owner's MAC", known, "new owner's MAC")
            return
        run.expect("it dies of unanswered retries", statuses[0], "RETRY_EXC_ERR")
        run.expect("the client has the old owner's MAC", known, "old owner's MAC")
        if p.client == "soft":
            run.observe("fault", f"the client is cut off for {outage_s:g} s")
            run.note(outage_s=outage_s, neighbour_states=" ".join(states))
            run.expect("the last connection works", statuses[-1], "SUCCESS")
            run.expect("the outage", outage_s, lambda seconds: 8 <= seconds <= 11)
            run.expect("the entry was verified", states, ["STALE", "DELAY", "PROBE", "FAILED"])
        else:
            run.observe("fault", f"the client is still cut off after {outage_s:g} s")
            run.expect("no connection works", set(statuses), {"RETRY_EXC_ERR"})
            run.expect("the entry was not verified", states, ["DELAY"])
            run.expect("it is still the old one", client.neighbour("eth1", ip), old.macs["eth1"])

    def connect(self, run: Run, client: Host, new: Host, p: Settings) -> tuple[list[str], list[str]]:
        """How each try ended, and the states that the client's entry was in meanwhile."""
        ends, pause = run.log.now + p.retry_for * 1e9, PAUSE_S
        statuses: list[str] = []
        states: list[str] = []
        while True:
            state = str(client.neighbour_state("eth1", new.addresses["eth1"].ip))
            if state not in states:
                states.append(state)
            statuses.append(run.write(client, new))
            if statuses[-1] == "SUCCESS" or run.log.now >= ends:
                return statuses, states
            run.sleep(pause, "the client waits before it connects again")
            if p.client == "card":  # for long, with less and less hope
                pause = min(2 * pause, LONGEST_PAUSE_S)
