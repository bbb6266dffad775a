from typing import Literal

from testbed import Field, IPAddress, Parameters, ProfileName, Run, Scenario, Variant, owner_of

AGED_S = 1200.0
"""Longer than a profile of Cumulus keeps an entry whose owner does not answer."""


class Settings(Parameters):
    profile: ProfileName = Field("cumulus-3-4plus", description="profile of the three leaves")
    evpn_claim: Literal["take", "keep"] | None = Field(
        None, description="what a leaf does about a host that claims an address of another leaf; empty: the profile's"
    )
    cure: Literal["none", "clear", "port-down", "wait"] = Field(
        "none", description="none; the old leaf's entry is cleared; the old owner's port goes down; it ages out"
    )


class EvpnStaleSuppression(Scenario[Settings]):
    """The fabric answers ARP requests for a pod that is gone, and the new owner's announcement changes nothing.

    In an EVPN fabric with ARP suppression a leaf answers its hosts' requests by itself, from what other leaves have
    announced (RFC 9161), and floods them no more. A pod on leaf2 is deleted, and a pod on leaf3 gets its address. leaf2
    has no reason to withdraw it: its entry lives on, and the old pod's port is up. The new pod sends a gratuitous ARP.
    leaf3 does not forward it to other leaves, which is a part of suppression. It does not learn from it either, if the
    switch is Linux with FRR: the entry of a remote address is NOARP in the kernel, and no packet changes it. So each
    host that asks gets the dead pod's MAC, from its own leaf, at once, with no packet to be seen elsewhere. RDMA to the
    address dies of unanswered retries. It is ip-reuse, for all racks at the same time.

    On real gear: `show ip arp` has the old MAC on all leaves, and says "remote" on all but one (FRR: `show evpn
    arp-cache vni`; `ip neigh`: extern_learn NOARP proto zebra). The new owner's leaf has it as remote, too, although
    the owner is on a port of its own. `arping` for the address is answered in microseconds, by a MAC that no host has.

    The fixes: clear the address on the leaf of the deleted pod; take its port down, so that the MAC is flushed and the
    route withdrawn; or a switch whose own ARP learning has precedence over what others announce (`evpn_claim`). Without
    any of them it lasts until the old leaf has asked the old owner in vain, 18 minutes on Cumulus Linux.

    Reported as FRR issues 14156, 2129, 4904 and 10468: entries of EVPN that stay with the old owner.
    """

    tags = ("arp", "evpn", "kubernetes", "switch")
    profiled = ("leaf1", "leaf2", "leaf3")
    profile_values = ("evpn_claim",)
    variants = (
        Variant("as-is", "fault", "the new owner announces itself; the fabric answers for the old one"),
        Variant("take", "healthy", "leaf3 believes its own host, and announces it", {"evpn_claim": "take"}),
        Variant("cleared", "healthy", "leaf2's entry is cleared when the pod goes", {"cure": "clear"}),
        Variant("port-down", "healthy", "the old pod's port goes down: leaf2 withdraws it", {"cure": "port-down"}),
        Variant("aged", "healthy", "18 minutes later leaf2 has asked in vain", {"cure": "wait"}),
    )

    def run(self, run: Run, p: Settings) -> None:
        leaf1, leaf3 = run.lab.switch("leaf1"), run.lab.switch("leaf3")
        client, late, old, new = run.nics("client", "late", "old", "new")
        ip = old.address().ip

        run.expect("the old owner knows its gateway", old.ping_gateway(), True)
        run.expect_write("a client in another rack works with it", client, old)
        for leaf in ("leaf1", "leaf3"):
            run.expect(f"{leaf} has it from leaf2", becomes(run, leaf, ip, "remote"), True)

        with run.step("a pod on leaf3 gets the address, and announces itself"):
            new.add_address(old.remove_address())  # beside its own
            self.heal(run, p, ip)
            new.announce()
            run.sleep(1, "EVPN takes its time")

        with run.step("a host that has never asked connects to the address"):
            late.capture("arp")  # with that at the old owner the report can say who answered
            asked, _ = old.capture("arp"), new.capture("arp")
            astray = old.capture("udp port 4791")
            status = run.write(late, new)

        asked.stop()
        heard = sum(frame.src == late.mac for frame in asked.frames())
        lost = len(astray.roce(to=old.mac))
        answer = owner_of(late.neighbour(ip), old, new)
        run.note(completion=status, answer=answer, frames_to_old_port=lost, leaf3=known(run, "leaf3", ip))
        if run.observe_status(status, "the new owner is reached", who="late"):
            run.expect("the host got the MAC of", answer, "new's MAC")
            run.expect("leaf1 has the MAC of", owner_of(leaf1.neighbour(ip), old, new), "new's MAC")
            run.expect("leaf3 has it as its own", known(run, "leaf3", ip), "resolved")
            run.expect("nothing went to the old owner's port", lost, 0)
            return
        run.expect("the host got the MAC of", answer, "old's MAC")
        run.expect("the old owner heard no request: leaf1 has answered", heard, 0)
        run.expect("leaf3 has it as remote, though the owner is its own host", known(run, "leaf3", ip), "remote")
        run.expect("with the MAC of", owner_of(leaf3.neighbour(ip), old, new), "old's MAC")
        run.expect("it has heard the claim and ignored it", bool(run.events("arp.ignored", reason="remote")), True)
        run.expect("the frames went to the old owner's port", lost, lambda frames: frames >= 4)

    def heal(self, run: Run, p: Settings, ip: IPAddress) -> None:
        """Withdraws the old owner, as the variant does it, and waits until the others know."""
        leaf2 = run.lab.switch("leaf2")
        if p.cure == "clear":
            leaf2.clear_arp(ip=str(ip))
        elif p.cure == "port-down":
            leaf2["e1"].down()
        elif p.cure == "wait":
            run.sleep(AGED_S, "leaf2 asks the old owner whether it is there")
        if p.cure != "none":
            run.expect("leaf3 does not know the address any more", becomes(run, "leaf3", ip, None), True)


def known(run: Run, leaf: str, ip: IPAddress) -> str | None:
    """The state of an address in a leaf's ARP table; None if it is not there."""
    rows = run.lab.switch(leaf).tables()["arp"]
    return next((row["state"] for row in rows if row["ip"] == str(ip)), None)


def becomes(run: Run, leaf: str, ip: IPAddress, state: str | None) -> bool:
    """Whether a leaf comes to have an address in this state."""
    return run.lab.scheduler.wait(lambda: known(run, leaf, ip) == state, 5)
