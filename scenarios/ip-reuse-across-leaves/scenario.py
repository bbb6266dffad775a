"""See the docstring of IpReuseAcrossLeaves, or `testbed describe ip-reuse-across-leaves`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from testbed import Parameters, Run, Scenario, Variant
from testbed.switch.profile import Profile, ProfileName, profile

REFRESH_S = 130.0
"""SONiC's arp_update asks every 120 s."""


class Settings(Parameters):
    profile: ProfileName = Field("cisco-nxos", description="ARP and FDB profile of both leaves")
    cure: Literal["none", "announce", "clear", "wait"] = Field(
        "none",
        description="what is done: nothing; announce the new owner by gratuitous ARP; clear the address on the old "
        "rack's leaf; wait until that leaf has refreshed its entries",
    )


class IpReuseAcrossLeaves(Scenario):
    """
    An address is used again in another rack, and the old rack's leaf still sends to the dead owner's port.

    Two racks share a VLAN that is stretched over the spine, for storage, or for pods whose addresses must not depend on
    the rack. Each leaf is a gateway of that VLAN and has an ARP table of its own. A pod in rack 1 is deleted, one in
    rack 2 gets its address and is silent. leaf2 never knew the address: it asks, and has the new MAC. leaf1 knew it,
    and has no reason to ask for 25 minutes or four hours. So whoever is routed by leaf2 reaches the new pod, and
    whoever is routed by leaf1 does not: half of a job fails.

    On real gear: `show ip arp` for the address differs between the leaves; on the old one `show mac address-table` has
    the old MAC on a port of the rack, where the counters of sent packets grow and nothing comes back. ping works from
    rack 2 and fails from rack 1. Fabrics that make a host route of each ARP entry have the same fault in another dress:
    the old leaf announces its /32 and draws the fabric's traffic, or its share by ECMP, until its entry goes. (The
    lab's switches speak no routing protocol, so it is the stretched VLAN that is shown.)

    The cures: the new owner announces itself, and the announcement, a broadcast, reaches every leaf of the VLAN; the
    orchestrator clears the address on the leaf of a pod that it deletes; or leaves that ask for their neighbours
    (SONiC's arp_update, every two minutes) instead of trusting the age of an entry.
    """

    title = "An IP address moves to another rack, the old rack's leaf keeps the old MAC"
    tags = ("arp", "kubernetes", "switch")
    parameters = Settings
    variants = (
        Variant("as-is", "fault", "the new owner is silent; leaf1 keeps the old MAC"),
        Variant("announced", "healthy", "the new owner announces itself; both leaves hear it", {"cure": "announce"}),
        Variant("cleared", "healthy", "the address is cleared on leaf1 when the old pod goes", {"cure": "clear"}),
        Variant(
            "arp-update",
            "healthy",
            "the leaves run SONiC; arp_update finds the new owner",
            {"cure": "wait", "profile": "sonic"},
        ),
    )

    def profiles(self, parameters: Settings) -> Mapping[str, Profile]:
        return {leaf: profile(parameters.profile) for leaf in ("leaf1", "leaf2")}

    def run(self, run: Run, p: Settings) -> None:
        leaf1, leaf2 = run.lab.switch("leaf1"), run.lab.switch("leaf2")
        client1, client2, old, new = (run.lab.host(name) for name in ("client1", "client2", "old", "new"))
        ip = old.addresses["eth1"].ip
        owners = {old.macs["eth1"]: "old owner's MAC", new.macs["eth1"]: "new owner's MAC"}

        with run.step("a client in rack 1 works with the old owner, in rack 1 too"):
            run.expect("the first WRITE", run.write(client1, old), "SUCCESS")
            run.expect("leaf1 has its MAC", leaf1.arp_table().get(str(ip)), old.macs["eth1"])
            run.expect("leaf2 does not know the address", str(ip) in leaf2.arp_table(), False)
            gateway = str(new.gateway("eth1"))
            run.expect("the host in rack 2 knows its gateway", new.ping(gateway, within=1), True)

        with run.step("a pod in rack 2 gets the address"):
            new.add_address("eth1", old.remove_address("eth1"))  # beside its own
            if p.cure == "announce":
                new.announce("eth1")
                run.sleep(1, "the leaves hear the announcement")
            elif p.cure == "clear":
                run.lab.agent.clear_arp("leaf1", ip=ip)
            elif p.cure == "wait":
                run.sleep(REFRESH_S, "the leaves ask for their neighbours")

        with run.step("clients in both racks connect to the address"):
            captured = leaf1.capture("e2", "udp port 4791")
            from_rack1, from_rack2 = run.write(client1, new), run.write(client2, new)
            captured.stop()

        known1, known2 = (owners.get(leaf.arp_table().get(str(ip), ""), "no entry") for leaf in (leaf1, leaf2))
        astray = sum(frame.roce and frame.dst == old.macs["eth1"] for frame in captured.frames())
        run.note(from_rack1=from_rack1, from_rack2=from_rack2, leaf1_arp=known1, leaf2_arp=known2)
        run.expect("the client in rack 2 reaches the new owner", from_rack2, "SUCCESS")
        run.expect("leaf2 has the new owner's MAC", known2, "new owner's MAC")
        if from_rack1 == "SUCCESS":
            run.observe("healthy", "both racks reach the new owner")
            run.expect("leaf1 has the new owner's MAC", known1, "new owner's MAC")
            run.expect("nothing went to the old owner's port", astray, 0)
        else:
            run.observe("fault", f"rack 2 reaches the new owner, rack 1's work request dies of {from_rack1}")
            run.note(frames_to_dead_port=astray)
            run.expect("it dies of unanswered retries", from_rack1, "RETRY_EXC_ERR")
            run.expect("leaf1 still has the old owner's MAC", known1, "old owner's MAC")
            run.expect("its frames went to the old owner's port", astray, lambda frames: frames >= 4)
