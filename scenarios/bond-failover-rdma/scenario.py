from typing import Literal

from testbed import Field, HostInterface, Parameters, Run, Scenario, Variant
from testbed.faults import LinkDown
from testbed.workload import Attributes

SERVER = {"802.3ad": "lacp", "balance-xor": "static", "active-backup": "backup", "bridge": "node"}
PORTS = {
    "lacp": {"eth1": "e1", "eth2": "e2"},
    "static": {"eth1": "e3", "eth2": "e4"},
    "backup": {"eth1": "e5", "eth2": "e6"},
    "node": {"eth1": "e7", "eth2": "e8"},
}
"""The leaf's end of each server's links."""
PATIENT = Attributes(timeout=14, retry_cnt=6)
"""Half a second: longer than the 0.1 s after which a bond with `miimon=100` knows that a link is down."""
PACKETS = 4
"""Of a WRITE of 4096 bytes."""


class Settings(Parameters):
    bond: Literal["802.3ad", "balance-xor", "active-backup", "bridge"] = Field(
        "active-backup", description="the bond's mode; bridge: a pod on a bridge above an active-backup bond"
    )
    when: Literal["sends", "idle", "receives"] = Field(
        "sends", description="what the server's queue pair does: it sends at once, or later, or only its peer sends"
    )
    reconnect: bool = Field(False, description="whether the connection is made anew after the failover")


class BondFailoverRdma(Scenario[Settings]):
    """A server with two links loses one. Its bond fails over in a moment, and its queue pairs end, or live on.

    To TCP all bonds are equal: a segment is lost and sent again. A queue pair of soft-RoCE depends on how the bond
    fails over.

    802.3ad and balance-xor keep it, without a retry. A link that loses its carrier leaves the array of members to hash
    over at once (bond_slave_netdev_event calls bond_update_slave_arr), and nothing else changes.

    active-backup ends it, for two reasons. Until miimon's next look, within 0.1 s, the bond sends by the dead link. The
    host drops that packet itself, and soft-RoCE takes a failed transmission for a local error: WR_FLUSH_ERR, and no
    retry. And the change of the active member is an event (NETDEV_BONDING_FAILOVER) at which ib_core deletes the
    bond's GIDs and adds them again. A queue pair holds the old entry, which is no longer valid: it ends with its
    first packet, also if it was idle all the time. One that only receives answers no more, and its peer ends with
    RETRY_EXC_ERR. A shorter miimon or `fail_over_mac` change nothing.

    On real gear: a NIC with RoCE LAG has one device for both ports, and moves queue pairs in its firmware, in all three
    modes. A NIC without it has a device a port, and RoCE on the bond is then like here: `rdma link` has no bond device,
    or `ibv_devinfo -v` shows other GID indexes after the failover. The job's log has "Work Request Flushed Error" on
    the server with the broken link, and "transport retry counter exceeded" on its peers.

    The fixes: LACP, with two leaves by EVPN multihoming or MLAG; a bridge above the bond, which reports no drop and
    does not pass the event on; or a job that connects again, which works at once.

    Sources: docs/cni-plugins.md; Linux, drivers/net/bonding/bond_main.c, drivers/infiniband/core/roce_gid_mgmt.c.
    """

    tags = ("link", "host", "cni")
    variants = (
        Variant("active-backup", "fault", "its queue pair sends before the bond has noticed"),
        Variant("idle", "fault", "its queue pair was idle, and ends with its next packet", {"when": "idle"}),
        Variant("receives", "fault", "its queue pair answers no more: its peer ends", {"when": "receives"}),
        Variant("reconnected", "healthy", "a new connection after the failover works", {"reconnect": True}),
        Variant("bridge", "healthy", "a bridge above the active-backup bond", {"bond": "bridge"}),
        Variant("lacp", "healthy", "802.3ad", {"bond": "802.3ad"}),
        Variant("static", "healthy", "balance-xor, and a static bundle on the switch", {"bond": "balance-xor"}),
    )

    def run(self, run: Run, p: Settings) -> None:
        name, (peer,) = SERVER[p.bond], run.nics("peer")
        host = run.lab.host(name)
        server = on_bridge(run) if p.bond == "bridge" else host["bond0"]
        near, far = (peer, server) if p.when == "receives" else (server, peer)

        def sent() -> dict[str, int]:
            return {link: host[link].counters()["tx_packets"] for link in PORTS[name]}

        before = sent()
        connection = run.connect("a connection works", near, far, PATIENT)
        more = {link: count - before[link] for link, count in sent().items()}
        used = max(more, key=lambda link: more[link])
        (other,) = PORTS[name].keys() - {used}

        with run.step(f"{name} loses its link {used}"):
            retries = server.rdma_counters()["completer_retry_err"]
            run.inject(LinkDown(end=f"leaf:{PORTS[name][used]}"), may_outlast_run=True)
            if p.when != "sends":
                run.sleep(1, "the bond fails over, and nobody sends")
            before = sent()
            done = connection.write()
            moved = sent()[other] - before[other]
            retries = server.rdma_counters()["completer_retry_err"] - retries

        run.note(completion=done.status, after_s=round(done.elapsed_s, 3), retries=retries, packets_by_other_link=moved)
        run.eventually("the other link works", lambda: server.node.ping(peer.address().ip, within=1), True, within=5)
        if p.reconnect:
            run.expect("the old connection", done.status, "WR_FLUSH_ERR")
            with run.step("the job connects again"):
                run.observe_status(run.write(near, far, PATIENT), "a new connection works")
            return
        if done.ok:
            run.observe("healthy", f"the queue pair lives on, after {done.elapsed_s * 1e3:.0f} ms")
            least = 1 if p.when == "receives" else PACKETS
            run.expect(f"its packets go by {other}", moved, lambda count: count >= least)
            most = 2 if p.bond == "bridge" else 0  # a timeout is 67 ms, and the bond looks at carriers every 100 ms
            run.expect("retries", retries, lambda count: count <= most)
            return
        run.observe("fault", f"the queue pair ends with {done.status}")
        run.expect("its end", done.status, "RETRY_EXC_ERR" if p.when == "receives" else "WR_FLUSH_ERR")
        run.expect("no packet of it left the server by the other link", moved, 0)
        run.expect("nor was one sent again", retries, 0)


def on_bridge(run: Run) -> HostInterface:
    """The interface of a pod on a bridge above the node's bond."""
    node = run.lab.host("node")
    commands = ["link add br0 type bridge\n", "link set bond0 master br0\n", "link set br0 up\n"]
    node.run("ip", "-b", "-", text="".join(commands))
    only = {"subnet": "10.0.10.0/24", "rangeStart": "10.0.10.100", "rangeEnd": "10.0.10.100"}
    macvlan = {"type": "macvlan", "master": "br0", "ipam": {"type": "host-local", "ranges": [[only]]}}
    network = {"cniVersion": "1.0.0", "name": "rdma", "plugins": [macvlan, {"type": "rxe"}]}
    return run.lab.pods.create(node, "pod", [network])["eth0"]
