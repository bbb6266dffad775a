"""See the docstring of GarpLost, or `testbed describe garp-lost`."""

from __future__ import annotations

from pydantic import Field

from testbed import Parameters, Run, Scenario, Variant
from testbed.faults import ArpDrop


class Settings(Parameters):
    lost_for: float = Field(0.5, ge=0, description="seconds for which announcements are lost; 0: none is")
    announcements: int = Field(1, ge=1, description="how often the standby announces itself, a second apart")


class GarpLost(Scenario):
    """
    An address moves to a standby, and the one gratuitous ARP that says so is lost.

    Failover of an address (keepalived, a storage target, a pod with a fixed address) hangs on one broadcast frame that
    nobody acknowledges. It is lost when the port is not forwarding yet, when a storm fills the switch's ARP queue, or
    on a link that drops. The switch sends to the old owner until its entry ages, and the old owner is gone.

    On real gear: `show ip arp` has the old MAC with an age from before the failover; a capture at the standby shows the
    announcement leaving, one at the switch's CPU does not show it.

    The cure: announce more than once (keepalived's garp_master_repeat and garp_master_refresh, arping -U -c 3), and
    have the standby send something through its gateway.
    """

    title = "The announcement of an address that moved is lost"
    tags = ("arp", "switch")
    parameters = Settings
    variants = (
        Variant("as-is", "fault", "one announcement, and it is lost"),
        Variant("not-lost", "healthy", "the same, and it arrives", {"lost_for": 0}),
        Variant("repeated", "healthy", "three announcements, of which the first is lost", {"announcements": 3}),
    )

    def run(self, run: Run, p: Settings) -> None:
        leaf = run.lab.switch("leaf")
        client, server, standby = (run.lab.host(name) for name in ("client", "server", "standby"))
        ip = server.addresses["eth1"].ip

        with run.step("the client works with the server"):
            run.expect("the first WRITE", run.write(client, server), "SUCCESS")
            gateway = str(standby.gateway("eth1"))
            run.expect("the standby knows its gateway, too", standby.ping(gateway, within=1), True)

        with run.step("the server's address moves to the standby"):
            standby.add_address("eth1", server.remove_address("eth1"))  # beside its own
            if p.lost_for:
                self.lose_announcements(run, ArpDrop(end="standby:eth1", announced=ip), p.lost_for)
            for number in range(p.announcements):
                if number:
                    run.sleep(1, "between two announcements")
                standby.announce("eth1")
            run.sleep(1, "the announcements have had their time")

        with run.step("the client connects to the address"):
            status = run.write(client, standby)

        owners = {server.macs["eth1"]: "server's MAC", standby.macs["eth1"]: "standby's MAC"}
        known = owners.get(leaf.arp_table().get(str(ip), ""), "no entry")
        run.note(completion=status, switch_arp=known)
        if p.lost_for:
            run.expect("an announcement was lost", run.evidence.get("announcements_lost"), 1)
        if status == "SUCCESS":
            run.observe("healthy", "the client reaches the standby")
            run.expect("the switch has the standby's MAC", known, "standby's MAC")
        else:
            run.observe("fault", f"the client's work request dies of {status}")
            run.expect("it dies of unanswered retries", status, "RETRY_EXC_ERR")
            run.expect("the switch still has the server's MAC", known, "server's MAC")

    def lose_announcements(self, run: Run, fault: ArpDrop, seconds: float) -> None:
        injection = run.inject(fault)

        def end() -> None:
            run.note(announcements_lost=fault.hits(run.lab))
            injection.recover()

        run.lab.after(seconds, end)
