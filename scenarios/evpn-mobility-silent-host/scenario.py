from typing import Literal

from evpn_tables import LEAF2, LEAF3, becomes, behind, entry

from testbed import Field, Parameters, ProfileName, Run, Scenario, Variant


class Settings(Parameters):
    profile: ProfileName = Field("cumulus-3-4plus", description="profile of the three leaves")
    mac_age: float | None = Field(
        None, gt=0, description="MAC ageing of the leaves in seconds; empty: the profile's own"
    )
    announce: Literal["no", "garp"] = Field("no", description="whether the moved machine announces itself")
    port_down: bool = Field(False, description="whether the old host's port goes down")
    wait: float = Field(0.0, ge=0, description="seconds until the client connects again")


class EvpnMobilitySilentHost(Scenario[Settings]):
    """A virtual machine moves to another rack and says nothing, and the fabric sends to the old rack.

    EVPN moves a MAC when its new leaf hears it (RFC 7432, section 15): then that leaf announces it with a higher
    sequence number, and the old one withdraws it. A machine that only receives says nothing: a storage target, a rank
    that waits for a WRITE, a machine whose hypervisor sent no announcement after the migration. The old leaf keeps the
    MAC until it has aged out, 30 minutes on Cumulus Linux, and all leaves send to it. RDMA makes it worse: the machine
    gets no packet, so it sends no ACK that would teach its new leaf.

    On real gear: `show mac address-table` of the old leaf has the MAC on a port, that of all others has it behind the
    old leaf (FRR: `show evpn mac vni`, with sequence number 0). The new leaf's port counts no packet of the machine.

    The fixes: an announcement after the move (libvirt's and VMware's do send one, RARP or gratuitous ARP); the old port
    goes down, so that its MACs are flushed; MAC ageing that is shorter than the clients' patience. Any frame of the
    machine heals it.
    """

    tags = ("evpn", "fdb", "switch")
    profiled = ("leaf1", "leaf2", "leaf3")
    profile_values = ("mac_age",)
    variants = (
        Variant("as-is", "fault", "the machine is silent; the fabric sends to its old rack"),
        Variant("garp", "healthy", "it announces itself in the new rack", {"announce": "garp"}),
        Variant("port-down", "healthy", "its old port goes down", {"port_down": True}),
        Variant("aged", "healthy", "its MAC has aged out on the old leaf", {"mac_age": 60.0, "wait": 120.0}),
    )

    def run(self, run: Run, p: Settings) -> None:
        client, here, there = run.nics("client", "here", "there")
        mac = here.mac

        run.expect("the machine in rack 2 knows its gateway", here.ping_gateway(), True)
        run.expect_write("the client in rack 1 works with it", client, here)
        run.expect("leaf1 has it behind leaf2", becomes(run, mac, LEAF2), True)

        with run.step("the machine moves to rack 3, with its MAC and its address"):
            there.set_mac(mac)
            there.add_address(here.remove_address())  # beside its own
            run.silence(there)  # a machine keeps what it knew
            there.set_neighbour(client.address().ip, client.mac)
            there.add_rdma("there-eth1")
            if p.announce == "garp":
                there.announce()
            if p.port_down:
                run.lab.switch("leaf2")["e1"].down()
            run.sleep(p.wait or 1, "the machine is silent")

        with run.step("the client connects to the machine"):
            before = ", ".join(behind(run, mac)) or "nowhere"
            astray = here.capture("udp port 4791")
            status = run.write(client, there)

        lost, number = len(astray.roce(to=mac)), entry(run, "leaf1", mac).get("sequence")
        run.note(completion=status, leaf1_sent_to=before, frames_to_old_host=lost, sequence=number)
        if run.observe_status(status, "the machine is reached in its new rack"):
            run.expect("leaf1 sent to", before, LEAF3 if p.announce == "garp" else "nowhere")
            run.expect("leaf1 has it behind leaf3 now", becomes(run, mac, LEAF3), True)
            return
        run.expect("leaf1 still has it behind leaf2", (before, behind(run, mac)), (LEAF2, [LEAF2]))
        run.expect("as EVPN has it, it has never moved", number, 0)
        run.expect("the frames went to the old host", lost, lambda frames: frames >= 4)
        run.expect("its gateway answers the machine", there.ping_gateway(), True)
        run.expect("once it spoke, leaf1 has it behind leaf3", becomes(run, mac, LEAF3), True)
        run.expect("by its first move", entry(run, "leaf1", mac).get("sequence"), 1)
        run.expect("and it is reached", run.write(client, there), "SUCCESS")
