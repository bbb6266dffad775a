import re
from collections.abc import Mapping
from ipaddress import IPv6Address, ip_address
from typing import Any, Literal

from testbed import Capture, Field, HostInterface, Parameters, Pod, Run, Scenario, Variant
from testbed.workload import Side, rping

GID = re.compile(r"GID\[\s*(\d+)\]:\s+::ffff:(\S+),")
"""Of an IPv4 address, as `ibv_devinfo -v` shows it."""
PLACEHOLDER = "192.0.2."
"""Begins addresses that stand where the table has a hole, until all are in their places. RFC 5737."""
PORT, ROUNDS = "18515", 10
"""Of ibv_rc_pingpong."""
PATIENCE_S, TIMEOUT, TIMED_OUT = "2", 124, "timed out"
"""What ends it, for soft-RoCE takes its seven retries as for ever; and the status of `timeout` then."""
SCAN = """
cd /sys/class/infiniband/$1/ports/1
for index in $(seq 0 63); do
    type=$(cat gid_attrs/types/$index) || $2
    [ "$type" = "RoCE v2" ] && [ "$(cat gids/$index)" = "$3" ] && echo $index && exit
done
exit 2
"""
"""Prints the place of GID $3 in the table of device $1; $2 is what it does where the kernel refuses to read a place."""
Choice = Literal["constant", "naive scan", "scan", "rdma_cm"]


class Settings(Parameters):
    deleted: Literal["one", "two"] = Field("two", description="the pod that ends before pod three starts its job")
    index: Choice = Field(
        "constant",
        description="constant: the same for all; scan: each pod looks for its address in the table, and passes over "
        "holes (naive scan: ends at the first); rdma_cm: the kernel does it",
    )
    master: Literal["eth1", "eth2"] = Field("eth1", description="the NIC that the pods are on; eth1 has an RDMA device")


class GidIndex(Scenario[Settings]):
    """Pods share a NIC's GID table, each has its own index in it, and a constant index is right only for the first.

    If pods are macvlan children of a NIC and use its RDMA device (k8s-rdma-shared-dev-plugin), its GID table has
    entries for the NIC's address and for each pod's, in the order of creation. A pod that ends leaves a hole. The job's
    template has the index of the pods in its first test, in NCCL_IB_GID_INDEX. A later pod with that index uses the GID
    of another pod: its packets have that pod's address, and the answers go there. Or the index is a hole, and there is
    no GID. A hole cannot be read (EINVAL): if a program searches its address and stops at the first error, it finds no
    entry after the hole. And a pod on another NIC has no entry in the table at all (wrong master).

    The table of the node's device is the kernel's, the same code as with hardware. Soft-RoCE carries no traffic with a
    child's GID of that table. So the pods here have their own devices, and decoy addresses put the entries of the
    shared table into their tables, at the same indexes. Linux lets a pod use a GID that is not its own; MLNX_OFED
    refuses (ENODEV).

    On real gear: `show_gids` in two pods shows other indices; NCCL ends with "Call to ibv_modify_qp failed with error
    No such device", "read failed in ncclIbRoceGetVersionNum" or "transport retry counter exceeded", in some ranks only
    (NVIDIA/nccl#718, #1573; multus-cni#1100). perftest prints a GID that is all zeros. A pod on the wrong NIC is not in
    `show_gids` (k8s-rdma-shared-dev-plugin#72).

    The fixes: no constant; each process looks up the index of its address, as NCCL does without NCCL_IB_GID_INDEX
    (NCCL_IB_ADDR_RANGE names the subnet) and rdma_cm always. Or a virtual function for each pod, with its own table.
    For a pod on the wrong NIC: the `master` of its conflist must be the NIC with the RDMA device that the pod requests.
    """

    tags = ("cni", "kubernetes")
    variants = (
        Variant("as-is", "fault", "the template's index is another pod's in pod three"),
        Variant("hole", "fault", "the template's index is a hole, for that pod has ended", {"deleted": "one"}),
        Variant("fixed", "healthy", "each pod looks for the index of its address", {"index": "scan"}),
        Variant("naive-scan", "fault", "each looks for it, and gives up at the first hole", {"index": "naive scan"}),
        Variant("rdma-cm", "healthy", "the same table; rdma_cm finds the GID by the address", {"index": "rdma_cm"}),
        Variant("wrong-master", "fault", "the pods are on another NIC than the RDMA device", {"master": "eth2"}),
    )

    def run(self, run: Run, p: Settings) -> None:
        if p.master == "eth2":
            self.look_for_gids(run)
        else:
            self.run_a_job(run, p)

    def look_for_gids(self, run: Run) -> None:
        """A pod on each NIC of a node looks for its address in the table of the device of eth1."""
        node = run.lab.host("node1")
        shared = node["eth1"]
        with run.step("a pod starts on each NIC"):
            pods = [run.lab.pods.create(node, f"on-{nic}", [macvlan(nic)]) for nic in ("eth1", "eth2")]
        right, wrong = (find(pod, "scan", shared.device) for pod in pods)
        run.note(table=", ".join(f"{index}: {ip}" for index, ip in gids(shared).items()))
        run.expect("the pod on eth1 has a GID", right.isdecimal(), True)
        if not wrong.isdecimal():
            run.observe("fault", f"the table of {shared.device} has no GID of the pod on eth2")

    def run_a_job(self, run: Run, p: Settings) -> None:
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
            captured = run.lab.switch("leaf")["e1"].capture("udp port 4791")
            if p.index == "rdma_cm":
                said = by_rdma_cm(run, three, far)
            else:
                found = {pod: find(pod, p.index) if "scan" in p.index else str(template) for pod in (three, far)}
                indices = {pod: index if index.isdecimal() else "none" for pod, index in found.items()}
                run.note(index_of_three=indices[three], index_of_far=indices[far])
                said = by_index(run, three, far, found) if found[three].isdecimal() else found[three]
        sent_as = {str(ip_address(frame.data[26:30])) for frame in captured.roce() if frame.src == three["eth0"].mac}
        run.note(three_sends_as=", ".join(sorted(sent_as)) or "nobody")
        self.judge(run, p, pods, captured, said, sent_as)

    def judge(
        self, run: Run, p: Settings, pods: Mapping[str, Pod], captured: Capture, said: str, sent_as: set[str]
    ) -> None:
        if f"{ROUNDS} iters" in said:
            run.observe("healthy", f"{ROUNDS} messages go to and fro")
            run.expect("three sends as itself", sent_as, {str(pods["three"]["eth0"].address().ip)})
        elif p.index == "naive scan":
            run.observe("fault", f"pod three finds no index: {said}")
            run.expect("it could not read a hole", said, lambda text: "Invalid argument" in text)
            run.expect("a scan that goes on finds it", find(pods["three"], "scan").isdecimal(), True)
        elif said == TIMED_OUT:
            run.observe("fault", f"no message is answered in {PATIENCE_S} s")
            one = pods["one"]["eth0"]
            run.expect("three sends as pod one", sent_as, {str(one.address().ip)})
            run.expect("the answers go to pod one", len(captured.roce(to=one.mac)), lambda frames: frames > 0)
        else:
            (gid,) = re.findall(r"local address: .* GID (\S+)", said)
            run.note(gid_of_three=gid)
            run.observe("fault", f"pod three's GID is {gid}, and no connection is made")
            run.expect("it is all zeros", gid, "::")


def macvlan(master: str) -> dict[str, Any]:
    """The conflist of a pod that gets no device of its own."""
    first = {"eth1": 120, "eth2": 140}[master]
    given = {"subnet": "10.0.10.0/24", "rangeStart": f"10.0.10.{first}", "gateway": "10.0.10.1"}
    plugin = {"type": "macvlan", "master": master, "ipam": {"type": "host-local", "ranges": [[given]]}}
    return {"cniVersion": "1.0.0", "name": f"on-{master}", "plugins": [plugin]}


def by_index(run: Run, three: Pod, far: Pod, indices: Mapping[Pod, str]) -> str:
    """What a job says in which each pod uses the GID with its index."""
    server = far.spawn(*pingpong(far, indices[far]))
    run.expect("far listens", run.lab.scheduler.wait(lambda: listens(far), within=5), True)
    target = str(far["eth0"].address().ip)
    done = three.run("timeout", PATIENCE_S, *pingpong(three, indices[three]), target, check=False)
    if server.running:  # else it ended with the client
        server.stop()
    return TIMED_OUT if done.returncode == TIMEOUT else (done.stdout + done.stderr).strip()


def by_rdma_cm(run: Run, three: Pod, far: Pod) -> str:
    """The same of a job in which rdma_cm finds the GIDs. The nodes' devices have them too and would come first, so they
    go: their tables are those of the pods' devices now."""
    for node in three.host, far.host:
        node.run("rdma", "link", "delete", node["eth1"].device)
    server, client = (Side.of(pod["eth0"]) for pod in (far, three))
    done = rping(server, client, run.lab.directory, count=ROUNDS, within=10, ready=run.lab.scheduler.ready)
    return done.error or f"{done.figures['pings']:.0f} iters"


def find(pod: Pod, index: Choice, device: str = "") -> str:
    """The place of a pod's address in the table of a device, its own if none is named, as a program in the pod finds
    it, or why it does not."""
    nic = pod["eth0"]
    gid = IPv6Address(f"::ffff:{nic.address().ip}").packed.hex(":", 2)
    at_error = "exit 1" if index == "naive scan" else "continue"
    done = pod.run("sh", "-c", SCAN, "sh", device or nic.device, at_error, gid, check=False)
    return done.stdout.strip() or done.stderr.strip()


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


def pingpong(pod: Pod, index: str) -> list[str]:
    return ["ibv_rc_pingpong", "-d", pod["eth0"].device, "-g", index, "-n", str(ROUNDS)]


def listens(pod: Pod) -> bool:
    return PORT in pod.run("ss", "-ltn").stdout
