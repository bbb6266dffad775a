from typing import Literal

from testbed import Field, Lab, Parameters, Run, Scenario, Variant
from testbed.faults import LinkLoss
from testbed.workload import Attributes

SPINES = {"e2": "spine1", "e3": "spine2"}
"""By leaf1's uplink."""
PROBES = range(1, 9)
"""Flow labels of the queue pairs that probe the paths, each with a UDP source port of its own."""


class Settings(Parameters):
    fix: Literal["none", "out-of-ecmp", "flow-label"] = Field("none", description="what is done about the link")


class SilentDropOneSpineLink(Scenario[Settings]):
    """One link of a spine silently drops all packets in one direction: only some flows die.

    A line card has a bad table, a fabric lane is broken, or an optic passes idle patterns and no frames. The carrier is
    up, LLDP and BFD may run in another queue, and ECMP keeps using the link. A queue pair that is hashed to the link
    dies; its neighbour, with another source port, works. Ping always works or never, because it is one flow. A
    restarted job has other queue pair numbers, and so other source ports and another result.

    On real gear: in a mesh of probes with many source ports (Pingmesh, RoCE probes of R-Pingmesh) always the same ones
    fail. The switch's hash calculator, or traceroute with those ports, shows that they have one link in common.
    Counters confirm it: packets of these flows enter at one end and do not leave at the other.

    The fixes: remove the link from ECMP at the leaf (shut it, or cost it out) after it is found; for the job, a flow
    label for another path. Some NICs change the label after a timeout (PRR, repathing). Here routes are static, so the
    leaf's route is changed by hand.
    """

    tags = ("fabric", "link")
    variants = (
        Variant("as-is", "fault", "nobody knows; ECMP goes on using the link"),
        Variant("out-of-ecmp", "healthy", "the leaf's route leaves out the spine", {"fix": "out-of-ecmp"}),
        Variant("flow-label", "healthy", "the job takes a source port that lives", {"fix": "flow-label"}),
    )

    def run(self, run: Run, p: Settings) -> None:
        leaf, (client, server) = run.lab.switch("leaf1"), run.nics("client", "server")

        def dead_probes() -> list[int]:
            """The flow labels of the probes that die, each a new connection and a WRITE."""
            return [label for label in PROBES if run.write(client, server, Attributes(flow_label=label)) != "SUCCESS"]

        with run.step("every path works"):
            run.expect("no probe dies", dead_probes(), [])

        run.inject(LinkLoss(end="spine1:e2", loss=100))  # to leaf2; the other direction works
        with run.step("a mesh of probes, a source port each"):
            before = received(run.lab)
            dead = dead_probes()
            passed = {link: count - before[link] for link, count in received(run.lab).items()}
        ports = {label: Attributes(flow_label=label).source_port for label in PROBES}
        uplinks = leaf.uplinks(client.address().ip, server.address().ip, list(ports.values()))
        path = dict(zip(PROBES, (SPINES[port] for port in uplinks), strict=True))
        silent = [spine for spine in path.values() if passed[f"leaf1 to {spine}"] and not passed[f"{spine} to leaf2"]]
        run.note(dead_ports=", ".join(str(ports[label]) for label in dead))
        run.note(live_ports=", ".join(str(ports[label]) for label in PROBES if label not in dead))
        run.note(dead_by=", ".join(sorted({path[label] for label in dead})))
        run.note(packets=", ".join(f"{link} {count}" for link, count in passed.items()))
        run.expect("the dead ports are those of one spine", dead, [key for key in PROBES if path[key] == "spine1"])
        run.expect("packets go into that spine and do not come out to leaf2", set(silent), {"spine1"})
        run.expect("the carrier is there", run.lab["leaf2"].links_work() and run.lab["spine1"].links_work(), True)

        label = dead[0] if dead else PROBES[0]
        with run.step("the job's connection, which is hashed there"):
            if p.fix == "out-of-ecmp":
                leaf.run("ip", "route", "replace", "default", "via", "10.255.0.2")  # spine2
                run.expect("no probe dies any more", dead_probes(), [])
            elif p.fix == "flow-label":
                label = next(label for label in PROBES if label not in dead)
            status = run.write(client, server, Attributes(flow_label=label))
        run.note(completion=status)
        run.observe_status(status, f"the job's WRITE arrives from source port {ports[label]}", who="the job")


def received(lab: Lab) -> dict[str, int]:
    """Packets that the far end of each link on the way from leaf1 to leaf2 has received."""
    links = {}
    for port, spine in SPINES.items():
        links[f"leaf1 to {spine}"] = lab[spine]["e1"].counters()["rx_packets"]
        links[f"{spine} to leaf2"] = lab["leaf2"][port].counters()["rx_packets"]
    return links
