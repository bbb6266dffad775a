import re
from collections.abc import Mapping
from ipaddress import ip_address
from typing import Literal

from testbed import Field, HostInterface, Parameters, Pod, Run, Scenario, Variant

GID = re.compile(r"GID\[\s*(\d+)\]:\s+::ffff:(\S+),")
"""Of an IPv4 address, as `ibv_devinfo -v` shows it."""
PLACEHOLDER = "192.0.2."
"""Begins addresses that stand where the table has a hole, until all are in their places. RFC 5737."""
PORT, ROUNDS = "18515", 10
"""Of ibv_rc_pingpong."""
PATIENCE_S, TIMED_OUT = "2", 124
"""What ends it, for soft-RoCE takes its seven retries as for ever; and the status of `timeout` then."""


class Settings(Parameters):
    deleted: Literal["one", "two"] = Field("two", description="the pod that ends before pod three starts its job")
    by_address: bool = Field(False, description="whether each pod looks its index up; else it is the same for all")


class GidIndex(Scenario[Settings]):
    """Pods share a NIC's GID table, each has its own place in it, and a constant index is right for the first only.

    Where pods are macvlan children of a NIC and use its RDMA device (k8s-rdma-shared-dev-plugin), the NIC's GID table
    has an entry for the NIC's address and one for each pod's, in the order in which they came. A pod that ends leaves a
    hole. The job's template has the index of the pods it was tried with, in NCCL_IB_GID_INDEX. A later pod with that
    index takes the GID of another pod: its packets have that pod's address, and the answers go there. Or the index is a
    hole, and there is no GID.

    The table of the node's device is the kernel's, the same code as with hardware. Soft-RoCE carries no traffic with a
    child's GID of that table, so the pods here have devices of their own, and decoy addresses put the entries of the
    shared table into theirs, at the same places. Linux lets a pod use a GID that is not its own; MLNX_OFED refuses
    (ENODEV).

    On real gear: `show_gids` in two pods shows other indices; NCCL ends with "Call to ibv_modify_qp failed with error
    No such device", "read failed in ncclIbRoceGetVersionNum" or "transport retry counter exceeded", in some ranks only
    (NVIDIA/nccl#718, #1573; multus-cni#1100). perftest prints a GID that is all zeros.

    The fixes: no constant; each process looks for the index of its address, as NCCL does without NCCL_IB_GID_INDEX
    (NCCL_IB_ADDR_RANGE names the subnet) and rdma_cm always. Or a virtual function for each pod, with its own table.
    """

    tags = ("cni", "kubernetes")
    variants = (
        Variant("as-is", "fault", "the template's index is another pod's in pod three"),
        Variant("hole", "fault", "the template's index is a hole, for that pod has ended", {"deleted": "one"}),
        Variant("fixed", "healthy", "each pod looks for the index of its address", {"by_address": True}),
    )

    def run(self, run: Run, p: Settings) -> None:
        node1, node2 = run.lab.host("node1"), run.lab.host("node2")
        with run.step("pods start on two nodes"):
            names = {"one": node1, "two": node1, "three": node1, "far": node2}
            pods = {name: run.lab.pods.create(node, name, ["rdma.conflist"]) for name, node in names.items()}
            tables = {node: gids(node["eth1"]) for node in (node1, node2)}
            places = {name: place(tables[pod.host], pod) for name, pod in pods.items()}
            run.note(places_in_the_nodes_tables=", ".join(f"{name} {index}" for name, index in places.items()))
            run.expect("node1's pods have a place each", len({places[name] for name in ("one", "two", "three")}), 3)
            template = places["one"]
            run.expect("the index was tried with pods one and far", places["far"], template)

        with run.step(f"pod {p.deleted} ends"):
            pods.pop(p.deleted).delete()
            tables[node1] = gids(node1["eth1"])
            run.expect("it leaves a hole in node1's table", places[p.deleted] in tables[node1], False)

        with run.step("the pods' own devices get the nodes' tables"):
            three, far = pods["three"], pods["far"]
            for pod in three, far:
                imitate(pod["eth0"], tables[pod.host])
                run.expect(f"the table of {pod}", gids(pod["eth0"]), tables[pod.host])

        with run.step("pods three and far run a job"):
            indices = {pod: places[pod.name] if p.by_address else template for pod in (three, far)}
            run.note(index_of_three=indices[three], index_of_far=indices[far])
            captured = run.lab.switch("leaf")["e1"].capture("udp port 4791")
            server = far.spawn(*pingpong(far, indices[far]))
            run.expect("far listens", run.lab.scheduler.wait(lambda: listens(far), within=5), True)
            target = str(far["eth0"].address().ip)
            done = three.run("timeout", PATIENCE_S, *pingpong(three, indices[three]), target, check=False)
            server.stop()

        nic, said = three["eth0"], (done.stdout + done.stderr).strip()
        sent_as = {str(ip_address(frame.data[26:30])) for frame in captured.roce() if frame.src == nic.mac}
        run.note(three_sends_as=", ".join(sorted(sent_as)) or "nobody")
        if f"{ROUNDS} iters" in said:
            run.observe("healthy", f"{ROUNDS} messages go to and fro")
            run.expect("three sends as itself", sent_as, {str(nic.address().ip)})
        elif done.returncode == TIMED_OUT:
            run.observe("fault", f"no message is answered in {PATIENCE_S} s")
            one = pods["one"]["eth0"]
            run.expect("three sends as pod one", sent_as, {str(one.address().ip)})
            run.expect("the answers go to pod one", len(captured.roce(to=one.mac)), lambda frames: frames > 0)
        else:
            (gid,) = re.findall(r"local address: .* GID (\S+)", said)
            run.note(gid_of_three=gid)
            run.observe("fault", f"pod three's GID is {gid}, and no connection is made")
            run.expect("it is all zeros", gid, "::")


def gids(nic: HostInterface) -> dict[int, str]:
    """The IPv4 addresses in the GID table of an interface's RDMA device, by their places."""
    shown = nic.node.run("ibv_devinfo", "-v", "-d", nic.device).stdout
    return {int(index): ip for index, ip in GID.findall(shown)}


def place(table: Mapping[int, str], pod: Pod) -> int:
    """Where a pod's address is in a GID table."""
    return next(index for index, ip in table.items() if ip == str(pod["eth0"].address().ip))


def imitate(nic: HostInterface, table: Mapping[int, str]) -> None:
    """Puts decoys beside the address of `nic`, so that its own device has `table`. The kernel gives an address the
    lowest place that is free. Nobody answers ARP for the decoys: they are of scope host."""
    node, own = nic.node, nic.remove_address()
    node.sysctl("net/ipv4/conf/all/arp_ignore", 3)
    last = max(table)
    holes = [f"{PLACEHOLDER}{index}" for index in range(1, last) if index not in table]
    for index in range(1, last):
        ip = table.get(index, f"{PLACEHOLDER}{index}")
        node.run("ip", "addr", "add", f"{ip}/32", "dev", nic.name, "scope", "host")
    nic.add_address(own)
    for ip in holes:
        node.run("ip", "addr", "del", f"{ip}/32", "dev", nic.name)


def pingpong(pod: Pod, index: int) -> list[str]:
    return ["ibv_rc_pingpong", "-d", pod["eth0"].device, "-g", str(index), "-n", str(ROUNDS)]


def listens(pod: Pod) -> bool:
    return PORT in pod.run("ss", "-ltn").stdout
