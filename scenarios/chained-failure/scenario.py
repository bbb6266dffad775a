import re

from testbed import Caller, Field, Parameters, Run, Scenario, Variant
from testbed.errors import TestbedError

NETWORKS = ["rdma.conflist"]
ADDRESSES = 3
"""Of the range in rdma.conflist."""
NO_DAEMON, EXHAUSTED = "the policy daemon does not answer", "no IP addresses available in range set"
PIECES = {
    "addresses": r"file .*/networks/rdma/10\.",
    "interfaces": r"(?!the machine).*: interface eth0$",
    "RDMA devices": r"RDMA device ",
}
"""Of a pod's network, each with its line in `resources`."""


class Settings(Parameters):
    deletes: bool = Field(False, description="whether the runtime calls DEL after an ADD that failed")


class ChainedFailure(Scenario[Settings]):
    """The third plugin of a chain fails, nobody undoes the first two, and the pool runs out.

    macvlan has made the interface with an address from host-local, rxe has made its RDMA device. Then the third plugin
    fails, because its daemon does not answer. A plugin undoes nothing of other plugins, and libcni stops at the first
    error. In CNI the runtime is responsible: DEL for the whole list has to follow a failed ADD. If a runtime drops the
    sandbox instead (a failed hook, a crash in between, a home-made caller), address, interface and RDMA device stay,
    and each new attempt takes others. When the daemon is back no pod can start, although none runs.

    GC does not help with today's plugins: libcni deletes the attachments in its cache, and a failed ADD is not in it.
    libcni calls the plugins' own GC only from CNI 1.1.0 on, and Debian's plugins support 1.0.0.

    On real gear: the pod's events change from the third plugin's error to "no IP addresses available in range set". `ls
    /var/lib/cni/networks/<network>` has more files than the node has pods, with container IDs that are not in `crictl
    pods`; `ip netns` and `rdma link` show orphaned sandboxes.

    The fix: the runtime calls DEL after every failed ADD, as containerd, CRI-O and Multus do, and repeats it until it
    succeeds. By hand: delete the files of containers that are gone.
    """

    tags = ("cni", "kubernetes")
    variants = (
        Variant("as-is", "fault", "the runtime leaves a sandbox whose ADD failed as it is"),
        Variant("fixed", "healthy", "it calls DEL after the failed ADD", {"deletes": True}),
    )

    def run(self, run: Run, p: Settings) -> None:
        client, node, pods = run.lab.host("client")["eth1"], run.lab.host("node"), run.lab.pods
        before = run.lab.resources()

        def left() -> dict[str, int]:
            new = run.lab.resources() - before
            return {name: sum(bool(re.match(line, one)) for one in new) for name, line in PIECES.items()}

        def start(name: str) -> str:
            """Why the pod does not start; nothing if it does."""
            try:
                pods.create(node, name, NETWORKS, Caller(deletes_failed=p.deletes))
            except TestbedError as error:
                return error.message
            return ""

        with run.step("the policy daemon is down, and pods start"):
            for number in range(1, ADDRESSES + 1):
                run.expect(f"pod {number} is refused", start(f"web-{number}"), lambda said: NO_DAEMON in said)
        each = 0 if p.deletes else ADDRESSES
        found = left()
        run.note(left_of_three_tries=", ".join(f"{count} {name}" for name, count in found.items()))
        run.expect("what is left of them", found, dict.fromkeys(PIECES, each))

        with run.step("the daemon is back, and a pod starts"):
            run.lab.file("cni/node/run/policyd").touch()
            refused = start("web")
        if refused:
            run.observe("fault", refused)
            run.expect("the pool is used up", refused, lambda said: EXHAUSTED in said)
            with run.step("GC"):
                pods.collect(node, NETWORKS)
                run.expect("GC takes nothing back", left()["addresses"], ADDRESSES)
            return
        with run.step("the client writes to the pod"):
            status = run.write(client, run.lab.host("web")["eth0"])
            run.note(completion=status)
        run.observe_status(status, "the pod starts, and the client reaches it")
