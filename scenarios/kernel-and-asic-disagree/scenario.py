"""See the docstring of KernelAndAsicDisagree, or `testbed describe kernel-and-asic-disagree`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from testbed import Parameters, Run, Scenario, Variant
from testbed.faults import ArpEntryCorrupt


class Settings(Parameters):
    cure: Literal["none", "clear", "announce"] = Field(
        "none", description="what is done: nothing; clear the switch's entry; announce the server by gratuitous ARP"
    )


class KernelAndAsicDisagree(Scenario):
    """
    The switch shows the right MAC for the server and forwards to another one.

    The control plane's table and the ASIC's disagree: an update was lost on the way, a hardware table was full, a
    restart of the daemon between them went wrong. Everything that one can ask the switch is right; the packets carry
    another MAC, and the server's NIC does not take them. SONiC's tests have the case (tests/arp/test_arp_update.py,
    kernel_asic_mac_mismatch).

    On real gear: `show arp` is right; the hardware's own view is not (`show platform ... next-hop`, `bcmcmd l3`,
    ASIC_DB on SONiC); a mirror of the server's port shows frames with a wrong destination MAC.

    The cures: clear the entry, so that it is learned and written anew. That the server announces itself does not help
    here: the MAC that the control plane has is right, so there is nothing to write.
    """

    title = "The control plane is right, the data plane is not"
    tags = ("arp", "switch")
    parameters = Settings
    variants = (
        Variant("as-is", "fault", "the ASIC has another MAC than the CPU shows"),
        Variant("announced", "fault", "the server announces itself; the CPU knows that already", {"cure": "announce"}),
        Variant("cleared", "healthy", "the entry is cleared, learned again and written again", {"cure": "clear"}),
    )

    def run(self, run: Run, p: Settings) -> None:
        leaf, client, server = run.lab.switch("leaf"), run.lab.host("client"), run.lab.host("server")
        ip = server.addresses["eth1"].ip
        fault = ArpEntryCorrupt(switch="leaf", ip=ip)
        captured = leaf.capture("e2", "udp port 4791")

        with run.step("the client works with the server"):
            run.expect("the first WRITE", run.write(client, server), "SUCCESS")

        with run.step("the ASIC gets another MAC"):
            run.inject(fault)
            if p.cure == "clear":
                run.lab.agent.clear_arp("leaf", ip=ip)
            elif p.cure == "announce":
                began = run.log.now
                server.announce("eth1")
                run.sleep(1, "the switch hears the announcement")
                (age,) = (entry["age"] for entry in leaf.tables()["arp"] if entry["ip"] == str(ip))
                run.expect("it renewed the entry", age * 1e9 <= run.log.now - began, True)

        with run.step("the client connects anew"):
            status = run.write(client, server)

        captured.stop()
        astray = sum(frame.roce and frame.dst == fault.mac for frame in captured.frames())
        shown = "right" if leaf.arp_table().get(str(ip)) == server.macs["eth1"] else "wrong"
        run.note(completion=status, arp_table_shows=shown, frames_with_wrong_mac=astray)
        run.expect("the switch shows the server's MAC", shown, "right")
        if status == "SUCCESS":
            run.observe("healthy", "the client reaches the server")
            run.expect("no frame had the wrong MAC", astray, 0)
        else:
            run.observe("fault", f"the client's work request dies of {status}")
            run.expect("it dies of unanswered retries", status, "RETRY_EXC_ERR")
            run.expect("its frames had the wrong MAC", astray, lambda frames: frames >= 4)
