import json
from typing import Literal

from testbed import Field, Host, Parameters, Run, Scenario, Variant

VF, AT_BOOT, BY_HAND = "eth1v0", "node-eth1v0", "pod-eth0"
"""The virtual function; the RDMA device that the node makes on it, and the one that the pod makes."""
NO_DEVICE = "No IB devices found"


class Settings(Parameters):
    made_by: Literal["node", "pod", "plugin"] = Field("node", description="what gives the VF its RDMA device")


class NetnsMoveKillsRxe(Scenario[Settings]):
    """A VF moves into a pod, and its RDMA device is gone.

    A unit at boot runs `rdma link add` for each virtual function of a node. The CNI plugin host-device, as sriov-cni,
    gives a pod the function: it moves the network interface to the pod's namespace. The kernel unregisters an interface
    that leaves a namespace, and a soft-RoCE device ends with its interface. The pod starts, has its address and answers
    ping, and finds no RDMA device. When the pod ends, the interface comes back to the node, again without a device: the
    unit at boot does not run again.

    On real gear: the RDMA device of a hardware NIC does not end, but in exclusive mode (`rdma system`) it stays in the
    node's namespace. The pod has the same symptom: `ibv_devinfo` prints "No IB devices found", NCCL "NET/IB : No device
    found". With soft-RoCE `rdma link` on the node lacks the device, too.

    The fixes: after the plugin that moves the interface, another plugin makes the device in the pod (`rxe` here) or
    moves it there (rdma-cni). DEL calls it before the interface goes back. Or the pod makes the device itself; this
    needs privileges, and the device ends on the way back.
    """

    tags = ("cni", "kubernetes")
    variants = (
        Variant("as-is", "fault", "the node made the RDMA device at boot, host-device moves the VF"),
        Variant("made-in-pod", "healthy", "the pod makes a device on the moved VF", {"made_by": "pod"}),
        Variant("fixed", "healthy", "the plugin rxe makes it, behind host-device", {"made_by": "plugin"}),
    )

    def run(self, run: Run, p: Settings) -> None:
        client, node = run.lab.host("client")["eth1"], run.lab.host("node")
        network = "vf-rxe.conflist" if p.made_by == "plugin" else "vf.conflist"
        with run.step("the node boots"):
            node.add_vf(VF, "eth1")
            node.run("rdma", "link", "add", AT_BOOT, "type", "rxe", "netdev", VF)
            run.expect("RDMA devices on the VF", devices(node, VF), [AT_BOOT])

        with run.step("a pod gets the VF"):
            pod = run.lab.pods.create(node, "pod", [network])
            nic = pod["eth0"]
            if p.made_by == "pod":
                nic.add_rdma(BY_HAND)
            run.expect("the pod answers ping", client.node.ping(nic.address().ip, within=1), True)
            found = devices(pod, "eth0")
            run.note(pod_has=", ".join(found) or "no RDMA device")
            run.eventually("the node's device is gone", lambda: AT_BOOT in names(node), False, within=1)

        with run.step("the client writes to the pod"):
            said = pod.run("ibv_devinfo", check=False)
            if nic.rdma is None:
                run.note(ibv_devinfo=(said.stdout + said.stderr).strip())
                run.observe("fault", "the pod is up and has no RDMA device")
            else:
                status = run.write(client, nic)
                run.note(completion=status)
                run.observe_status(status, "the client reaches the pod")
        run.expect("ibv_devinfo finds none", NO_DEVICE in said.stdout + said.stderr, p.made_by == "node")

        with run.step("the pod is deleted"):
            pod.delete()
            run.expect("the VF is the node's again", VF in node.run("ip", "-br", "link").stdout, True)
            run.eventually("the pod's device is gone", lambda: set(found) & names(node), set(), within=1)
            run.expect("RDMA devices on it", devices(node, VF), [])

        with run.step("the next pod gets the VF"):
            after = run.lab.pods.create(node, "next", [network])
            run.expect("it has an RDMA device", after["eth0"].rdma is not None, p.made_by == "plugin")


def devices(host: Host, interface: str) -> list[str]:
    """The RDMA devices on an interface of a host or a pod."""
    return [link["ifname"] for link in links(host) if link.get("netdev") == interface]


def names(host: Host) -> set[str]:
    """Of all RDMA devices that the host sees: in the shared mode those of the whole lab."""
    return {link["ifname"] for link in links(host)}


def links(host: Host) -> list[dict[str, str]]:
    found: list[dict[str, str]] = json.loads(host.run("rdma", "-j", "link").stdout)
    return found
