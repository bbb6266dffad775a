from typing import Literal

from testbed import Field, Parameters, ProfileName, Run, Scenario, Variant


class Settings(Parameters):
    profile: ProfileName = Field("cisco-nxos", description="ARP and FDB profile of the leaf switch")
    silence: float = Field(1.0, gt=0, description="seconds between the move and the client's next connection")
    fix: Literal["none", "announce", "port-down"] = Field("none", description="announce it, or its old port goes down")


class MacMove(Scenario[Settings]):
    """A virtual machine moves with its MAC, and the switch sends to the old port.

    The machine's NIC is a virtual function, and that of its new node gets the same MAC and address. ARP stays right.
    The MAC table is wrong: it has the old node's port until the machine sends something or the MAC ages out, 5 or 30
    minutes later. An RDMA server sends nothing until a packet reaches it, and none does. Hypervisors announce a moved
    machine by RARP (QEMU's announce-self), but only on NICs that they emulate. With a passed-through virtual function
    the guest has to announce itself, but it does not notice its move. A moved cable does not show this failure: the old
    port goes down, and the switch deletes the port's MACs.

    On real gear: `show mac address-table address` has the old port; `show ip arp` is right; the old node's port sends
    frames that no interface there takes. RETRY_EXC_ERR on clients, until a ping from inside the machine.

    The fixes: the machine announces itself after the move (a gratuitous ARP from inside it, RARP by the hypervisor); or
    wait until the MAC has aged out: then its frames are flooded, and the switch learns from its first answer.
    """

    tags = ("fdb", "host", "switch")
    variants = (
        Variant("as-is", "fault", "the machine is silent on its new node; the switch has the old port"),
        Variant("announced", "healthy", "it announces itself after the move", {"fix": "announce"}),
        Variant("port-down", "healthy", "the old node goes away with its port", {"fix": "port-down"}),
        Variant("aged", "healthy", "Arista ages the MAC out after 300 s", {"profile": "arista-eos", "silence": 400}),
    )

    def run(self, run: Run, p: Settings) -> None:
        leaf, (client, node1, node2) = run.lab.switch("leaf"), run.nics("client", "node1", "node2")
        ip, mac = node1.address().ip, node1.mac

        run.expect_write("the client works with the virtual machine on node 1", client, node1)
        run.expect("the switch's port for the MAC", leaf.fdb_table().get(mac), "e2")

        with run.step("the machine moves to node 2, with its MAC and its address"):
            node2.set_mac(mac)
            node2.add_address(node1.remove_address())  # beside its own
            run.silence(node2)  # a machine keeps what it knew
            node2.add_rdma("node2-eth1")
            if p.fix == "announce":
                node2.announce()
            elif p.fix == "port-down":
                node1.down()
            run.sleep(p.silence, "the machine is silent")

        with run.step("the client connects to the machine"):
            port, known = leaf.fdb_table().get(mac, "none"), leaf.neighbour(ip)
            captured = leaf["e2"].capture("udp port 4791")
            status = run.write(client, node2)

        astray = len(captured.roce(to=mac))
        later = leaf.fdb_table().get(mac, "none")
        run.note(completion=status, port_of_mac=port, frames_to_old_port=astray, port_afterwards=later)
        run.expect("the switch has the machine's MAC in ARP", known, mac)
        if run.observe_status(status, "the client reaches the machine on node 2"):
            run.expect("the port the switch had before", port, "e3" if p.fix == "announce" else "none")
            run.expect("the port it has now", later, "e3")
        else:
            run.expect("the switch has the MAC on the old port", (port, later), ("e2", "e2"))
            run.expect("the frames went there", astray, lambda frames: frames >= 4)
            run.expect("the machine's gateway answers", node2.ping_gateway(), True)
            run.expect("once the machine spoke, it is reached", run.write(client, node2), "SUCCESS")
