import time
from typing import Literal

from testbed import Field, Parameters, Scenario, Variant


class Settings(Parameters):
    then: Literal["end", "wait"] = Field("end", description="what the run does when its lab is up")


class Nics(Scenario[Settings]):
    """Two hosts with NICs of this machine, whose cables end at a switch of the lab."""

    variants = (Variant("only", "healthy", "a WRITE arrives once the link loses nothing"),)

    def run(self, run, p):
        a, b = run.lab.host("a")["eth1"], run.lab.host("b")["eth1"]
        lossy = run.write(a, b)
        b.peer.sends.change(loss=0)
        b.sends.change(loss=0)
        run.note(
            lossy=lossy,
            devices=[a.device, b.device],
            seen=run.lab.host("a").run("ls", "/sys/class/infiniband", "/dev/infiniband").stdout.split(),
            mtu=a.mtu,
            modelled=b.nic is not None,
        )
        status = run.write(a, b)
        run.note(passed=b.peer.counters()["tx_packets"] >= a.rdma_counters()["sent_pkts"] > 0)
        run.lab.file("ready").touch()
        while p.then == "wait":
            time.sleep(0.1)
        run.observe("healthy" if status == "SUCCESS" else "fault", status)
