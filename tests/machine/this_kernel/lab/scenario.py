import time
from typing import Literal

from testbed import Field, Parameters, Scenario, Variant, faults


class Settings(Parameters):
    then: Literal["end", "fail", "wait"] = Field("end", description="what the run does when its lab is up")


class Lab(Scenario[Settings]):
    """A lab that changes all that a run can change on a kernel."""

    variants = (Variant("only", "healthy", "a WRITE between two hosts arrives"),)

    def run(self, run, p):
        a, b = run.lab.host("a"), run.lab.host("b")
        run.note(inherited=a.read_sysctl("net/ipv4/conf/all/rp_filter"))
        a.spawn("sleep", "100000")
        b.run("sh", "-c", "setsid sleep 200000 >/dev/null 2>&1 &")  # a daemon that leaves its session
        status = run.write(a["eth1"], b["eth1"])
        with run.fault(faults.NeighbourTableFull(gc_thresh3=1000)):
            run.lab.file("ready").touch()
            if p.then == "fail":
                raise RuntimeError("the user's mistake")
            while p.then == "wait":
                time.sleep(0.1)
        run.observe("healthy" if status == "SUCCESS" else "fault", status)
