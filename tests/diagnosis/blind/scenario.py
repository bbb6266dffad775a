"""A job in which something goes wrong at a moment: what `testbed diagnose` is tried on, without knowing it."""

import json
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field

from testbed import Run, Scenario, Variant
from testbed.errors import DeadlineError
from testbed.faults.catalogue import KINDS
from testbed.faults.fault import make
from testbed.workload import mpirun

PROGRAM = Path(__file__).with_name("job.py")
RING = {"coll_tuned_use_dynamic_rules": "1", "coll_tuned_allreduce_algorithm": "4"}
LOSSLESS = {"UCX_IB_TRAFFIC_CLASS": str(26 << 2 | 2)}


class Case(BaseModel):
    hosts: list[str] = Field(["h1", "h2", "h3", "h4"], description="the host of each rank, or its interface")
    pattern: str = Field("allreduce", description="what the ranks do")
    options: list[str] = Field([], description="further options of job.py")
    after: int = Field(3, description="how many steps every rank has done before the trouble comes; 0: before the job")
    faults: list[dict[str, Any]] = Field([], description="faults: name and parameters, and `lasting` seconds")
    announced: list[str] = Field([], description="interfaces whose host announces its address after the faults")
    commands: list[list[str]] = Field([], description="commands: the node first")
    environment: dict[str, str] = Field({}, description="variables of the ranks")
    lossless: bool = Field(False, description="whether the job is in the lossless class")
    limit: float = Field(120.0, description="seconds after which the job is ended")


class Blind(Scenario):
    """A job in which something goes wrong."""

    training = True
    variants = (Variant("job", "healthy", "whatever comes"),)

    def run(self, run: Run, p: object) -> None:
        p = Case(**json.loads(Path(__file__).with_name("case.json").read_text()))
        lab = run.lab
        places = [lab.interface(name) if ":" in name else lab.host(name) for name in p.hosts]
        if not p.after:
            self.trouble(run, p)
        environment = (LOSSLESS if p.lossless else {}) | p.environment
        job = mpirun(
            lab,
            places,
            PROGRAM,
            p.pattern,
            *p.options,
            launcher=lab.host("launcher"),
            mca=RING,
            environment=environment,
        )
        if p.after:

            def done() -> int:
                return min(job.output(rank.number).count("step") for rank in job.ranks)

            lab.scheduler.wait(lambda: done() >= p.after or not job.running, p.limit, pause=0.05)
            self.trouble(run, p)
        try:
            failure = job.wait(p.limit)
            run.note(end=str(failure))
        except DeadlineError as error:
            run.note(end=error.message)
        run.observe("healthy", "the job has ended")

    def trouble(self, run: Run, p: Case) -> None:
        for one in p.faults:
            parameters = {key: value for key, value in one.items() if key not in ("fault", "lasting")}
            run.inject(make(KINDS, one["fault"], parameters), lasting=one.get("lasting"), may_outlast_run=True)
        for name in p.announced:
            run.lab.interface(name).announce()
        for node, *command in p.commands:
            run.lab.nodes[node].run(*command)
