from testbed import Field, Parameters, Run, Scenario, Variant
from testbed.faults import SwitchReboot
from testbed.workload import Attributes


class Settings(Parameters):
    reboot: float = Field(90.0, gt=0, description="seconds that the switch is away")
    retry_cnt: int = Field(3, ge=0, le=7, description="the QP's retries; 7 is for ever on soft-RoCE")
    reconnect: bool = Field(False, description="whether the client makes a new connection when the old one died")


class SwitchRebootUnderLoad(Scenario[Settings]):
    """A switch reboots under traffic and loses its ARP and MAC tables.

    Connections survive if they retry for longer than the reboot, but none does by default: with timeout 14 and 3
    retries it is 0.27 s. When the switch is back its tables are empty. The first packet for the server causes an ARP
    request, the silent server answers, and the switch forwards again; so a connection that still retries continues.

    On real gear: the NICs' link_downed counters, RETRY_EXC_ERR in the job, and after the reboot an ARP table that fills
    as hosts get packets. If a switch drops packets instead of sending requests (SONiC's neighbor miss limits these to
    200 a second), large racks come back slowly.

    The fixes: restart the jobs, or have them reconnect; a second leaf (dual-homed NICs); drain the rack before
    maintenance.
    """

    tags = ("arp", "fdb", "switch")
    variants = (
        Variant("as-is", "fault", "the connection gives up long before the switch is back"),
        Variant("reconnect", "healthy", "the client makes a new connection until one works", {"reconnect": True}),
        Variant("for-ever", "healthy", "the queue pair retries for ever and goes on", {"retry_cnt": 7}),
    )

    def run(self, run: Run, p: Settings) -> None:
        leaf, (client, server) = run.lab.switch("leaf"), run.nics("client", "server")
        connection = run.connect("a connection works", client, server, Attributes(retry_cnt=p.retry_cnt))

        with run.step("the switch reboots, and the client writes"):
            began = run.now
            run.inject(SwitchReboot(switch="leaf"), lasting=p.reboot, may_outlast_run=True)
            run.expect("the switch has lost its ARP table", leaf.arp_table(), {})
            status = died = connection.write().status
            after_s = round(run.now - began, 1)
        connection.close()

        if p.reconnect:
            with run.step("the client connects anew, until it works"):
                *_, status = run.tries(lambda: run.write(client, server), within=600, pause=5)
                after_s = round(run.now - began, 1)

        run.note(first_connection=died, completion=status, after_s=after_s)
        if run.observe_status(status, "the client reaches the server again"):
            run.expect("the switch was back", after_s, lambda seconds: seconds >= p.reboot)
            run.expect("the switch knows the server again", leaf.neighbour(server.address().ip), server.mac)
        else:
            run.expect("the switch was still away", after_s, lambda seconds: seconds < p.reboot)
