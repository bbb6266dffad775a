"""See the docstring of LinkFlapRetryWindow, or `testbed describe link-flap-retry-window`."""

from __future__ import annotations

from pydantic import Field

from testbed import Parameters, Run, Scenario, Variant
from testbed.faults import LinkDown
from testbed.workload.attributes import Attributes
from testbed.workload.counters import counters
from testbed.workload.verbs import connect_pair

MESSAGE = 4096


class Settings(Parameters):
    down: float = Field(1.0, gt=0, description="seconds that the link is down")
    timeout: int = Field(14, ge=1, le=31, description="the QP's ACK timeout, 4.096 us * 2^timeout")
    retry_cnt: int = Field(3, ge=0, le=6, description="the QP's retries; 7 would be infinite on soft-RoCE")


class LinkFlapRetryWindow(Scenario):
    """
    A link flaps. Whether a connection lives through it is a matter of its retries: (retry_cnt + 1) timeouts.

    An optic that is dying or a port that renegotiates takes the link away for a moment. A queue pair sends again when
    its timeout is over, and gives up after retry_cnt times; on soft-RoCE each takes the same time, on many NICs too.
    With timeout 14 and 3 retries that is 0.27 s, with NCCL's default, timeout 20 and 7 retries, half a minute.

    On real gear: link flap counters at both ends; `local_ack_timeout_err` grows on the NIC; with
    `req_transport_retries_exceeded` the job ends with RETRY_EXC_ERR.

    The cure: a window that is longer than the outages that are to be survived (NCCL_IB_TIMEOUT, UCX_RC_TIMEOUT and
    their retry counts), and a job that is restarted for those that are longer.
    """

    title = "A link flaps for less, or for more, than the retry window"
    tags = ("link",)
    parameters = Settings
    variants = (
        Variant("longer", "fault", "the link is away for 1 s, the window is 0.27 s"),
        Variant("shorter", "healthy", "it is away for 0.15 s", {"down": 0.15}),
        Variant("wider-window", "healthy", "it is away for 1 s, the window is 4.3 s", {"timeout": 18}),
    )

    def run(self, run: Run, p: Settings) -> None:
        client, server = run.lab.host("client"), run.lab.host("server")
        attributes = Attributes(timeout=p.timeout, retry_cnt=p.retry_cnt)
        with run.endpoint(client, "eth1") as near, run.endpoint(server, "eth1") as far:
            with run.step("a connection works"):
                connect_pair(near, far, attributes)
                run.expect("the first WRITE", run.completed(client, near.write(MESSAGE, within=5)).status, "SUCCESS")

            with run.step("the server's link flaps, and the client writes"):
                before = counters(client.rdma["eth1"], client.namespace)
                run.inject(LinkDown(end="leaf:e2"), lasting=p.down)
                done = run.completed(client, near.write(MESSAGE, within=600))
                run.sleep(max(0.0, p.down - done.elapsed_s) + 1, "the link is back")
                after = counters(client.rdma["eth1"], client.namespace)

        retries = after["completer_retry_err"] - before["completer_retry_err"]
        run.note(
            completion=done.status,
            after_s=round(done.elapsed_s, 3),
            retries=retries,
            window_s=round(attributes.retry_s, 2),
        )
        if done.ok:
            run.observe("healthy", f"the WRITE arrives after {done.elapsed_s:.2f} s")
            run.expect("it had to be sent again", retries, lambda count: 0 < count <= p.retry_cnt)
            run.expect("it arrived when the link was back", done.elapsed_s, lambda seconds: seconds > p.down)
        else:
            run.observe("fault", f"the client's work request dies of {done.status}")
            run.expect("it dies of unanswered retries", done.status, "RETRY_EXC_ERR")
            run.expect("the retries were used up", retries, p.retry_cnt)
            run.expect("the link was still away", done.elapsed_s, lambda seconds: seconds < p.down)

        with run.step("a new connection after the flap"):
            run.expect("a new connection works", run.write(client, server, attributes), "SUCCESS")
