from typing import Literal

from testbed import Field, Parameters, Run, Scenario, Variant
from testbed.workload import Attributes, connect_pair, open_endpoint

LOSSLESS, DSCP = 3, 26
SIZE = 200_000


class Settings(Parameters):
    miss: Literal["keep", "cpu", "drop"] = Field("drop", description="what leaf1 does with packets without a next hop")
    miss_pps: int = Field(200, ge=1, le=100_000, description="cpu: packets per second that reach leaf1's CPU")
    resolved: bool = Field(False, description="whether the next hop is resolved before the burst")


class ArpMissBurst(Scenario[Settings]):
    """The first burst of a job meets a switch that has no ARP entry for its next hop: a lossless class loses packets.

    A leaf routes to its neighbour by a static route, and nobody has asked for the neighbour's MAC yet: after a reboot,
    a flush, or an entry that aged out in a pause. Two queue pairs write at once. Switches drop packets without an entry
    (NX-OS: `hardware ip glean throttle`), or send them to the CPU, which takes a few hundred per second (SONiC's CoPP
    group for neighbor_miss) and drops the rest. No pause frame and no watermark tells of it, for the packets never were
    in a queue: the receivers' NAKs do, or timeouts if the last packets of a message are among them.

    On real gear: `out_of_sequence` at the receiver while the class has no drop on any port; SONiC `show copp`
    counters, NX-OS `show ip arp statistics` and `show hardware internal forwarding … glean`, the ARP entry's age of
    some seconds.

    The fixes: next hops that are resolved before a job needs them (BGP and BFD sessions do that; SONiC's arp_update
    for static routes), or a switch that keeps such packets in the buffer of their port and pauses its host.
    """

    tags = ("arp", "lossless")
    variants = (
        Variant("as-is", "fault", "packets without an entry are dropped"),
        Variant("cpu", "fault", "200 a second reach the CPU, the others are dropped", {"miss": "cpu"}),
        Variant("kept", "healthy", "they wait in the buffer, and the hosts are paused", {"miss": "keep"}),
        Variant("resolved", "healthy", "the next hop is resolved before", {"resolved": True}),
    )

    def run(self, run: Run, p: Settings) -> None:
        workers, (receiver,) = run.nics("worker1", "worker2"), run.nics("receiver")
        leaf = run.lab.switch("leaf1")
        leaf.change_profile(miss_packets=p.miss, miss_pps=p.miss_pps)
        with run.step("two queue pairs are connected"):
            ends = []
            for worker in workers:
                here, there = open_endpoint(worker, memory=1 << 18), open_endpoint(receiver, memory=1 << 18)
                connect_pair(here, there, Attributes(timeout=18, traffic_class=DSCP << 2))
                ends.append(here)
        if p.resolved:
            with run.step("the leaf resolves its next hop"):
                run.expect("a ping", run.lab["worker1"].ping(receiver.address().ip, within=2), True)
        with run.step(f"both write {SIZE} bytes at once"):
            posted = [(end, end.post_write(SIZE)) for end in ends]
            done = [end.wait(request, within=60) for end, request in posted]

        ports = [leaf[name].lossless.counters() for name in ("e1", "e2")]
        missed = sum(counters[f"miss_dropped:{LOSSLESS}"] for counters in ports)
        queues = [port.lossless.queue(LOSSLESS) for node in run.lab.switches() for port in node.interfaces.values()]
        again = sum(nic.lossless.queue(LOSSLESS).sent_packets for nic in workers) - 2 * -(-SIZE // 1024)
        gaps = receiver.rdma_counters()["out_of_sequence"]
        run.note(seconds=round(max(one.elapsed_s for one in done), 3), dropped_without_entry=missed, gaps=gaps)
        run.note(
            sent_again=again, paused_ms=[round(worker.lossless.paused_ns(LOSSLESS) / 1e6, 1) for worker in workers]
        )
        run.expect("all WRITEs arrive", {one.status for one in done}, {"SUCCESS"})
        run.expect("no queue drops a packet", sum(queue.dropped_packets for queue in queues), 0)
        if missed or again:
            run.observe("fault", f"{missed} packets of a lossless class are lost, {again} are sent again")
            run.expect("the receiver misses packets", gaps, lambda count: count > 0)
        else:
            run.observe("healthy", "each packet is sent once")
            run.expect("and arrives in order", gaps, 0)
