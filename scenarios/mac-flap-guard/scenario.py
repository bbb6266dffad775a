from typing import Literal

from testbed import Field, Parameters, Profile, Run, Scenario, Variant, profile
from testbed.faults import DuplicateMac

PORTS = {"before": "e2", "server": "e3", "behind": "e4"}


class Settings(Parameters):
    guard: bool = Field(True, description="whether the leaf has SONiC's MAC move guard")
    threshold: int = Field(100, ge=1, description="moves of a MAC in 10 s at which ports are disabled for 60 s")
    twin: Literal["before", "behind"] = Field("before", description="the host with the server's MAC: at port e2 or e4")
    period: float = Field(0.004, gt=0, description="seconds between two frames of the twin, and two of the server")
    flapping: float = Field(0.5, gt=0, description="seconds for which both send, unless a port is disabled before")
    wait: bool = Field(False, description="whether the client connects again when the guard has let go of its ports")


class MacFlapGuard(Scenario[Settings]):
    """A MAC flaps, and the switch's guard disables its owner's port.

    A virtual machine was cloned with its MAC, two SmartNICs were provisioned with the same one, or a cable makes a
    loop. Both hosts send, and with each frame the MAC moves to the other port. A switch with a guard counts moves, and
    if a MAC moves too often it shuts all of the MAC's ports but one. SONiC's guard (sonic-swss,
    orchagent/macmoveguard.cpp) keeps the first port by name up, so it may cut off the MAC's owner, for action_interval.
    Without the guard, SONiC's default, the last port that sent has the MAC, and packets for a silent server go to its
    twin.

    The guard has the values of SONiC's own test: 100 moves in 10 s, ports disabled for 60 s (defaults: 1000 in 5 s, 600
    s; `profile: sonic-mac-move-guard`). Every 30 s it checks for ports to enable.

    On real gear: `show mac` has the MAC at one port, then at the other; SONiC logs "MAC_MOVE_GUARD: port …
    administratively disabled (bad MAC … pinned to …)", others log a MAC flap and an err-disabled port. The server's NIC
    has no link, queue pairs with it end with RETRY_EXC_ERR, and nobody touched it.

    The fixes: unique MAC addresses (a clone gets its own); unplug the twin, then the port comes back by itself. Chance
    decides which port stays up: rename the ports, and it is the other one.
    """

    tags = ("fdb", "switch")
    variants = (
        Variant("as-is", "fault", "the twin's port comes first by name, the server's is disabled"),
        Variant("no-guard", "fault", "ports stay up, the server's packets go to its twin", {"guard": False}),
        Variant("other-port", "healthy", "the server's port comes first, the twin's is disabled", {"twin": "behind"}),
        Variant("unplugged", "healthy", "the twin is unplugged, the guard lets go of the port", {"wait": True}),
    )

    def profiles(self, p: Settings) -> dict[str, Profile]:
        guard = {"mac_moves": p.threshold, "mac_move_window": 10, "mac_move_recovery": 60}
        return {"leaf": profile("sonic-mac-move-guard").replace(**guard) if p.guard else profile("sonic")}

    def run(self, run: Run, p: Settings) -> None:
        leaf, (client, server, twin) = run.lab.switch("leaf"), run.nics("client", "server", p.twin)
        captured = leaf[PORTS[p.twin]].capture("udp port 4791")
        connection = run.connect("the client works with the server", client, server)

        with run.step("another host has the server's MAC, and both send"):
            injection = run.inject(DuplicateMac(host=p.twin, of="server", switch="leaf", period=p.period))
            until = run.now + p.flapping
            while run.now < until and not run.log.find("port.disabled"):
                connection.far.write(4096, within=5)
                run.lab.scheduler.sleep(p.period)

        with run.step("the client writes to the server"):
            status = connection.write().status

        moves, disabled = len(run.log.find("fdb.moved")), run.log.find("port.disabled")
        with run.step("the twin is unplugged"):
            captured.stop()
            twin.down()
            injection.recover()
            if p.wait:
                run.expect("the WRITE before", status, "RETRY_EXC_ERR")
                run.eventually("the server's port comes up", lambda: leaf[PORTS["server"]].is_up, True, within=100)
                down_s = (run.log.find("port.enabled")[0]["t"] - disabled[0]["t"]) / 1e9
                run.note(down_for_s=round(down_s))
                run.expect("after its time, at the guard's next look", down_s, lambda seconds: 60 <= seconds <= 90)
                status = run.write(client, server)

        ports = [event["data"]["port"] for event in disabled]
        astray = len(captured.roce(to=server.mac))
        run.note(completion=status, moves=moves, disabled=", ".join(ports) or "none", frames_to_twin=astray)
        run.expect("how often the MAC moved", moves, lambda count: count >= p.threshold)
        if run.observe_status(status, "the client reaches the server"):
            run.expect("the disabled port", ports, [PORTS["server" if p.wait else p.twin]])
        elif p.guard:
            run.expect("the disabled port is the server's", ports, [PORTS["server"]])
        else:
            run.expect("its frames went to the twin", astray, lambda frames: frames >= 4)
