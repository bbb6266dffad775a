import json
from pathlib import Path
from typing import Any

from testbed import Field, Parameters, Run, Scenario, Variant

NETWORK = Path(__file__).with_name("vf.conflist")
NICS = "eth1", "eth2"


class Settings(Parameters):
    all_addresses: bool = Field(False, description="whether an interface announces all addresses of its pod")
    mac_late: bool = Field(False, description="whether an interface gets its MAC after the announcement")


class AnnounceWrongMac(Scenario[Settings]):
    """A plugin announces a restarted pod's address with a MAC that is not its NIC's, and the switch believes it.

    An announcement corrects the switch's entry for an address. But a plugin may announce all addresses of the pod on
    each interface that it adds: then it announces the first NIC's address with the second NIC's MAC. The last
    announcement counts, and in a flat network the switch receives both. Packets for the first NIC then arrive at the
    second, and its RDMA device has no such queue pair. Or the plugin announces, and its next step changes the
    interface's MAC (podMACPrefix derives it from the address). The switch then has the VF's old MAC, which no interface
    has any more, instead of the earlier and now again correct MAC. To announce nothing would have been right.

    At the first start nothing is wrong: most switches do not create an entry from an announcement, but send a request.
    The restarted pod is silent: the kernel announces nothing for its VFs. It knows its gateway, so it does not send the
    ARP request that would correct the switch. NICs answer ARP for their own addresses only (arp_ignore), so that this
    is not the failure of `two-rails-one-subnet`.

    On real gear: after a restart the switch's ARP table has one MAC for two addresses of a pod, or one that no
    interface has (`ip -br link` in the pod). One `arping -U` from the pod's NIC ends the outage.

    The fix: announce only the addresses of the interface, after the last step that changes its MAC.
    """

    tags = ("arp", "cni", "kubernetes")
    variants = (
        Variant("as-is", "fault", "each interface announces all addresses of the pod", {"all_addresses": True}),
        Variant("mac-late", "fault", "the interface gets another MAC behind the announcement", {"mac_late": True}),
        Variant("fixed", "healthy", "an interface announces its own address with its last MAC"),
    )

    def run(self, run: Run, p: Settings) -> None:
        node, leaf = run.lab.host("node1"), run.lab.switch("leaf")
        (storage,) = run.nics("storage")
        for nic in NICS:
            for vf in vfs(nic):
                node.add_vf(vf, nic)
        before, after = ([network(vf, p) for vf in pair] for pair in zip(*map(vfs, NICS), strict=True))
        with run.step("a pod starts, and storage writes to its first NIC"):
            pod = run.lab.pods.create(node, "pod", before)
            run.expect("the first WRITE", run.write(storage, pod["eth0"]), "SUCCESS")
            ip, mac = pod["eth0"].address().ip, pod["eth0"].mac
            run.expect("the MAC that the switch has", leaf.neighbour(ip), mac)

        with run.step("the pod restarts, with other VFs"):
            pod.delete()
            pod = run.lab.pods.create(node, "pod", after)
            first, second = pod["eth0"], pod["net1"]
            run.silence(first, node["eth1"])
            run.expect("it has its address and MAC again", (first.address().ip, first.mac), (ip, mac))
            known = {first.mac: "first NIC", second.mac: "second NIC"}.get(leaf.neighbour(ip) or "", "nobody")

        with run.step("storage writes to its first NIC"):
            at_second = leaf["e3"].capture("udp port 4791")
            status = run.write(storage, first)
        run.note(write=status, switch_has=f"MAC of {known}", frames_at_the_second_nic=len(at_second.roce()))
        run.observe_status(status, "storage reaches the pod", who="storage")
        wrong = "second NIC" if p.all_addresses else "nobody" if p.mac_late else "first NIC"
        run.expect("the switch has the MAC of", known, wrong)
        run.expect("frames go to the second NIC", at_second.roce() != [], p.all_addresses)
        if status != "SUCCESS":
            with run.step("the first NIC announces itself"):
                first.announce()
                run.eventually("the MAC that the switch has", lambda: leaf.neighbour(ip), mac, within=1)
            run.expect_write("storage writes again", storage, first)


def vfs(nic: str) -> list[str]:
    return [f"{nic}v{number}" for number in (0, 1)]


def network(name: str, p: Settings) -> dict[str, Any]:
    """The conflist of a VF."""
    found: dict[str, Any] = json.loads(NETWORK.read_text())
    vf, _, coordinator, _ = found["plugins"]
    found["name"], vf["device"] = name, name
    if p.all_addresses:
        coordinator["announce"] = {"addresses": "pod"}
    if p.mac_late:
        coordinator["steps"] = ["announce", "mac", "rp_filter", "routes"]
    return found
