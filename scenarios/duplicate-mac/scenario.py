"""See the docstring of DuplicateMacScenario, or `testbed describe duplicate-mac`."""

from __future__ import annotations

from ipaddress import IPv4Address
from typing import Literal

from pydantic import Field

from testbed import Parameters, Run, Scenario, Variant
from testbed.lab import Host

ROUNDS = 2


class Settings(Parameters):
    unique: bool = Field(False, description="whether the clone has a MAC of its own")
    traffic: Literal["client", "each-other"] = Field(
        "client", description="who talks: a client in another VLAN with both of them; or both with each other"
    )


class DuplicateMacScenario(Scenario):
    """
    Two hosts have one MAC address, and the switch sends the frames of both to the one that spoke last.

    A virtual machine was cloned, and its interface makes its MAC of the machine-id; an administrator gave one MAC to
    two virtual functions; a CNI plugin has a MAC in its configuration. The addresses differ, ARP is right for both. A
    switch has one port for a MAC, that of the last frame: whoever speaks draws the other's traffic to its own port,
    where a NIC with the MAC takes it and the kernel drops it, as it is for another address. Each of the two works
    alone, and each cuts off the other. If both speak all the time, frames are lost by turns, and RDMA, which goes back
    to the lost packet each time, is slow before it dies. With each other the two cannot speak at all: the switch has
    the MAC of the answer behind the port that the answer came from.

    On real gear: the switch logs MAC flapping ("MAC … is flapping between port … and port …", or a port is shut down by
    a move guard); `show mac address-table` changes its mind; `show ip arp` has one MAC for two addresses; RETRY_EXC_ERR
    on one of two nodes that both are healthy when tested alone.

    The cure: unique MACs. A machine-id of its own for each clone, no constant MAC in a conflist.

    soft-RoCE adds a way of its own to fail: a queue pair whose next hop has the host's own MAC is looped back inside
    the host, and nothing is on the wire. It takes a static neighbour entry to get there; here ARP fails before.
    """

    title = "Two hosts have one MAC address"
    tags = ("fdb", "host", "switch")
    parameters = Settings
    variants = (
        Variant("as-is", "fault", "the clone has the server's MAC; who spoke last is reached"),
        Variant("each-other", "fault", "the same; the two try to reach each other", {"traffic": "each-other"}),
        Variant("unique", "healthy", "the clone has a MAC of its own", {"unique": True}),
    )

    def run(self, run: Run, p: Settings) -> None:
        client, server, clone = (run.lab.host(name) for name in ("client", "server", "clone"))

        with run.step("the client works with the server"):
            run.expect("the first WRITE", run.write(client, server), "SUCCESS")

        with run.step("the clone comes up"):
            if not p.unique:
                clone.set_mac("eth1", server.macs["eth1"])
            run.lab.add_rdma(clone, "eth1", "clone-eth1")

        if p.traffic == "each-other":
            self.speak_to_each_other(run, server, clone)
        else:
            self.speak_by_turns(run, server, clone, p)

    def speak_by_turns(self, run: Run, server: Host, clone: Host, p: Settings) -> None:
        leaf, client = run.lab.switch("leaf"), run.lab.host("client")
        ports = {"e2": clone, "e3": server}  # where nothing for them belongs
        captures = [leaf.capture(port, f"udp port 4791 and dst host {ip(host)}") for port, host in ports.items()]
        spoke, silent = [], []
        for speaker, other in [(clone, server), (server, clone)] * ROUNDS:
            with run.step(f"{speaker} speaks, and the client connects to both"):
                gateway = str(speaker.gateway("eth1"))
                run.expect(f"{speaker}'s gateway answers", speaker.ping(gateway, within=1), True)
                spoke.append(run.write(client, speaker))
                silent.append(run.write(client, other))
        for capture in captures:
            capture.stop()
        run.lab.drain()

        astray = [sum(frame.roce for frame in capture.frames()) for capture in captures]
        moves = [event["data"]["port"] for event in run.log.find("fdb.moved", mac=server.macs["eth1"])]
        run.note(to_who_spoke_last=", ".join(sorted(set(spoke))), to_the_other=", ".join(sorted(set(silent))))
        run.note(moves_of_mac=len(moves), frames_to_wrong_port=sum(astray))
        run.expect("who spoke last is reached", set(spoke), {"SUCCESS"})
        if p.unique:
            run.observe("healthy", "the client reaches both")
            run.expect("the other one is reached", set(silent), {"SUCCESS"})
            run.expect("the MAC stayed where it was", moves, [])
            run.expect("frames at the wrong ports", astray, [0, 0])
        else:
            run.observe("fault", "the client reaches the one that spoke last, and never both")
            run.expect("the other one's work requests die of unanswered retries", set(silent), {"RETRY_EXC_ERR"})
            run.expect("the MAC moved each time another one spoke", moves, ["e3", "e2"] * ROUNDS)
            run.expect("the frames went to the wrong port each time", min(astray), lambda frames: frames >= 4 * ROUNDS)

    def speak_to_each_other(self, run: Run, server: Host, clone: Host) -> None:
        leaf = run.lab.switch("leaf")
        answers = [leaf.capture(port, f"arp[6:2] = 2 and arp src host {ip(clone)}") for port in ("e3", "e2")]
        with run.step("the server connects to its clone"):
            status = run.write(server, clone)
        for capture in answers:
            capture.stop()

        sent, arrived = (len(list(capture.frames())) for capture in answers)
        run.note(outcome=status, arp_answers_of_clone=sent, arrived_at_server=arrived)
        run.observe(
            "fault" if status != "SUCCESS" else "healthy", f"the server has no connection to its clone: {status}"
        )
        run.expect("no MAC for the clone", status, "ETIMEDOUT")
        run.expect("the clone answered", sent, lambda frames: frames >= 1)
        run.expect("the switch did not pass that on", arrived, 0)


def ip(host: Host) -> IPv4Address:
    return host.addresses["eth1"].ip
