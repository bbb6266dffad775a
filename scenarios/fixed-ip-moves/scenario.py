from typing import Any, Literal

from testbed import Field, Parameters, Pod, ProfileName, Run, Scenario, Variant


class Settings(Parameters):
    profile: ProfileName = Field("cisco-nxos", description="ARP and FDB profile of the leaf switch")
    owner: Literal["StatefulSet", "Deployment"] = Field("StatefulSet", description="what makes the pod")
    announce: bool = Field(False, description="whether the plugin announces the pod")
    cool_down: bool = Field(False, description="whether the IPAM gives no address again before 30 minutes")


class FixedIpMoves(Scenario[Settings]):
    """A stateful pod keeps its address on another node, and the switch keeps its old MAC.

    Clients have the address of a storage pod in their configuration, so it is fixed: the IPAM assigns a StatefulSet's
    pod its previous address again (Spiderpool, kube-ovn, Calico with annotations). The node is drained, the pod comes
    up on another one within seconds, on another VF with another MAC, and is silent. For 25 minutes the switch sends to
    a MAC that is on no port.

    The usual fix for reused addresses does not help here: a pool's cool-down has no effect on an address that must come
    back. A Deployment's pod has another address, and its clients have to learn it by DNS.

    On real gear: `show ip arp` has the MAC of the VF on the drained node, older than the pod.

    The fix: announce the pod (coordinator, sriov-cni, arp_notify of macvlan), by more than one packet.
    """

    tags = ("arp", "cni", "kubernetes")
    variants = (
        Variant("as-is", "fault", "a StatefulSet's pod moves, and nobody announces it"),
        Variant("cool-down", "fault", "the pool's cool-down does not concern it", {"cool_down": True}),
        Variant("announced", "healthy", "the plugin announces it three times", {"announce": True}),
        Variant(
            "stateless", "healthy", "a Deployment's pod has another address", {"owner": "Deployment", "cool_down": True}
        ),
    )

    def run(self, run: Run, p: Settings) -> None:
        run.lab.objects.apply("objects.yaml")
        client = run.lab.host("client")["eth1"]
        with run.step("the storage's pod serves on node1"):
            before = started(run, "node1", "storage-0", p)
            run.expect("the client reaches it", run.write(client, before["eth0"]), "SUCCESS")
        with run.step("node1 is drained"):
            before.delete()
        with run.step("the pod serves on node2"):
            name = "storage-0" if p.owner == "StatefulSet" else "storage-7d9f"
            pod = started(run, "node2", name, p)
        status = run.write(client, pod["eth0"])
        same = pod["eth0"].address().ip == before["eth0"].address().ip
        known = run.lab.switch("leaf").neighbour(pod["eth0"].address().ip)
        run.note(address="the same" if same else "another", completion=status)
        run.note(switch_arp="the pod's MAC" if known == pod["eth0"].mac else "the MAC of before")
        run.observe_status(status, "the client reaches the pod")
        run.expect("its address is fixed", same, p.owner == "StatefulSet")


def started(run: Run, node: str, name: str, p: Settings) -> Pod:
    """The pod on a VF. It has no reason to speak ARP."""
    host = run.lab.host(node)
    host.add_vf("eth1v0", "eth1")
    pod = run.lab.pods.create(host, name, [network(p)], owner=f"{p.owner}/storage")
    run.silence(pod["eth0"], host["eth1"])
    return pod


def network(p: Settings) -> dict[str, Any]:
    rest = {"policy": "cool-down", "coolDown": 1800} if p.cool_down else {}
    announcing = {"type": "coordinator", "steps": ["announce"], "announce": {"count": 3, "interval": "100ms"}}
    plugins: list[dict[str, Any]] = [{"type": "host-device", "device": "eth1v0", "ipam": {"type": "ippool", **rest}}]
    plugins += [announcing] * p.announce
    return {"cniVersion": "1.0.0", "name": "vf", "plugins": [*plugins, {"type": "rxe"}]}
