from typing import Literal

from testbed import Field, Parameters, Run, Scenario, Variant, owner_of


class Settings(Parameters):
    client: Literal["soft", "hardware"] = Field("soft", description="the client's NIC: soft-RoCE, or hardware")
    announce: bool = Field(False, description="whether the new owner announces itself by gratuitous ARP")
    retry_for: float = Field(30.0, ge=0, description="seconds for which the client connects anew")


class StaleNeighbourOnPeer(Scenario[Settings]):
    """An address gets a new owner in its subnet, and the peer, not the switch, keeps the old MAC.

    No gateway is between them: two pods of one bridge or macvlan network, two GPUs of one rail. The client's kernel has
    a neighbour entry for the address that has long been STALE, and RoCE uses the MAC of a STALE entry. The result
    depends on the sender. IP packets make the kernel verify the entry: 5 s in DELAY, three unicast requests to the old
    MAC a second apart in PROBE, then FAILED, and the next connection sends a broadcast request: an outage of 8 to 11 s.
    soft-RoCE has this outage, because the kernel sends its packets. A hardware NIC bypasses the kernel: each new queue
    pair gets the dead MAC again, until another program sends IP to the address (not on a rail with only RoCE) or the
    new owner announces itself.

    On real gear: `ip neigh show` on the client has the old MAC; the switch's tables are right; other clients work.
    Users of the bridge plugin report these seconds after each restart of a pod (containernetworking/plugins #756,
    #858).

    The fix: the new owner announces itself after its start, when its port forwards; three times, because a gratuitous
    ARP may be lost. A client with an entry updates it from the announcement, without any setting. By hand: `ip neigh
    flush`.
    """

    tags = ("arp", "host", "kubernetes")
    variants = (
        Variant("as-is", "fault", "the kernel verifies the entry of soft-RoCE; the outage is 8 to 11 s"),
        Variant("hardware", "fault", "nothing verifies it for a NIC", {"client": "hardware", "retry_for": 1200}),
        Variant("announced", "healthy", "the new owner announces itself", {"announce": True}),
        Variant("announced-hardware", "healthy", "it helps a NIC as well", {"announce": True, "client": "hardware"}),
    )

    def run(self, run: Run, p: Settings) -> None:
        client, old, new = run.nics(p.client, "old", "new")
        ip, soft = old.address().ip, p.client == "soft"

        run.expect_write("the client works with the old owner, then both are idle", client, old)
        run.expect("the new owner knows the client", new.node.ping(client.address().ip, within=1), True)
        run.sleep(60, "nobody sends anything")  # longer than the kernel's reachable time of 15 to 45 s
        # For a NIC's packets the kernel has no entry to verify; rxe's leave theirs in DELAY, for ever here.
        not_fresh = "STALE" if soft else "DELAY"
        run.expect("the client's entry is not confirmed any more", client.neighbour_state(ip), not_fresh)

        with run.step("the address gets a new owner"):
            new.add_address(old.remove_address())  # beside its own
            if p.announce:
                new.announce()
                run.sleep(1, "the client hears the announcement")

        with run.step("the client connects anew, until it works"):
            known, began = owner_of(client.neighbour(ip), old, new), run.now
            states: dict[str, None] = {}

            def attempt() -> str:
                states[str(client.neighbour_state(ip))] = None
                return run.write(client, new)

            statuses = run.tries(attempt, p.retry_for, pause=0.5, longest=None if soft else 300)
            outage_s = round(run.now - began, 1)

        run.note(first_completion=statuses[0], client_arp=known, tries=len(statuses))
        if statuses[0] == "SUCCESS":
            run.observe("healthy", "the first connection works")
            run.expect("the client has", known, "new's MAC")
            return
        run.expect("it dies of unanswered retries", statuses[0], "RETRY_EXC_ERR")
        run.expect("the client has", known, "old's MAC")
        if soft:
            run.observe("fault", f"the client is cut off for {outage_s:g} s")
            run.note(outage_s=outage_s, neighbour_states=" ".join(states))
            run.expect("the last connection works", statuses[-1], "SUCCESS")
            run.expect("the outage", outage_s, lambda seconds: 8 <= seconds <= 11)
            run.expect("the entry was verified", list(states), ["STALE", "DELAY", "PROBE", "FAILED"])
        else:
            run.observe("fault", f"the client is still cut off after {outage_s:g} s")
            run.expect("no connection works", set(statuses), {"RETRY_EXC_ERR"})
            run.expect("the entry was not verified", list(states), ["DELAY"])
            run.expect("it is still the old one", client.neighbour(ip), old.mac)
