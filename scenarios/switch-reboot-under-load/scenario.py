"""See the docstring of SwitchRebootUnderLoad, or `testbed describe switch-reboot-under-load`."""

from __future__ import annotations

from pydantic import Field

from testbed import Parameters, Run, Scenario, Variant
from testbed.faults import SwitchReboot
from testbed.workload.attributes import Attributes
from testbed.workload.verbs import connect_pair

MESSAGE = 4096
LAST_S = 600.0


class Settings(Parameters):
    reboot: float = Field(90.0, gt=0, description="seconds that the switch is away")
    retry_cnt: int = Field(3, ge=0, le=7, description="the QP's retries; 7 is for ever on soft-RoCE")
    reconnect: bool = Field(False, description="whether the client makes a new connection when the old one died")


class SwitchRebootUnderLoad(Scenario):
    """
    The switch reboots under traffic: its ports go down, its ARP and MAC tables are lost.

    Connections live through it if they retry for longer than the reboot takes, which none does by default: with timeout
    14 and 3 retries it is 0.27 s. When the switch is back it knows nobody. The first packet for the server makes it
    ask, the silent server answers, and from then on it forwards; so a connection that has waited goes on.

    On real gear: the NICs' link_downed counters, RETRY_EXC_ERR in the job, and after the reboot an ARP table that fills
    as hosts are talked to. A switch that drops instead of asking (SONiC's neighbor miss limits it to 200 a second)
    makes large racks come back slowly.

    The cures: jobs that are restarted, or reconnect; a second leaf (dual-homed NICs); maintenance with the rack
    drained.
    """

    title = "A switch reboots under traffic and has lost its tables"
    tags = ("arp", "fdb", "switch")
    parameters = Settings
    variants = (
        Variant("as-is", "fault", "the connection gives up long before the switch is back"),
        Variant("reconnect", "healthy", "the client makes a new connection until one works", {"reconnect": True}),
        Variant("for-ever", "healthy", "the queue pair retries for ever and goes on", {"retry_cnt": 7}),
    )

    def run(self, run: Run, p: Settings) -> None:
        leaf, client, server = run.lab.switch("leaf"), run.lab.host("client"), run.lab.host("server")
        ip, mac = str(server.addresses["eth1"].ip), server.macs["eth1"]
        attributes = Attributes(retry_cnt=p.retry_cnt)
        with run.endpoint(client, "eth1") as near, run.endpoint(server, "eth1") as far:
            with run.step("a connection works"):
                connect_pair(near, far, attributes)
                run.expect("the first WRITE", run.completed(client, near.write(MESSAGE, within=5)).status, "SUCCESS")

            with run.step("the switch reboots, and the client writes"):
                began = run.log.now
                run.inject(SwitchReboot(switch="leaf"), lasting=p.reboot, may_outlast_run=True)
                run.expect("the switch has lost its ARP table", leaf.arp_table(), {})
                died = status = run.completed(client, near.write(MESSAGE, within=LAST_S)).status
                ended = run.log.now

        if p.reconnect:
            with run.step("the client connects anew, until it works"):
                while status != "SUCCESS" and run.log.now - began < LAST_S * 1e9:
                    run.sleep(5, "the client waits before it connects again")
                    status, ended = run.write(client, server), run.log.now

        after_s = round((ended - began) / 1e9, 1)
        run.note(first_connection=died, completion=status, after_s=after_s)
        if status == "SUCCESS":
            run.observe("healthy", "the client reaches the server again")
            run.expect("the switch was back", after_s, lambda seconds: seconds >= p.reboot)
            run.expect("the switch knows the server again", leaf.arp_table().get(ip), mac)
        else:
            run.observe("fault", f"the client's work request dies of {status}")
            run.expect("it dies of unanswered retries", status, "RETRY_EXC_ERR")
            run.expect("the switch was still away", after_s, lambda seconds: seconds < p.reboot)
