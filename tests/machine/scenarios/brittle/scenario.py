from testbed import Field, Parameters, Run, Scenario, Variant
from testbed.faults import LinkDown


class Settings(Parameters):
    writes: int = Field(1, ge=1, description="WRITEs; the server's link goes down before the second")
    size: int = Field(64, ge=1, description="bytes of each")


class Brittle(Scenario[Settings]):
    """A second WRITE fails, for one of two faults."""

    variants = (Variant("as-is", "healthy", "all arrive"),)

    def run(self, run: Run, p: Settings) -> None:
        client, server = run.nics("client", "server")
        run.inject(LinkDown(end="sw:e3"))
        for number in range(p.writes):
            if number == 1:
                run.inject(LinkDown(end="sw:e2"))
            run.expect(f"WRITE {number + 1}", run.write(client, server, size=p.size), "SUCCESS")
        run.observe("healthy", "it is over")
