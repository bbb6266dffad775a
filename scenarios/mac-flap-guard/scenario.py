"""See the docstring of MacFlapGuard, or `testbed describe mac-flap-guard`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from testbed import Parameters, Run, Scenario, Variant
from testbed.faults import DuplicateMac
from testbed.switch.profile import Profile, profile
from testbed.workload.verbs import connect_pair

MESSAGE = 4096
PORTS = {"before": "e2", "server": "e3", "behind": "e4"}


class Settings(Parameters):
    guard: bool = Field(True, description="whether the leaf has SONiC's MAC move guard")
    threshold: int = Field(100, ge=1, description="moves of a MAC in 10 s at which ports are disabled for 60 s")
    twin: Literal["before", "behind"] = Field("before", description="the host with the server's MAC: at port e2 or e4")
    period: float = Field(0.004, gt=0, description="seconds between two frames of the twin, and two of the server")
    flapping: float = Field(0.5, gt=0, description="seconds for which both send, unless a port is disabled before")
    wait: bool = Field(False, description="whether the client connects again when the guard has let go of its ports")


class MacFlapGuard(Scenario):
    """
    A MAC flaps between two ports, and the switch's guard against that disables the port of the host that owns it.

    A virtual machine is cloned with its MAC, two SmartNICs came with the same one from a broken provisioning, a cable
    makes a loop. Both hosts send, and with each frame the MAC moves to the other port. A switch that counts moves
    shuts the ports of a MAC that moves too often, all but one, to protect everybody else. SONiC's guard (sonic-swss,
    orchagent/macmoveguard.cpp) leaves the first one by name up, whoever is behind it: so one host is cut off, for as
    long as action_interval says, and it may well be the one whose MAC it is. Without the guard, SONiC's default, the
    port that spoke last has the MAC, and what is sent to a server that does not speak itself goes to its twin.

    The guard has the values here that SONiC's own test gives it: 100 moves in 10 s, ports disabled for 60 s (defaults:
    1000 in 5 s, 600 s; `profile: sonic-mac-move-guard`). It looks every 30 s for ports to enable.

    On real gear: `show mac` has the MAC at one port, then at the other; SONiC logs "MAC_MOVE_GUARD: port …
    administratively disabled (bad MAC … pinned to …)", others log a MAC flap and an err-disabled port. The server's NIC
    has no link, queue pairs with it die of RETRY_EXC_ERR, and nobody touched it.

    The cures: MAC addresses that are unique (a clone gets its own); unplug the twin, then the port comes back by
    itself. That the right port stays up is luck: rename ports, and it is the other.
    """

    title = "A MAC flaps, and the guard disables its owner's port"
    tags = ("fdb", "switch")
    parameters = Settings
    variants = (
        Variant("as-is", "fault", "the twin's port comes first by name, the server's is disabled"),
        Variant("no-guard", "fault", "ports stay up, the server's packets go to its twin", {"guard": False}),
        Variant("other-port", "healthy", "the server's port comes first, the twin's is disabled", {"twin": "behind"}),
        Variant("unplugged", "healthy", "the twin is unplugged, the guard lets go of the port", {"wait": True}),
    )

    def profiles(self, parameters: Settings) -> Mapping[str, Profile]:
        guarded = profile("sonic-mac-move-guard").replace(
            mac_moves=parameters.threshold, mac_move_window=10, mac_move_recovery=60
        )
        return {"leaf": guarded if parameters.guard else profile("sonic")}

    def run(self, run: Run, p: Settings) -> None:
        leaf, client, server, twin = (
            run.lab.switch("leaf"),
            run.lab.host("client"),
            run.lab.host("server"),
            run.lab.host(p.twin),
        )
        captured = leaf.capture(PORTS[p.twin], "udp port 4791")
        with run.endpoint(client, "eth1") as near, run.endpoint(server, "eth1") as far:
            with run.step("the client works with the server"):
                connect_pair(near, far)
                run.expect("the first WRITE", run.completed(client, near.write(MESSAGE, within=5)).status, "SUCCESS")

            with run.step("another host has the server's MAC, and both send"):
                injection = run.inject(DuplicateMac(host=p.twin, of="server", switch="leaf", period=p.period))
                until = run.log.now + p.flapping * 1e9
                while run.log.now < until and not run.log.find("port.disabled"):
                    far.write(MESSAGE, within=5)
                    run.lab.sleep(p.period)

            with run.step("the client writes to the server"):
                status = run.completed(client, near.write(MESSAGE, within=5)).status

        moves, disabled = len(run.log.find("fdb.moved")), run.log.find("port.disabled")
        with run.step("the twin is unplugged"):
            captured.stop()
            twin.set_link("eth1", "down")
            injection.recover()
            if p.wait:
                run.expect("the WRITE before", status, "RETRY_EXC_ERR")
                run.eventually("the server's port comes up", lambda: leaf.is_up(PORTS["server"]), True, within=100)
                down_s = (run.log.find("port.enabled")[0]["t"] - disabled[0]["t"]) / 1e9
                run.note(down_for_s=round(down_s))
                run.expect("after its time, at the guard's next look", down_s, lambda seconds: 60 <= seconds <= 90)
                status = run.write(client, server)

        ports = [event["data"]["port"] for event in disabled]
        astray = sum(frame.roce and frame.dst == server.macs["eth1"] for frame in captured.frames())
        run.note(completion=status, moves=moves, disabled=", ".join(ports) or "none", frames_to_twin=astray)
        run.expect("whether the MAC moved often enough for the guard", moves >= p.threshold, True)
        if status == "SUCCESS":
            run.observe("healthy", "the client reaches the server")
            run.expect("the disabled port", ports, [PORTS["server" if p.wait else p.twin]])
        else:
            run.observe("fault", f"the client's work request dies of {status}")
            run.expect("it dies of unanswered retries", status, "RETRY_EXC_ERR")
            if p.guard:
                run.expect("the disabled port is the server's", ports, [PORTS["server"]])
            else:
                run.expect("its frames went to the twin", astray, lambda frames: frames >= 4)
