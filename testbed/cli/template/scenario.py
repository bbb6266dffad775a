from pydantic import Field

from testbed import Parameters, Run, Scenario, Variant
from testbed.workload import connected


class Settings(Parameters):
    down: float = Field(1.0, gt=0, description="seconds for which the link is down")


class Flap(Scenario[Settings]):
    """A link flaps under an RDMA connection, for longer than its queue pair retries or for less."""

    variants = (
        Variant("long", "fault", "the link is down for 1 s; the queue pair gives up after 0.3 s"),
        Variant("short", "healthy", "the link is back before that", {"down": 0.1}),
    )

    def run(self, run: Run, p: Settings) -> None:
        client, server = run.nics("client", "server")
        port = run.lab.switch("leaf")["e2"]
        with connected(client, server) as (near, _):
            with run.step("the server's link goes down under a WRITE"):
                port.down()
                request = near.post_write(4096)
                run.sleep(p.down, "the link is down")
                port.up()
            result = run.completed(client, near.wait(request, within=10))
        run.note(completion=result.status)
        run.observe_status(result.status, "the WRITE arrives")
