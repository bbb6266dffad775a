from typing import Literal

from testbed import Field, Parameters, Run, Scenario, Variant, owner_of
from testbed.faults import ArpEntryCorrupt


class Settings(Parameters):
    fix: Literal["none", "clear", "announce"] = Field("none", description="clear the entry, or announce the server")


class KernelAndAsicDisagree(Scenario[Settings]):
    """The switch shows the right MAC for the server and forwards to another one.

    The tables of the control plane and of the ASIC differ: an update was lost on the way, a hardware table was full, or
    the daemon between them restarted badly. The packets have a different MAC than the switch shows, and the server's
    NIC drops them. SONiC tests this case (tests/arp/test_arp_update.py, kernel_asic_mac_mismatch).

    On real gear: `show arp` is right; the hardware's own view is not (`show platform ... next-hop`, `bcmcmd l3`,
    ASIC_DB on SONiC); a mirror of the server's port shows frames with a wrong destination MAC.

    The fix: clear the entry, so that it is learned and written again. An announcement of the server does not help: the
    control plane has this MAC already and writes nothing.
    """

    tags = ("arp", "switch")
    variants = (
        Variant("as-is", "fault", "the ASIC has another MAC than the CPU shows"),
        Variant("announced", "fault", "the server announces itself; the CPU knows that already", {"fix": "announce"}),
        Variant("cleared", "healthy", "the entry is cleared, learned again and written again", {"fix": "clear"}),
    )

    def run(self, run: Run, p: Settings) -> None:
        leaf, (client, server) = run.lab.switch("leaf"), run.nics("client", "server")
        ip = server.address().ip
        fault = ArpEntryCorrupt(switch="leaf", ip=ip)
        captured = leaf["e2"].capture("udp port 4791")

        run.expect_write("the client works with the server", client, server)

        with run.step("the ASIC gets another MAC"):
            run.inject(fault)
            if p.fix == "clear":
                leaf.clear_arp(ip=ip)
            elif p.fix == "announce":
                began = run.now
                server.announce()
                run.sleep(1, "the switch hears the announcement")
                (age,) = (entry["age"] for entry in leaf.tables()["arp"] if entry["ip"] == str(ip))
                run.expect("it renewed the entry", age <= run.now - began, True)

        with run.step("the client connects anew"):
            status = run.write(client, server)

        astray = len(captured.roce(to=fault.mac))
        shown = owner_of(leaf.neighbour(ip), server)
        run.note(completion=status, arp_table_shows=shown, frames_with_wrong_mac=astray)
        run.expect("the switch shows", shown, "server's MAC")
        if run.observe_status(status, "the client reaches the server"):
            run.expect("no frame had the wrong MAC", astray, 0)
        else:
            run.expect("its frames had the wrong MAC", astray, lambda frames: frames >= 4)
