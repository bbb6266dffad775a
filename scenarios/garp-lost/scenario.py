from testbed import Field, Parameters, Run, Scenario, Variant, owner_of
from testbed.faults import ArpDrop


class Settings(Parameters):
    lost_for: float = Field(0.5, ge=0, description="seconds for which announcements are lost; 0: none is")
    announcements: int = Field(1, ge=1, description="how often the standby announces itself, a second apart")


class GarpLost(Scenario[Settings]):
    """An address moves to a standby, and the only gratuitous ARP for it is lost.

    Failover of an address (keepalived, a storage target, a pod with a fixed address) depends on one broadcast frame
    that nobody acknowledges. It is lost when the port does not forward yet, when a storm fills the switch's ARP queue,
    or on a link that drops. The switch sends to the old owner until its entry ages, and the old owner is gone.

    On real gear: `show ip arp` has the old MAC with an age from before the failover. A capture at the standby shows the
    announcement, one at the switch's CPU does not.

    The fix: announce more than once (keepalived's garp_master_repeat and garp_master_refresh, arping -U -c 3), and have
    the standby send something through its gateway.
    """

    tags = ("arp", "switch")
    variants = (
        Variant("as-is", "fault", "one announcement, and it is lost"),
        Variant("not-lost", "healthy", "the same, and it arrives", {"lost_for": 0}),
        Variant("repeated", "healthy", "three announcements, of which the first is lost", {"announcements": 3}),
    )

    def run(self, run: Run, p: Settings) -> None:
        client, server, standby = run.nics("client", "server", "standby")
        ip = server.address().ip

        run.expect_write("the client works with the server", client, server)
        run.expect("the standby knows its gateway, too", standby.ping_gateway(), True)

        with run.step("the server's address moves to the standby"):
            standby.add_address(server.remove_address())  # beside its own
            if p.lost_for:
                self.lose_announcements(run, ArpDrop(end="standby:eth1", announced=ip), p.lost_for)
            for number in range(p.announcements):
                if number:
                    run.sleep(1, "between two announcements")
                standby.announce()
            run.sleep(1, "the announcements have had their time")

        with run.step("the client connects to the address"):
            status = run.write(client, standby)

        known = owner_of(run.lab.switch("leaf").neighbour(ip), server, standby)
        run.note(completion=status, switch_arp=known)
        if p.lost_for:
            run.expect("an announcement was lost", run.evidence.get("announcements_lost"), 1)
        reached = run.observe_status(status, "the client reaches the standby")
        run.expect("the switch has the MAC of", known, "standby's MAC" if reached else "server's MAC")

    def lose_announcements(self, run: Run, fault: ArpDrop, seconds: float) -> None:
        injection = run.inject(fault)

        def end() -> None:
            run.note(announcements_lost=fault.hits(run.lab))
            injection.recover()

        run.lab.scheduler.after(seconds, end)
