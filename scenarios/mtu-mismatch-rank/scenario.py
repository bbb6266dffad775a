from pathlib import Path

from testbed import Field, Parameters, Run, Scenario, Variant
from testbed.faults import LinkMtu
from testbed.workload import mpirun

PROGRAM = Path(__file__).with_name("train.py")
SMALL, LARGE = 256, 200_000
GRADIENTS = [SMALL, SMALL, LARGE, LARGE]
"""Bytes of each step: a job begins with small ones."""
ALGORITHM = {"coll_tuned_use_dynamic_rules": "1", "coll_tuned_allreduce_algorithm": "3"}
"""Recursive doubling: ranks 0 and 1 exchange their gradients, 2 and 3, and then the pairs."""
JOB_S = 120.0


class Settings(Parameters):
    port_mtu: int = Field(1000, ge=576, le=1500, description="MTU of the last rank's switch port; the NICs' is 1500")


class MtuMismatchRank(Scenario[Settings]):
    """One rank's port takes smaller packets than the others: the job connects, and dies in its first large collective.

    The fabric changed to jumbo frames, and one port, of a replaced node, kept its default. Ranks connect, and the
    barrier and the first small collectives pass, because all their packets are small. Then the first gradient of more
    than a packet goes to that rank, or comes from it, and the switch drops it. RoCE has no path MTU discovery: a
    bridging switch sends no ICMP, and a NIC would ignore it. All ranks wait in the same Allreduce until one of the
    senders has used up its retries; with retries for ever the job hangs.

    On real gear: *transport retry counter exceeded* in the first step, after a start that looked sound; the same job
    without this node works. The port counts giants or MTU drops (`show interface counters errors`). `ping -M do -s
    8972` from each node to the next finds it, and so do the packet sizes: the port has no packets above its MTU
    (`ethtool -S`: rx_1024_to_1518_bytes_phy).

    The fix: one MTU on all ports of the fabric, above that of the NICs, and a check of it before a node joins. (Here
    the switch bridges: behind a router soft-RoCE obeys ICMP and ends with WR_FLUSH_ERR at once.)
    """

    tags = ("training", "link", "mtu")
    variants = (
        Variant("as-is", "fault", "the port of rank 3 takes 1000 bytes, a full packet has 1084"),
        Variant("port-mtu", "healthy", "it takes what the NICs send", {"port_mtu": 1500}),
    )

    def run(self, run: Run, p: Settings) -> None:
        hosts = [run.lab.host(f"n{number}") for number in range(4)]
        captures = [
            run.lab.interface(f"leaf:e{number}").capture("udp port 4791 and greater 900") for number in range(4)
        ]
        if p.port_mtu < run.lab.interface("leaf:e3").mtu:
            run.inject(LinkMtu(end="leaf:e3", mtu=p.port_mtu))

        with run.step("the job trains"):
            job = mpirun(
                run.lab, hosts, PROGRAM, *map(str, GRADIENTS), launcher=run.lab.host("launcher"), mca=ALGORITHM
            )
            failure = job.wait(JOB_S)

        to_hosts = [len(capture.roce(to=host["eth1"].mac)) for capture, host in zip(captures, hosts, strict=True)]
        done = [[call.bytes for call in job.calls(rank, "Allreduce") if call.ended] for rank in range(4)]
        run.note(large_packets_to_ranks=to_hosts, steps_done=[len(sizes) for sizes in done])
        if failure is None:
            run.observe("healthy", "all ranks train to the end")
            run.expect("every rank did every step", done, [GRADIENTS] * 4)
            return
        run.observe("fault", f"the job dies: {failure}")
        run.expect("it dies of unanswered retries", failure.status, "RETRY_EXC_ERR")
        run.expect("the small steps were done, and no large one", done, [[SMALL, SMALL]] * 4)
        run.expect("large packets went to", [count > 0 for count in to_hosts], [True, True, True, False])
