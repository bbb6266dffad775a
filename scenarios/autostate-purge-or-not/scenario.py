from collections.abc import Mapping
from itertools import pairwise
from typing import Literal

from testbed import Field, Parameters, Profile, ProfileName, Run, Scenario, Switch, Variant
from testbed.faults import LinkDown
from testbed.workload import Attributes

SWAP_S = 60
"""Seconds between the old server's end and its replacement's begin."""
ROUND_S = 130
"""Longer than the time between two rounds of SONiC's arp_update."""
FLOWS = 8


class Settings(Parameters):
    profile: ProfileName = Field("cumulus-3-4plus", description="ARP and FDB profile of the server's switches")
    known_s: float = Field(ROUND_S, gt=0, description="seconds for which the leaf knows the server before it dies")
    autostate: Literal["vlan", "bridge", "none"] | None = Field(None, description="when an SVI is down")
    second: bool = Field(False, description="whether the VLAN has a port more that is up")
    fix: Literal["none", "announce"] = Field("none", description="what the replacement does when it has booted")
    fabric: Literal["none", "subnets", "host-routes"] = Field(
        "none", description="what two leaves announce, where a server on both loses a link instead of being replaced"
    )


class AutostatePurgeOrNot(Scenario[Settings]):
    """A server's port goes down. Whether its gateway notices depends on the vendor, and on the VLAN's other ports.

    A dead server is replaced, and its replacement has its address and another MAC. Its VLAN has no other port that is
    up. With autostate (Cisco, Arista) the SVI goes down with the port and loses its ARP entries, so the gateway asks
    again and finds the new machine. Linux looks at the whole bridge and SONiC's SVI never goes down: the old entry
    stays, and packets go to a MAC that nobody has. (SONiC has its kernel probe the entries of the port. Linux does so
    only with those that no answer has confirmed, and arp_update has all confirmed after 120 s.) With one more server in
    the VLAN it is the same on Cisco's and Arista's. Huawei and H3C remove the entries of the port itself.

    In a fabric (`fabric`) the server is on two leaves, and one of its links breaks. With autostate the leaf withdraws
    the subnet. Without, or with one more server in the VLAN there, it goes on announcing it: a part of the flows ends
    in a black hole.

    On real gear: `show ip arp` has the old MAC and `show mac address-table address` nothing. `show interface vlan 20`
    says whether the SVI went down at all; `show ip route` on a spine has the subnet by both leaves.

    The fixes: the new machine announces itself; `clear ip arp`; a switch that removes entries with their port. In a
    fabric, host routes (`host_routes`, EVPN) or a link between the leaves instead of the subnet of each. Do not set `no
    autostate` on a VLAN of servers.

    Sources: those of `autostate`, `svi_carrier` and `port_down` in `testbed profile describe`. That Cisco's and
    Arista's SVIs lose their ARP entries is from memory.
    """

    tags = ("arp", "fdb", "switch", "fabric")
    profile_values = ("autostate",)
    variants = (
        Variant("as-is", "fault", "Linux: the switch has other ports, so the SVI and its entries stay"),
        Variant("sonic", "fault", "SONiC: its SVIs never go down; arp_update mends it", {"profile": "sonic"}),
        Variant(
            "sonic-unconfirmed",
            "healthy",
            "SONiC, before arp_update has asked for the server",
            {"profile": "sonic", "known_s": 10},
        ),
        Variant("cisco-nxos", "healthy", "the SVI goes down and loses its entries", {"profile": "cisco-nxos"}),
        Variant("arista-eos", "healthy", "so on Arista EOS", {"profile": "arista-eos"}),
        Variant(
            "no-autostate",
            "fault",
            "NX-OS, and somebody has switched autostate off",
            {"profile": "cisco-nxos", "autostate": "none"},
        ),
        Variant(
            "second-server",
            "fault",
            "NX-OS, and another server keeps the VLAN up",
            {"profile": "cisco-nxos", "second": True},
        ),
        Variant(
            "by-port",
            "healthy",
            "Huawei removes the port's entries, whatever else is in the VLAN",
            {"profile": "huawei-ce", "second": True},
        ),
        Variant("announced", "healthy", "Linux, and the replacement announces itself", {"fix": "announce"}),
        Variant(
            "black-hole",
            "fault",
            "a fabric of SONiC: the leaf without the server goes on announcing its subnet",
            {"profile": "sonic", "fabric": "subnets"},
        ),
        Variant(
            "withdrawn",
            "healthy",
            "a fabric of NX-OS: the leaf withdraws the subnet",
            {"profile": "cisco-nxos", "fabric": "subnets"},
        ),
        Variant(
            "not-withdrawn",
            "fault",
            "a fabric of NX-OS, and another server keeps the VLAN up",
            {"profile": "cisco-nxos", "fabric": "subnets", "second": True},
        ),
        Variant(
            "host-routes",
            "healthy",
            "the leaves announce each server, and Huawei's forgets it with its port",
            {"profile": "huawei-ce", "fabric": "host-routes", "second": True},
        ),
    )

    def topology_for(self, parameters: Settings) -> str:
        files = {"none": self.topology, "subnets": "fabric.clab.yml", "host-routes": "host-routes.clab.yml"}
        return files[parameters.fabric]

    def profiles(self, parameters: Settings) -> Mapping[str, Profile]:
        leaves = ("leaf",) if parameters.fabric == "none" else ("leaf1", "leaf2")
        return dict.fromkeys(leaves, super().profiles(parameters)["leaf"])

    def run(self, run: Run, p: Settings) -> None:
        (self.replace if p.fabric == "none" else self.lose_a_link)(run, p)

    def replace(self, run: Run, p: Settings) -> None:
        """Replace the server."""
        leaf, (client, old, new) = run.lab.switch("leaf"), run.nics("client", "old", "new")
        ip = old.address().ip
        leaf["e3"].down()
        if not p.second:
            leaf["e4"].down()
        run.expect_write("the client works with the server", client, old)
        run.sleep(p.known_s, "all is well")
        run.expect("the leaf has its MAC", leaf.neighbour(ip), old.mac)

        with run.step("the server dies, and a replacement is plugged in"):
            run.inject(LinkDown(end="leaf:e2"), may_outlast_run=True)
            run.sleep(SWAP_S, "somebody changes machines")
            down = "vlan20" in without_carrier(leaf)
            run.silence(new)
            new.add_address(old.remove_address())  # beside its own
            leaf["e3"].up()
            if p.fix == "announce":
                new.announce()
            run.sleep(1, "it has booted")

        with run.step("the client connects to the address"):
            known = leaf.neighbour(ip) or "none"
            status = run.write(client, new)

        run.note(completion=status, svi_went_down=down, arp_entry=known)
        values = self.profiles(p)["leaf"]
        run.expect("the SVI was down", down, values.autostate == "vlan" and not p.second)
        if run.observe_status(status, "the client reaches the replacement"):
            run.expect("what the leaf had for it", known, new.mac if p.fix == "announce" else "none")
            return
        run.expect("the leaf has the old MAC", known, old.mac)
        run.expect("which no port has", leaf.fdb_table().get(old.mac, "none"), "none")
        if values.arp_refresh == "daemon":
            run.sleep(ROUND_S, "SONiC asks for all its neighbours")
        else:
            leaf.clear_arp(ip=ip)
        run.expect("then the replacement is reached", run.write(client, new), "SUCCESS")

    def lose_a_link(self, run: Run, p: Settings) -> None:
        """Break a link of a server on two leaves."""
        leaf, client, server = run.lab.switch("leaf1"), run.lab.host("client")["eth1"], run.lab.host("server")["bond0"]
        if not p.second:
            leaf["e2"].down()
        flows = [Attributes(flow_label=1000 * number) for number in range(1, FLOWS + 1)]
        with run.step(f"the client connects to the server, {FLOWS} times"):
            run.lab.routing.converged(within=5)
            run.expect("ends", {run.write(client, server, flow) for flow in flows}, {"SUCCESS"})
            run.expect("the spine reaches the server by", by(run), ["d1", "d2"])

        with run.step("the server's link to leaf1 breaks"):
            run.inject(LinkDown(end="leaf1:e1"), may_outlast_run=True)
            run.lab.routing.converged(within=5)

        with run.step("the client connects again"):
            ends = [run.write(client, server, flow) for flow in flows]

        lost, uplinks = FLOWS - ends.count("SUCCESS"), by(run)
        run.note(lost_flows=f"{lost} of {FLOWS}", spine_sends_by=uplinks, svi_down="vlan20" in without_carrier(leaf))
        if not lost:
            run.observe("healthy", "all flows go by the other leaf")
            run.expect("the spine reaches the server by", uplinks, ["d2"])
            return
        run.observe("fault", f"{lost} of {FLOWS} connections die of {', '.join({*ends} - {'SUCCESS'})}")
        run.expect("they die of unanswered retries", {*ends}, {"SUCCESS", "RETRY_EXC_ERR"})
        run.expect("the spine reaches the server by", uplinks, ["d1", "d2"])


def without_carrier(switch: Switch) -> set[str]:
    return {link.name for link in switch.now().links.values() if not link.carrier}


def by(run: Run) -> list[str]:
    """Return the ports by which the spine reaches the server."""
    server = str(run.lab.host("server")["bond0"].address().ip)
    words = run.lab.switch("spine").run("ip", "route", "get", "fibmatch", server).stdout.split()
    return sorted(after for before, after in pairwise(words) if before == "dev")
