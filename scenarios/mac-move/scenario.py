"""See the docstring of MacMove, or `testbed describe mac-move`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from testbed import Parameters, Run, Scenario, Variant
from testbed.switch.profile import Profile, ProfileName, profile


class Settings(Parameters):
    profile: ProfileName = Field("cisco-nxos", description="ARP and FDB profile of the leaf switch")
    silence: float = Field(1.0, gt=0, description="seconds between the move and the client's next connection")
    cure: Literal["none", "announce", "port-down"] = Field(
        "none",
        description="what is done: nothing; announce the machine on its new node; the old node's port goes down",
    )


class MacMove(Scenario):
    """
    A virtual machine moves to another node with its MAC and its address, and the switch sends to the old node's port.

    Its NIC is a virtual function, and the new node's gets the same MAC. ARP was right and stays right. What is wrong is
    the switch's MAC table, which has the MAC on the old node's port until the virtual machine sends something or the
    MAC ages out, five minutes or half an hour later. A machine that serves RDMA sends nothing until somebody reaches
    it, and nobody does. Hypervisors announce a machine that has moved, by RARP (QEMU's announce-self), but only on NICs
    that they emulate: for a virtual function that is passed through the guest has to do it, and nobody tells it.
    A cable that is moved does not show this, for the old port goes down and the switch forgets what was there.

    On real gear: `show mac address-table address` has the old port; `show ip arp` is right; the old node's port sends
    frames that no interface there takes. RETRY_EXC_ERR on clients, until a ping from inside the machine.

    The cures: the machine announces itself after the move (a gratuitous ARP from inside it, RARP by who moves it); or
    one waits until the MAC has aged: then its frames are flooded, and its first answer teaches the switch.
    """

    title = "A MAC moves to another port and stays silent"
    tags = ("fdb", "host", "switch")
    parameters = Settings
    variants = (
        Variant("as-is", "fault", "the machine is silent on its new node; the switch has the old port"),
        Variant("announced", "healthy", "it announces itself after the move", {"cure": "announce"}),
        Variant("port-down", "healthy", "the old node goes away with its port", {"cure": "port-down"}),
        Variant(
            "aged",
            "healthy",
            "the client comes back when the MAC has aged out, after Arista's 300 s",
            {"profile": "arista-eos", "silence": 400},
        ),
    )

    def profiles(self, parameters: Settings) -> Mapping[str, Profile]:
        return {"leaf": profile(parameters.profile)}

    def run(self, run: Run, p: Settings) -> None:
        leaf = run.lab.switch("leaf")
        client, node1, node2 = (run.lab.host(name) for name in ("client", "node1", "node2"))
        ip, mac = str(node1.addresses["eth1"].ip), node1.macs["eth1"]

        with run.step("the client works with the virtual machine on node 1"):
            run.expect("the first WRITE", run.write(client, node1), "SUCCESS")
            run.expect("the switch's port for the MAC", leaf.fdb_table().get(mac), "e2")

        with run.step("the machine moves to node 2, with its MAC and its address"):
            gateway = node2.gateway("eth1")
            node2.set_mac("eth1", mac)
            node2.add_address("eth1", node1.remove_address("eth1"))  # beside its own
            node2.set_neighbour("eth1", gateway, run.lab.plan.nodes["leaf"].svis[0].mac)  # a machine keeps what it knew
            run.lab.add_rdma(node2, "eth1", "node2-eth1")
            if p.cure == "announce":
                node2.announce("eth1")
            elif p.cure == "port-down":
                node1.set_link("eth1", "down")
            run.sleep(p.silence, "the machine is silent")

        with run.step("the client connects to the machine"):
            port, known = leaf.fdb_table().get(mac, "none"), leaf.arp_table().get(ip)
            captured = leaf.capture("e2", "udp port 4791")
            status = run.write(client, node2)
            captured.stop()

        astray = sum(frame.roce and frame.dst == mac for frame in captured.frames())
        later = leaf.fdb_table().get(mac, "none")
        run.note(completion=status, port_of_mac=port, frames_to_old_port=astray, port_afterwards=later)
        run.expect("the switch has the machine's MAC in ARP", known, mac)
        if status == "SUCCESS":
            run.observe("healthy", "the client reaches the machine on node 2")
            run.expect("the port the switch had before", port, "e3" if p.cure == "announce" else "none")
            run.expect("the port it has now", later, "e3")
        else:
            run.observe("fault", f"the client's work request dies of {status}")
            run.expect("it dies of unanswered retries", status, "RETRY_EXC_ERR")
            run.expect("the switch has the MAC on the old port", (port, later), ("e2", "e2"))
            run.expect("the frames went there", astray, lambda frames: frames >= 4)
            run.expect("the machine's gateway answers", node2.ping(str(gateway), within=1), True)
            run.expect("once the machine spoke, it is reached", run.write(client, node2), "SUCCESS")
