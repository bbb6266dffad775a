"""CPU limits of Mininet's hosts by cgroup v2. `CPULimitedHost` of Mininet 2.3.0, Debian's, knows version 1 alone."""

from pathlib import Path
from typing import Any

GROUPS = Path("/sys/fs/cgroup")
SHORTEST_US = 1000
"""The smallest quota of the kernel."""
INTO = 'echo $$ > "$0" && exec "$@"'
"""A shell that enters a group and becomes another program."""


class CpuLimited:
    """What replaces methods of CPULimitedHost. Its group is below one of all hosts, which has the controllers."""

    def __init__(self: Any, name: str, sched: str = "cfs", **params: Any) -> None:
        from mininet.node import Host

        if sched == "rt":
            raise ValueError(f"host {name}: cgroup v2 has no limits for real time (sched='rt'): use sched='cfs'")
        Host.__init__(self, name, **params)
        self.sched, self.period_us = sched, params.get("period_us", 100_000)
        self.group = GROUPS / "mininet" / name
        self.group.mkdir(parents=True, exist_ok=True)
        for above in GROUPS, self.group.parent:
            (above / "cgroup.subtree_control").write_text("+cpu +cpuset")
        (self.group / "cgroup.procs").write_text(str(self.pid))

    def popen(self: Any, *words: Any, **options: Any) -> Any:
        from mininet.node import Host

        enter = ["sh", "-c", INTO, str(self.group / "cgroup.procs"), "mnexec", "-da", str(self.pid)]
        return Host.popen(self, *words, mncmd=options.pop("mncmd", enter), **options)

    def setCPUFrac(self: Any, f: float, sched: str | None = None) -> None:  # noqa: N802
        """Limit the host to this fraction of all CPUs; without a limit if negative."""
        from mininet.log import info
        from mininet.util import numCores

        if (sched or self.sched) != "cfs":
            return
        quota, period = int(self.period_us * f * numCores()), self.period_us
        if f > 0 and quota < SHORTEST_US:
            quota, period = SHORTEST_US, int(SHORTEST_US / f / numCores())
        limit = str(quota) if quota >= 0 else "max"
        (self.group / "cpu.max").write_text(f"{limit} {period}")
        info(f"(cfs {limit}/{period}us) ")

    def setCPUs(self: Any, cores: Any, mems: int = 0) -> None:  # noqa: N802
        """Let the host run on these CPUs only: a number, a list, or text as `0-1`."""
        if cores is not None:
            chosen = ",".join(map(str, cores)) if isinstance(cores, list) else str(cores)
            (self.group / "cpuset.cpus").write_text(chosen)
            (self.group / "cpuset.mems").write_text(str(mems))

    def cgroupDel(self: Any) -> bool:  # noqa: N802
        """Remove the group. Return whether it is gone; a program that is ending may be in it."""
        try:
            self.group.rmdir()
        except FileNotFoundError:
            return True
        except OSError:
            return False
        return True


def use_cgroup_v2(kind: Any) -> None:
    """Give CPULimitedHost these methods."""
    for name in "__init__", "popen", "setCPUFrac", "setCPUs", "cgroupDel":
        setattr(kind, name, getattr(CpuLimited, name))
