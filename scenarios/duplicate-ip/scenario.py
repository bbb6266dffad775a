"""See the docstring of DuplicateIpScenario, or `testbed describe duplicate-ip`."""

from __future__ import annotations

import re
from collections.abc import Mapping

from pydantic import Field

from testbed import Parameters, Run, Scenario, Variant
from testbed.errors import TestbedError
from testbed.faults import DuplicateIp
from testbed.lab import Host
from testbed.switch.profile import Profile, ProfileName, profile


class Settings(Parameters):
    profile: ProfileName = Field("cisco-nxos", description="ARP and FDB profile of the leaf switch")
    detect: bool = Field(False, description="whether the second host looks whether its address is taken (RFC 5227)")


class DuplicateIpScenario(Scenario):
    """
    Two hosts have one address, and the switch believes the one that spoke last.

    A node comes up with the address of another one: a template with a static address, a lease that was given twice. It
    announces itself, and the switch's ARP entry moves to it. Every connection of that address is cut: packets arrive at
    a host that has the address and no such queue pair, where soft-RoCE drops them without a word.

    On real gear: the switch logs a duplicate address ("duplicate IP address … sent from", "moved from … to"), the
    entry's MAC changes back and forth as both hosts speak. Clients see RETRY_EXC_ERR, while ping works or comes and
    goes, as both owners answer it.

    The cures: hosts look whether an address is taken before they use it (address conflict detection, RFC 5227); or the
    switch does not take a change of MAC that nobody confirmed (Huawei's entry-check fixed-mac, DHCP snooping with
    dynamic ARP inspection), and then the address must not move for good reasons either.
    """

    title = "Two hosts have one IP address"
    tags = ("arp", "host", "switch")
    parameters = Settings
    variants = (
        Variant("as-is", "fault", "the second host announces itself, the switch's entry moves to it"),
        Variant("detected", "healthy", "it asks first whether the address is taken", {"detect": True}),
        Variant("fixed-mac", "healthy", "the switch keeps the MAC it knows", {"profile": "huawei-ce-fixed-mac"}),
    )

    def profiles(self, parameters: Settings) -> Mapping[str, Profile]:
        return {"leaf": profile(parameters.profile)}

    def run(self, run: Run, p: Settings) -> None:
        leaf = run.lab.switch("leaf")
        client, server, intruder = (run.lab.host(name) for name in ("client", "server", "intruder"))
        ip = server.addresses["eth1"].ip
        captured = leaf.capture("e3", "udp port 4791")

        with run.step("the client works with the server"):
            run.expect("the first WRITE", run.write(client, server), "SUCCESS")
            run.expect("the switch has the server's MAC", leaf.arp_table().get(str(ip)), server.macs["eth1"])

        with run.step("a second host gets the server's address"):
            taken = p.detect and is_taken(intruder, str(ip))
            if not taken:
                run.inject(DuplicateIp(host="intruder", ip=ip))
                intruder.run("arping", "-U", "-c", "1", "-I", "eth1", str(ip))

        with run.step("the client connects anew"):
            status = run.write(client, server)

        captured.stop()
        owners = {server.macs["eth1"]: "server's MAC", intruder.macs["eth1"]: "intruder's MAC"}
        known = owners.get(leaf.arp_table().get(str(ip), ""), "no entry")
        astray = sum(frame.roce and frame.dst == intruder.macs["eth1"] for frame in captured.frames())
        run.note(completion=status, switch_arp=known, frames_to_intruder=astray)
        if p.detect:
            run.expect("the address was found to be taken", taken, True)
        if status == "SUCCESS":
            run.observe("healthy", "the client reaches the server")
            run.expect("the switch has the server's MAC", known, "server's MAC")
        else:
            run.observe("fault", f"the client's work request dies of {status}")
            run.expect("it dies of unanswered retries", status, "RETRY_EXC_ERR")
            run.expect("the switch has the intruder's MAC", known, "intruder's MAC")
            run.expect("its frames went to the intruder", astray, lambda frames: frames >= 4)


def is_taken(host: Host, ip: str) -> bool:
    """Whether somebody answers an ARP probe for the address (arping -D)."""
    said = host.run("sh", "-c", f"arping -D -c 2 -I eth1 {ip} || true").stdout
    if (answers := re.search(r"Received (\d+) response", said)) is None:
        raise TestbedError(f"{host}: arping does not say how many answers it got: {said!r}")
    return answers[1] != "0"
