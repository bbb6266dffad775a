from ipaddress import ip_address

from testbed import Field, Host, Parameters, Pod, Run, Scenario, Variant

PORT, ROUNDS = "18515", 200
"""Of ibv_rc_pingpong. A round takes 10 ms, the delay of the server's link."""
HALF_S, PATIENCE_S = 1.0, 30.0
"""When the other pod ends, and how long the job has then."""
PINGPONG = ("ibv_rc_pingpong", "-e", "-g", "1", "-n", str(ROUNDS))
OPENS = "yes"


class Settings(Parameters):
    privileged: bool = Field(True, description="whether the job's pod is privileged: it has all files of devices")
    exclusive: bool = Field(False, description="whether a network namespace has its RDMA devices for itself")


class ForeignDevice(Scenario[Settings]):
    """A pod uses the first RDMA device that it finds, another pod's, and fails when that pod ends.

    In shared mode the kernel shows all RDMA devices of a node in every network namespace. Only files separate the pods:
    a container has those files of /dev/infiniband that the device plugin gave it, and libibverbs skips a device without
    its file. A privileged container, or one with the node's /dev mounted, has all of them. Many programs use the first
    device by default, and this may be a neighbour's. It works: the packets leave by the neighbour's interface, with its
    MAC and its address, and bypass the network policy and the limits of the program's own pod. The neighbour's counters
    count them. When the neighbour ends, its device is removed, and the job fails.

    Here an unprivileged pod has only the files of its own devices, as with a device plugin.

    On real gear: `rdma resource show qp` on the node has a process of one pod at the device of another; in the pod
    `ibv_devices` lists more devices than the pod has interfaces for RDMA. NCCL without NCCL_IB_HCA logs its devices in
    the line "NET/IB : Using". A virtual function does not end with its pod, but goes to the next one.

    The fixes: a device plugin instead of privileged pods or the node's /dev, so that a pod has only the files of its
    own devices. Or exclusive mode (`rdma system set netns exclusive`, before there are pods) with the CNI plugin
    rdma-cni (`rxe` here): the kernel shows and opens a device only in its own network namespace. This also holds for
    privileged pods. NCCL_IB_HCA only names the device for the moment.
    """

    tags = ("cni", "kubernetes")
    variants = (
        Variant("as-is", "fault", "shared mode, the job's pod is privileged"),
        Variant("device-files", "healthy", "shared mode, a pod has the files of its devices", {"privileged": False}),
        Variant("exclusive", "healthy", "exclusive mode, the job's pod is privileged", {"exclusive": True}),
    )

    def topology_for(self, parameters: Settings) -> str:
        return "exclusive.clab.yml" if parameters.exclusive else self.topology

    def run(self, run: Run, p: Settings) -> None:
        server, node = run.lab.host("server"), run.lab.host("node")
        with run.step("two pods start on the node"):
            neighbour = run.lab.pods.create(node, "neighbour", ["rdma.conflist"])
            job = run.lab.pods.create(node, "job", ["rdma.conflist"], privileged=p.privileged)
            owners = {pod["eth0"].device: pod.name for pod in (neighbour, job)}
            lists = [owners[device] for device in listed(job)]
            other = opened(job, neighbour)
            run.note(job_lists=", ".join(lists), opens_the_neighbour_s=other)
            run.note(in_its_sysfs=", ".join(sorted(owners[device] for device in in_sysfs(job))))

        with run.step("the job speaks with the server"):
            captured = run.lab.switch("leaf")["e2"].capture("udp port 4791")
            listener = server.spawn(*PINGPONG)
            run.expect("the server listens", run.lab.scheduler.wait(lambda: listens(server), within=5), True)
            program = job.spawn(*PINGPONG, str(server["eth1"].address().ip))
            run.sleep(HALF_S, "the job is half done")
            run.expect("it runs", program.running, True)

        with run.step("the neighbour ends"):
            neighbour_ip, own_ip = (str(pod["eth0"].address().ip) for pod in (neighbour, job))
            macs = {neighbour["eth0"].mac: neighbour.name, job["eth0"].mac: job.name}
            neighbour.delete()
            status = program.wait(PATIENCE_S)
            listener.stop()

        sent = [frame for frame in captured.roce() if frame.src in macs]
        sent_as = {str(ip_address(frame.data[26:30])) for frame in sent}
        died = status != 0
        lines = program.output.strip().splitlines()
        said = lines[0 if died else -1]  # what goes wrong comes before what it has printed in time
        run.note(sent_as=", ".join(sorted(sent_as)), job_says=said)
        if died:
            run.observe("fault", f"the job dies when its neighbour ends: {said}")
        else:
            run.observe("healthy", f"the job ends well: {said}")
        run.expect("it lists its own device only", lists == [job.name], not died)
        run.expect("it opens its neighbour's device", other == OPENS, died)
        run.expect("its packets have the address of", sent_as, {neighbour_ip if died else own_ip})
        run.expect("and the MAC of", {macs[frame.src] for frame in sent}, {(neighbour if died else job).name})


def listed(host: Host) -> list[str]:
    """The RDMA devices that libibverbs lists, in its order."""
    return [line.split()[0] for line in host.run("ibv_devices").stdout.splitlines()[2:]]


def in_sysfs(host: Host) -> list[str]:
    return host.run("ls", "/sys/class/infiniband").stdout.split()


def opened(pod: Pod, owner: Pod) -> str:
    """Whether a pod opens the file of another pod's device, or what the kernel says."""
    (file,) = (name for name in owner.run("ls", "/dev/infiniband").stdout.split() if name.startswith("uverbs"))
    said = pod.run("sh", "-c", f"exec 3</dev/infiniband/{file}", check=False).stderr
    return said.rpartition(": ")[2].strip() or OPENS


def listens(host: Host) -> bool:
    return PORT in host.run("ss", "-ltn").stdout
