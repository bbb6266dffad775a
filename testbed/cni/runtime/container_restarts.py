"""Containers of pods that start again after their end, as by kubelet, and what the pods' objects say of it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from testbed.cni.objects.main_container import main_of
from testbed.cni.objects.manifests import Object
from testbed.cni.objects.workloads import Run, owner_of
from testbed.lab.context import Context
from testbed.lab.nodes.host_node import Pod
from testbed.protocol import events

if TYPE_CHECKING:
    from testbed.cni.objects.lab_objects import Cluster
CRASH_LOOP = "CrashLoopBackOff"
FIRST_PAUSE, LONGEST_PAUSE = 10.0, 300.0
"""Seconds of kubelet's pauses, which double."""
LONG_RUN = 600.0
"""Seconds after which a container that ends is started again at once, as if it had never ended before."""


class ContainerRestarts:
    """The containers that have ended and start again."""

    def __init__(self, context: Context, cluster: Cluster, started: Callable[[Pod], None]) -> None:
        """`started` is called for a pod whose container was started again."""
        self._context, self._cluster, self._started = context, cluster, started
        self._due: dict[int, float] = {}
        """When they start, by the numbers of their pods."""

    @staticmethod
    def wanted(run: Run, status: int) -> bool:
        """Return whether kubelet starts a container again that has ended. One of a Job is replaced by its Job."""
        policy = run.pod.spec.get("restartPolicy", "Always")
        return policy == "Always" or bool(policy == "OnFailure" and status and owner_of(run.pod)[0] != "Job")

    def next(self, runs: Iterable[Run]) -> float:
        """Return the seconds until the next container of these pods starts again; forget those of others."""
        there = {run.number for run in runs}
        self._due = {number: at for number, at in self._due.items() if number in there}
        return max(0.0, min((at - time.monotonic() for at in self._due.values()), default=math.inf))

    def restart(self, run: Run, pod: Pod) -> None:
        """Start the container of a pod again when kubelet does: at once the first time, later after a pause."""
        now = time.monotonic()
        due = self._due.get(run.number)
        if due is None:
            if now - run.began_s > LONG_RUN:
                run.quick = 0
            due = self._due[run.number] = now + pause_after(run.quick)
            if due > now:
                self.show(run, waits=True)
                text = f"{CRASH_LOOP}: its container has ended with status {run.exit_code}, and starts again in "
                self._context.emit(events.POD(host=run.node), run.pod.name, f"{text}{due - now:g} s")
        if now < due:
            return
        del self._due[run.number]
        run.restarts, run.quick, run.began_s = run.restarts + 1, run.quick + 1, now
        pod.start_again()
        self._started(pod)
        self.show(run, waits=False)

    def show(self, run: Run, *, waits: bool) -> None:
        """Put into the object of a pod how often its container was started again, and whether it waits for that."""
        state: dict[str, Any] = {"waiting": {"reason": CRASH_LOOP}} if waits else {"running": {}}
        last = {"terminated": {"exitCode": run.exit_code}}
        self._put(run, {}, {"ready": not waits, "state": state, "lastState": last})

    def show_phase(self, run: Run) -> None:
        """Put into the object of a pod that it has succeeded or failed."""
        ended = {"ready": False, "state": {"terminated": {"exitCode": run.exit_code}}}
        self._put(run, {"phase": run.state.title()}, ended)

    def _put(self, run: Run, status: dict[str, Any], container: dict[str, Any]) -> None:
        if there := self._cluster.look("Pod", run.pod.name, run.pod.namespace):
            container = {"name": main_of(run.pod).name, "restartCount": run.restarts, **container}
            status = {**(there.data.get("status") or {}), **status, "containerStatuses": [container]}
            self._cluster.put(Object("Pod", there.name, there.namespace, {**there.data, "status": status}))


def pause_after(restarts: int) -> float:
    """Return the seconds after which kubelet starts a container again that has been started so often without a long
    run (pkg/kubelet, doBackOff)."""
    return min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** (restarts - 1)) if restarts else 0.0
