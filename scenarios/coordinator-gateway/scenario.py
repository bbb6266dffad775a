from typing import Any

from testbed import Caller, Field, Parameters, Run, Scenario, Variant
from testbed.errors import TestbedError
from testbed.faults import SwitchCpuOutage

KUBELET = Caller(attempts=5)
"""kubelet's pause, and no more attempts than are needed."""


class Settings(Parameters):
    detect: bool = Field(False, description="whether the plugin asks for the gateway before the pod is up")
    gateway_first: bool = Field(False, description="whether it does so before it asks who has the address")
    outage: float = Field(20.0, ge=0, description="seconds for which the switch's CPU answers no ARP; 0: it answers")
    taken: bool = Field(False, description="whether the pod's address is the storage's; else it is free")


class CoordinatorGateway(Scenario[Settings]):
    """A CNI plugin probes the pod's gateway: without it the job starts too early, in the wrong order others suffer.

    The switch's CPU is down for 20 s and answers no ARP. A pod that starts meanwhile is up at once, and its job's first
    queue pair fails with ETIMEDOUT in the transition to RTR. With gateway detection (Spiderpool's
    enableGatewayDetection) ADD fails with a clear message, and kubelet tries again until the gateway answers.

    The probe has a side effect: the gateway learns the pod's address from it. Suppose the address belongs to another
    host, and the plugin probes the gateway first and the conflict second. Then the pod is refused, but the switch has
    its MAC in the owner's entry. The owner's connections die, and no trace of the refused pod is left (Spiderpool
    #4475).

    On real gear: kubelet's event is `gateway … is unreachable`. For the wrong order: `show ip arp` has a MAC that is on
    no port any more, from the second in which a pod was refused.

    The fixes: gateway detection as the last step, after conflict detection.
    """

    tags = ("arp", "cni", "kubernetes")
    variants = (
        Variant("as-is", "fault", "the pod starts while the gateway is away"),
        Variant("detected", "healthy", "the pod is refused until the gateway answers", {"detect": True}),
        Variant(
            "wrong-order",
            "fault",
            "the address is taken, and the gateway is asked first",
            {"detect": True, "gateway_first": True, "outage": 0, "taken": True},
        ),
        Variant(
            "right-order", "healthy", "the conflict is looked for first", {"detect": True, "outage": 0, "taken": True}
        ),
    )

    def run(self, run: Run, p: Settings) -> None:
        run.lab.host("node1").add_vf("eth1v0", "eth1")
        if p.taken:
            self.occupy(run, p)
        else:
            self.start(run, p)

    def start(self, run: Run, p: Settings) -> None:
        """A job's pod starts while the switch's CPU is away."""
        storage = run.lab.host("storage")["eth1"]
        with run.step("the switch's CPU goes away"):
            run.inject(SwitchCpuOutage(switch="leaf"), lasting=p.outage, may_outlast_run=True)
        with run.step("the pod starts, and its job connects"):
            pod = run.lab.pods.create(run.lab.host("node1"), "worker", [network(p, "10.0.20.100")], KUBELET)
            ready = run.now
            status = run.write(pod["eth0"], storage)
        refused = [event["data"]["error"] for event in run.events("pod.refused")]
        run.note(outcome=status, refused=len(refused), ready_s=round(ready, 1))
        if status != "SUCCESS":
            run.observe("fault", f"the job's first queue pair dies of {status}")
            run.expect("it has no MAC for its gateway", status, "ETIMEDOUT")
        else:
            run.observe("healthy", "the job's first queue pair works")
            named = ["gateway 10.0.20.1 does not answer" in text for text in refused]
            run.expect("the gateway is the reason of each refusal", named, lambda found: found != [] and all(found))
            run.expect("the pod is ready when the gateway is back", ready, lambda seconds: seconds > p.outage)

    def occupy(self, run: Run, p: Settings) -> None:
        """A pod is to have the address of a server, which works with a client."""
        server = run.lab.host("server")["eth1"]
        connection = run.connect("the client works with the server", run.lab.host("storage")["eth1"], server)
        refused = ""
        with run.step("a pod with the server's address is refused"):
            try:
                run.lab.pods.create(run.lab.host("node1"), "worker", [network(p, str(server.address().ip))])
            except TestbedError as error:
                refused = error.message
        run.expect("because of its owner", refused, lambda text: server.mac in text)
        status = connection.write().status
        known = run.lab.switch("leaf").neighbour(server.address().ip)
        run.note(outcome=status, switch_has="server" if known == server.mac else "the pod that is no more")
        run.observe_status(status, "the client goes on")


def network(p: Settings, address: str) -> dict[str, Any]:
    """The conflist of a VF with an address."""
    pool = {"subnet": "10.0.20.0/24", "ips": [address], "gateway": "10.0.20.1"}
    steps = ["gateway", "conflict"] if p.gateway_first else ["conflict", "gateway"]
    coordinator = {"type": "coordinator", "steps": steps, "detectIPConflict": True, "detectGateway": p.detect}
    ipam = {"type": "ippool", "pools": [pool]}
    plugins = [{"type": "host-device", "device": "eth1v0", "ipam": ipam}, coordinator, {"type": "rxe"}]
    return {"cniVersion": "1.0.0", "name": "vf", "plugins": plugins}
