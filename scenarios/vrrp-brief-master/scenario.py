from ipaddress import ip_interface
from typing import Literal

from testbed import Field, Host, Parameters, Process, ProfileName, Run, Scenario, Variant
from testbed.faults import VrrpLost
from testbed.workload import connect_pair, open_endpoint

ADDRESS = ip_interface("10.0.10.100/24")
ROUTER, VMAC_DEVICE = 51, "vrrp.51"
VMAC = f"00:00:5e:00:01:{ROUTER:02x}"
CONFIGURATION = """\
global_defs {{
    router_id {name}
{refresh}}}
vrrp_instance storage {{
    state BACKUP
    interface eth1
    virtual_router_id {router}
    priority {priority}
    advert_int 1
{vmac}    virtual_ipaddress {{
        {address}
    }}
}}
"""


class Settings(Parameters):
    profile: ProfileName = Field("cisco-nxos", description="ARP and FDB profile of the leaf switch")
    lost: Literal["both", "owner"] = Field("both", description="whose advertisements are lost for some seconds")
    refresh: int = Field(0, ge=0, le=3600, description="garp_master_refresh in seconds; 0: none, the default")
    vmac: bool = Field(False, description="use_vmac: the address has the virtual router's MAC, on both servers")
    settle: float = Field(20.0, ge=1, description="seconds from the end of the loss to the client's next connection")


class VrrpBriefMaster(Scenario[Settings]):
    """A backup is master for a second, and the switch sends to it for 25 minutes: the owner never announces again.

    Two storage servers share an address by keepalived. For four seconds their VRRP advertisements do not reach each
    other: multicast is lost on the way, or the owner's VM is frozen for a snapshot. The backup becomes master, takes
    the address and announces it with its own MAC. The next advertisement of the owner makes it a backup again, and it
    removes the address. The owner was master all the time. It heard nobody, so it announces nothing, and the switch
    keeps the MAC of a server that does not have the address.

    If only the owner's advertisements are lost, it hears those of the backup, and announces the address again at once.

    On real gear: the backup's log has `Entering MASTER STATE` and `Entering BACKUP STATE` a second later, the owner's
    log has nothing. `show ip arp` has the backup's MAC. The client's connections time out, and both servers are
    healthy. Cisco IOS keeps the entry for four hours.

    The fixes: `garp_master_refresh` has the master announce its address periodically. `use_vmac` gives the address the
    virtual router's MAC (RFC 9568 section 7.3): the ARP entry stays right, and each advertisement shows the switch the
    port. Routers and switches with VRRP do the latter by default.

    Sources: keepalived issues 20, 74, 166 and 1927.
    """

    tags = ("arp", "garp", "gateway")
    packages = ("keepalived",)
    profiled = ("leaf",)
    variants = (
        Variant("as-is", "fault", "neither hears the other for four seconds"),
        Variant("owner-hears", "healthy", "the owner hears the backup, and announces again", {"lost": "owner"}),
        Variant("refreshed", "healthy", "the master announces every ten seconds", {"refresh": 10}),
        Variant("virtual-mac", "healthy", "the address has the virtual router's MAC", {"vmac": True}),
    )

    def run(self, run: Run, p: Settings) -> None:
        s1, s2, leaf = run.lab.host("s1"), run.lab.host("s2"), run.lab.switch("leaf")
        with run.step("keepalived elects s1"):
            daemons = [keepalived(run, s1, 200, p), keepalived(run, s2, 100, p)]
            run.eventually("s1 has the address", lambda: has_address(s1), True, within=10)
            run.expect("s2 has it", has_address(s2), False)
        run.sleep(60, "the servers run")
        run.expect("the client reaches s1", reach(run, s1, p), "SUCCESS")
        before = [announcements(daemon) for daemon in daemons]

        with run.step("advertisements are lost until s2 is master"):
            losses = [run.inject(VrrpLost(end="s1:eth1"))]
            losses += [run.inject(VrrpLost(end="s2:eth1"))] if p.lost == "both" else []
            began = run.now
            run.eventually("s2 has the address", lambda: has_address(s2), True, within=10)
            run.note(taken_over_after_s=round(run.now - began, 1))
            run.eventually("the switch has sent to s2", lambda: moved_to(run, s2, p), True, within=2)
            run.expect("s1 has it, too", has_address(s1), True)
        with run.step("the owner's advertisements arrive again"):
            losses[0].recover()
            run.eventually("s2 has the address", lambda: has_address(s2), False, within=10)
            for loss in losses[1:]:  # the owner's first advertisement has ended those of s2
                loss.recover()

        run.sleep(p.settle, "both servers agree that s1 is master")
        known, port = leaf.neighbour(ADDRESS.ip), leaf.fdb_table().get(VMAC, "none")
        run.note(switch_arp={s1["eth1"].mac: "s1", s2["eth1"].mac: "s2", VMAC: "virtual"}.get(known or "", "none"))
        owner, backup = (announcements(daemon) - was for daemon, was in zip(daemons, before, strict=True))
        run.note(announced_by_owner=owner, announced_by_backup=backup)
        status = reach(run, s1, p)
        run.note(completion=status)
        run.expect("s1 has the address", has_address(s1), True)
        run.expect("s2 has it", has_address(s2), False)
        run.observe_status(status, "the client reaches the storage")
        if status != "SUCCESS":
            run.expect("the switch has the MAC of s2", known, s2["eth1"].mac)
            run.eventually("the entry ages out", lambda: leaf.neighbour(ADDRESS.ip) or "", "", within=2e4)
            run.note(stale_s=round(run.now - began))
            run.expect("the client reaches s1 then", reach(run, s1, p), "SUCCESS")
        elif p.vmac:
            run.expect("the switch has the virtual MAC", known, VMAC)
            run.expect("the port of the virtual MAC", port, "e1")
        else:
            run.expect("the switch has the MAC of s1", known, s1["eth1"].mac)


def keepalived(run: Run, host: Host, priority: int, p: Settings) -> Process:
    refresh = f"    vrrp_garp_master_refresh {p.refresh}\n" if p.refresh else ""
    vmac = f"    use_vmac {VMAC_DEVICE}\n" if p.vmac else ""
    file = run.lab.file(f"{host}-keepalived.conf")
    given = {"name": host, "router": ROUTER, "priority": priority, "address": ADDRESS}
    file.write_text(CONFIGURATION.format(**given, refresh=refresh, vmac=vmac))
    return host.spawn("keepalived", "--dont-fork", "--log-console", "--log-detail", "--use-file", str(file))


def has_address(host: Host) -> bool:
    return f" {ADDRESS.ip}/" in host.run("ip", "-4", "-br", "address").stdout


def moved_to(run: Run, host: Host, p: Settings) -> bool:
    """Whether the switch has heard a server's announcement, at least: of its MAC, or of the virtual one at its port."""
    if p.vmac:
        port = host["eth1"].peer
        return bool(port and run.log.find("fdb.moved", mac=VMAC, port=port.name))
    return bool(run.log.find("arp.updated", ip=str(ADDRESS.ip), mac=host["eth1"].mac))


def announcements(daemon: Process) -> int:
    return daemon.output.count("Sending gratuitous ARP on")


def reach(run: Run, server: Host, p: Settings) -> str:
    """The status of a client's WRITE to the address, over a connection of its own. With a virtual MAC it is that of a
    ping: soft-RoCE carries nothing for the address of a macvlan device."""
    client, nic = run.lab.host("client")["eth1"], server["eth1"]
    if p.vmac:
        return "SUCCESS" if client.node.ping(ADDRESS.ip, within=4) else "no answer"
    with open_endpoint(client) as near, open_endpoint(nic, ip=ADDRESS.ip) as far:
        connect_pair(near, far)
        return run.completed(client, near.write(4096, within=60)).status
