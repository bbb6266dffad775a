from itertools import pairwise
from typing import Literal

from testbed import Field, Parameters, ProfileName, Run, Scenario, Variant
from testbed.faults import LinkDown, LinkLoss
from testbed.workload import Attributes

FLOWS = 8
"""Connections, each with a flow label, so a UDP source port, of its own."""
END = "tor1:e1"
"""Of the link that fails."""
BOTH, ONE = ["d1", "d2"], ["d2"]
"""The spine's ports towards both leaves, and towards tor2."""


class Settings(Parameters):
    profile: ProfileName = Field("arista-eos", description="ARP and FDB profile of both leaves")
    port_down: Literal["keep", "purge", "resolve"] | None = Field(
        None, description="what becomes of ARP entries behind a port that goes down; empty: the profile's own"
    )
    link: Literal["down", "one-way"] = Field(
        "down", description="the link to tor1 goes down; or it loses what tor1 sends, with its carrier up"
    )
    timeout: int = Field(14, ge=1, le=31, description="the QPs' ACK timeout, 4.096 us * 2^timeout")
    cure: Literal["none", "clear", "shut"] = Field(
        "none", description="an operator clears tor1's ARP entry, or shuts its port, and the job starts again"
    )


class DualTorStaleHostRoute(Scenario[Settings]):
    """A leaf goes on announcing a server that it no longer reaches: half of the flows end there.

    Two leaves of a rack without a stack, a peer link or a common table (Alibaba HPN): to a server they are one LACP
    partner and one gateway. The server sends each ARP packet to both. Each leaf makes a /32 route of its ARP entry and
    announces it, and the fabric divides the server's flows between them. When the link to one leaf fails, that leaf has
    to withdraw its route, since it has no other way to the server. The route lives as long as the ARP entry, so all
    depends on what ends the entry. If a switch keeps entries whose port is down, the route outlives the link by up to
    four hours. If the link loses what the leaf sends and keeps its carrier, no port goes down. The server misses the
    leaf's LACPDUs, after a minute and a half at the slow rate, sends by the other link only, and no longer has the leaf
    for a partner.

    On real gear: `show ip route` of a spine has the server's /32 by both leaves. One of them has the server in `show ip
    arp`, and nothing in `show mac address-table address`, or a port with output and no input. Flows die by their source
    port; ping works always or never.

    The fixes: entries that go with their port, as HPN's switches remove them; for the one-way link, switches whose port
    channel is down without a partner, with LACP's fast rate (here, as in Linux, it becomes a link without LACP and
    stays up); a link between the leaves, or EVPN multihoming, by which a leaf without its link sends to the other one.
    By hand: clear the entry, shut the port.

    Source: Alibaba HPN (Qian et al., SIGCOMM 2024), non-stacked dual-ToR. Arista announces such routes by `ip
    attached-host route export`, Cumulus Linux by `redistribute neighbor`.
    """

    tags = ("arp", "fabric", "routing", "link")
    profiled = ("tor1", "tor2")
    profile_values = ("port_down",)
    variants = (
        Variant("as-is", "fault", "the link breaks, and tor1 keeps its ARP entry and its route"),
        Variant("cleared", "healthy", "an operator clears the entry, and the job starts again", {"cure": "clear"}),
        Variant("purge", "healthy", "the entry goes with the port, and the route with it", {"port_down": "purge"}),
        Variant(
            "one-way",
            "fault",
            "the entry would go with the port, but the link is dead in one direction",
            {"port_down": "purge", "link": "one-way"},
        ),
        Variant(
            "shut",
            "healthy",
            "an operator shuts the port of that link, and the job starts again",
            {"port_down": "purge", "link": "one-way", "cure": "shut"},
        ),
    )

    def run(self, run: Run, p: Settings) -> None:
        tor1, server, (client,) = run.lab.switch("tor1"), run.lab.host("server")["bond0"], run.nics("client")
        ip = server.address().ip

        def by() -> list[str]:
            """The ports by which the spine reaches the server."""
            words = run.lab.switch("spine").run("ip", "route", "get", "fibmatch", str(ip)).stdout.split()
            return sorted(after for before, after in pairwise(words) if before == "dev")

        run.expect("the server knows its gateway", server.ping_gateway(), True)
        run.eventually("the spine reaches the server by", by, BOTH, within=5)
        labels = [Attributes(p.timeout, 6, flow_label=number) for number in range(1, FLOWS + 1)]
        flows = [run.connect(f"connection {number}", client, server, one) for number, one in enumerate(labels, 1)]

        with run.step("the server's link to tor1 fails, and the job goes on"):
            run.inject(LinkDown(end=END) if p.link == "down" else LinkLoss(end=END, loss=100), may_outlast_run=True)
            posted = [flow.near.post_write(4096) for flow in flows]
            ends = [flow.near.wait(request, within=600) for flow, request in zip(flows, posted, strict=True)]
            statuses = [run.completed(client, done).status for done in ends]
            longest, known = max(done.elapsed_s for done in ends), tor1.neighbour(ip) or "none"

        dead = FLOWS - statuses.count("SUCCESS")
        run.note(died=f"{dead} of {FLOWS}", longest_s=round(longest, 2))
        run.note(spine_sends_by=", ".join(by()), tor1_arp=known)
        run.expect("those that die, die of unanswered retries", {*statuses} - {"SUCCESS", "RETRY_EXC_ERR"}, set())
        if p.cure != "none":
            with run.step("an operator looks at tor1, and the job starts again"):
                if p.cure == "clear":
                    tor1.clear_arp(ip=str(ip))
                else:
                    run.inject(LinkDown(end=END), may_outlast_run=True)
                run.eventually("the spine reaches the server by", by, ONE, within=5)
                statuses = [run.write(client, server, label) for label in labels]
            dead, known = FLOWS - statuses.count("SUCCESS"), tor1.neighbour(ip) or "none"
        if dead:
            run.observe("fault", f"{dead} of {FLOWS} flows die")
            run.expect("tor1 has the server's MAC", known, server.mac)
            run.expect("the spine sends by both leaves", by(), BOTH)
            return
        run.observe("healthy", "all flows go by tor2")
        run.expect("tor1 does not have the server", known, "none")
        run.expect("the spine sends by tor2", by(), ONE)
