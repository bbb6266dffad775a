"""See the docstring of SilentDropOneSpineLink, or `testbed describe silent-drop-one-spine-link`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from testbed import Parameters, Run, Scenario, Variant
from testbed.faults import LinkLoss
from testbed.nic.connections import source_port
from testbed.workload.attributes import Attributes

BAD_END = "spine1:e2"
"""What spine1 sends to leaf2 is lost; the other direction is not."""
SPINES = {"e2": "spine1", "e3": "spine2"}
"""By leaf1's uplink."""
GOOD_SPINE = "10.255.0.2"
"""spine2, as leaf1's next hop."""
PROBES = range(1, 9)
"""Flow labels of the queue pairs that look at the paths, each with a UDP source port of its own."""


class Settings(Parameters):
    cure: Literal["none", "out-of-ecmp", "flow-label"] = Field("none", description="what is done about the link")


class SilentDropOneSpineLink(Scenario):
    """
    One link of a spine drops everything in one direction, and says nothing: some source ports die, others never fail.

    A line card with a bad table, a linecard-to-fabric lane, an optic that passes idle patterns and no frames: the
    carrier is there, LLDP and BFD may run in another queue, ECMP goes on using the link. A queue pair that is hashed
    there dies; its neighbour, with another source port, works. Ping works, or never does, for its hash is one flow. The
    job that is started again has other queue pair numbers, and so other ports and another fate.

    On real gear: a mesh of probes with many source ports (Pingmesh, RoCE probes of R-Pingmesh) has a fixed part that
    fails; the switch's hash calculator or traceroute with those ports has one link in common. Counters name it: what
    leaf and spine take in for these flows goes in at one end and does not come out at the other.

    The cures: the link out of ECMP at the leaf (shut, or cost it out), which needs someone to have found it; for the
    job, a flow label whose port takes another path, as NICs that change it after a timeout do (PRR, repathing). Here
    routes are static, so the leaf's route is changed by hand.
    """

    title = "A spine's link drops in silence, and only some flows die"
    tags = ("fabric", "link")
    parameters = Settings
    variants = (
        Variant("as-is", "fault", "nobody knows; ECMP goes on using the link"),
        Variant("out-of-ecmp", "healthy", "the leaf's route leaves out the spine", {"cure": "out-of-ecmp"}),
        Variant("flow-label", "healthy", "the job takes a source port that lives", {"cure": "flow-label"}),
    )

    def run(self, run: Run, p: Settings) -> None:
        client, server, leaf = run.lab.host("client"), run.lab.host("server"), run.lab.switch("leaf1")
        with run.step("every path works"):
            run.expect("no probe dies", self.dead(run), [])

        run.inject(LinkLoss(end=BAD_END, loss=100))
        with run.step("a mesh of probes, a source port each"):
            before = self.passed(run)
            dead = self.dead(run)
            passed = {link: count - before[link] for link, count in self.passed(run).items()}
        ports = {label: source_port(label, 0, 0) for label in PROBES}
        ends = client.addresses["eth1"].ip, server.addresses["eth1"].ip
        spines = [SPINES[port] for port in leaf.uplinks(*ends, list(ports.values()))]
        path = dict(zip(PROBES, spines, strict=True))
        silent = [spine for spine in path.values() if passed[f"leaf1 to {spine}"] and not passed[f"{spine} to leaf2"]]
        run.note(
            dead_ports=", ".join(str(ports[label]) for label in dead),
            live_ports=", ".join(str(ports[label]) for label in PROBES if label not in dead),
            dead_by=", ".join(sorted({path[label] for label in dead})),
            packets=", ".join(f"{link} {count}" for link, count in passed.items()),
        )
        run.expect("the dead ports are those of one spine", dead, [key for key in PROBES if path[key] == "spine1"])
        run.expect("packets go into that spine and do not come out to leaf2", set(silent), {"spine1"})
        run.expect("the carrier is there", run.lab["leaf2"].links_work() and run.lab["spine1"].links_work(), True)

        label = dead[0] if dead else PROBES[0]
        with run.step("the job's connection, which is hashed there"):
            match p.cure:
                case "out-of-ecmp":
                    leaf.run("ip", "route", "replace", "default", "via", GOOD_SPINE)
                    run.expect("no probe dies any more", self.dead(run), [])
                case "flow-label":
                    label = next(label for label in PROBES if label not in dead)
            status = run.write(client, server, Attributes(flow_label=label))
        run.note(completion=status)
        if status == "SUCCESS":
            run.observe("healthy", f"the job's WRITE arrives from source port {ports[label]}")
        else:
            run.observe("fault", f"the job's WRITE from source port {ports[label]} dies of {status}")
            run.expect("it dies of unanswered retries", status, "RETRY_EXC_ERR")

    def dead(self, run: Run) -> list[int]:
        """The flow labels of the probes that die, each a new connection and a WRITE."""
        client, server = run.lab.host("client"), run.lab.host("server")
        return [label for label in PROBES if run.write(client, server, Attributes(flow_label=label)) != "SUCCESS"]

    def passed(self, run: Run) -> dict[str, int]:
        """Packets that the far end of each link on the way from leaf1 to leaf2 has received."""
        links = {}
        for port, spine in SPINES.items():
            links[f"leaf1 to {spine}"] = run.lab[spine].statistics("e1")["rx_packets"]
            links[f"{spine} to leaf2"] = run.lab["leaf2"].statistics(port)["rx_packets"]
        return links
