from pathlib import Path

from testbed import Field, HostInterface, Parameters, Run, Scenario, Variant
from testbed.faults import NeighbourTableFull

WORKERS = ("worker1", "worker2", "worker3", "worker4")
STATISTICS = Path("/proc/net/stat/arp_cache")


class Settings(Parameters):
    gc_thresh3: int = Field(2, ge=1, description="the sysctl: entries that the kernel has room for")
    permanent: bool = Field(False, description="whether the hosts have permanent entries of each other")


class HostArpTableOverflow(Scenario[Settings]):
    """The neighbour table of the hosts' kernel is full: old connections work, new ones fail.

    A trainer and four workers are in one VLAN. The trainer is connected to the first worker when the table becomes
    full. That connection continues, because its entries exist. For the others the kernel has no room: the queue pair
    cannot be set up (ETIMEDOUT), although cables, switches and addresses are right. All network namespaces of a kernel
    share one table: the pods of a node fill it together, and a pod fails because of its neighbours. In large flat
    networks the default, 1024 entries, is too small.

    On real gear: `neighbour: arp_cache: neighbor table overflow!` in the kernel's log, `table_fulls` of `lnstat -f
    arp_cache` grows, `connect` fails with ENOBUFS or "No route to host", NCCL with "Call to ibv_modify_qp failed with
    error Connection timed out". `ip -s neigh` of the host shows nothing unusual.

    The fixes: `sysctl net.ipv4.neigh.default.gc_thresh3` above the number of all neighbours, on the node and not in the
    pod; fewer neighbours (routed pods, smaller subnets). Permanent entries have no limit.
    """

    tags = ("arp", "kubernetes")
    variants = (
        Variant("as-is", "fault", "room for fewer entries than there are"),
        Variant("fixed", "healthy", "gc_thresh3 is above the number of neighbours", {"gc_thresh3": 1024}),
        Variant("permanent", "healthy", "permanent entries, which have no limit", {"permanent": True}),
    )

    def run(self, run: Run, p: Settings) -> None:
        trainer, *workers = run.nics("trainer", *WORKERS)
        if p.permanent:
            with run.step("the hosts get permanent entries of each other"):
                for worker in workers:
                    know_each_other(trainer, worker)
        old = run.connect("the trainer works with the first worker", trainer, workers[0])
        full = table_fulls()
        with run.fault(NeighbourTableFull(gc_thresh3=p.gc_thresh3)), run.step("the trainer connects to all others"):
            statuses = {worker.node.name: run.write(trainer, worker) for worker in workers[1:]}
            run.expect("the old connection works", old.write().status, "SUCCESS")
            refused = table_fulls() - full
        run.note(**statuses, table_fulls=refused)
        if set(statuses.values()) == {"SUCCESS"}:
            run.observe("healthy", "all workers are connected")
            run.expect("the table was never full", refused, 0)
        else:
            run.observe("fault", "no new worker can be connected")
            run.expect("why", set(statuses.values()), {"ETIMEDOUT"})
            run.expect("the kernel found no room for an entry", refused, lambda times: times > 0)
            with run.step("the table has room again"):
                again = [run.write(trainer, worker) for worker in workers[1:]]
            run.expect("all are connected", set(again), {"SUCCESS"})


def know_each_other(one: HostInterface, other: HostInterface) -> None:
    for near, far in ((one, other), (other, one)):
        near.set_neighbour(far.address().ip, far.mac)


def table_fulls() -> int:
    """How often the kernel found no room for an entry of IPv4, in all network namespaces."""
    head, *cpus = STATISTICS.read_text().splitlines()
    column = head.split().index("table_fulls")
    return sum(int(line.split()[column], 16) for line in cpus)
