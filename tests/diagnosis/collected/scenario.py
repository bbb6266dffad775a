"""A job that fails, and afterwards collect.sh on each of its hosts and switches: a bundle of a real cluster."""

from pathlib import Path

from testbed import Run, Scenario, Variant
from testbed.faults import LinkDown
from testbed.workload import mpirun

HERE = Path(__file__).parent
NODES = ("n1", "n2", "n3", "n4", "leaf1", "leaf2")


class Collected(Scenario):
    """A job that fails."""

    training = True
    variants = (
        Variant("ip-reuse", "fault", "n4 has the address of a node that is gone, and leaf2 has that one's MAC"),
        Variant("link-down", "fault", "the link of n3 goes down in training"),
        Variant("healthy", "healthy", "nothing happens"),
    )

    def run(self, run: Run, p: object) -> None:
        lab = run.lab
        if run.variant.name == "ip-reuse":
            lab.host("n4").run("ping", "-c1", "-W1", "10.1.2.1")
            lab.host("n4").run("ip", "neighbour", "change", "10.1.2.1", "dev", "eth1", "nud", "permanent")
            address = str(lab.host("n4")["eth1"].address())
            for command in (
                ["ip", "address", "add", address, "dev", "eth1"],
                ["ping", "-c1", "-W1", "-I", address.partition("/")[0], "10.1.2.1"],
                ["ip", "address", "delete", address, "dev", "eth1"],
            ):
                lab.host("spare").run(*command)
            run.sleep(100, "the job comes later")
        hosts = [lab.host(name) for name in ("n1", "n2", "n3", "n4")]
        job = mpirun(lab, hosts, HERE / "job.py", launcher=lab.host("launcher"))
        if run.variant.name == "link-down":
            lab.scheduler.wait(lambda: "step 3" in job.output(0), 60, pause=0.05)
            run.inject(LinkDown(end="leaf1:e4"), may_outlast_run=True)
        failure = job.wait(200)
        script = (HERE / "collect.sh").read_text()
        for name in NODES:
            node = lab.host(name) if name.startswith("n") else lab.switch(name)
            printed = node.use("sh", "-s", "ASKED", "1", text=script, within=60).stdout
            lab.file(f"{name}.txt").write_text(printed)
        lab.file("status").write_text(f"{int(failure is not None)}\n")
        run.observe("fault" if failure else "healthy", str(failure))
