from testbed import Field, Parameters, Run, Scenario, Variant
from testbed.faults import LinkDown
from testbed.workload import Attributes


class Settings(Parameters):
    down: float = Field(1.0, gt=0, description="seconds that the link is down")
    timeout: int = Field(14, ge=1, le=31, description="the QP's ACK timeout, 4.096 us * 2^timeout")
    retry_cnt: int = Field(3, ge=0, le=6, description="the QP's retries; 7 would be infinite on soft-RoCE")


class LinkFlapRetryWindow(Scenario[Settings]):
    """A link flaps for less, or for more, than the retry window of a connection.

    A dying optic or a port that renegotiates interrupts the link for a moment. A queue pair retransmits after its
    timeout, and gives up after retry_cnt times: its window is (retry_cnt + 1) timeouts on soft-RoCE and many NICs. With
    timeout 14 and 3 retries it is 0.27 s; with NCCL's default, timeout 20 and 7 retries, half a minute.

    On real gear: link flap counters at both ends; `local_ack_timeout_err` grows on the NIC; with
    `req_transport_retries_exceeded` the job ends with RETRY_EXC_ERR.

    The fix: a window longer than the outages to survive (NCCL_IB_TIMEOUT, UCX_RC_TIMEOUT and their retry counts), and a
    restart of the job after longer ones.
    """

    tags = ("link",)
    variants = (
        Variant("longer", "fault", "the link is away for 1 s, the window is 0.27 s"),
        Variant("shorter", "healthy", "it is away for 0.15 s", {"down": 0.15}),
        Variant("wider-window", "healthy", "it is away for 1 s, the window is 4.3 s", {"timeout": 18}),
    )

    def run(self, run: Run, p: Settings) -> None:
        client, server = run.nics("client", "server")
        attributes = Attributes(timeout=p.timeout, retry_cnt=p.retry_cnt)
        connection = run.connect("a connection works", client, server, attributes)

        with run.step("the server's link flaps, and the client writes"):
            before = client.rdma_counters()["completer_retry_err"]
            run.inject(LinkDown(end="leaf:e2"), lasting=p.down)
            done = connection.write()
            run.sleep(max(0.0, p.down - done.elapsed_s) + 1, "the link is back")
            retries = client.rdma_counters()["completer_retry_err"] - before

        after_s, window_s = round(done.elapsed_s, 3), round(attributes.retry_s, 2)
        run.note(completion=done.status, after_s=after_s, retries=retries, window_s=window_s)
        if run.observe_status(done.status, f"the WRITE arrives after {done.elapsed_s:.2f} s"):
            run.expect("it had to be sent again", retries, lambda count: 0 < count <= p.retry_cnt)
            run.expect("it arrived when the link was back", done.elapsed_s, lambda seconds: seconds > p.down)
        else:
            run.expect("the retries were used up", retries, p.retry_cnt)
            run.expect("the link was still away", done.elapsed_s, lambda seconds: seconds < p.down)

        with run.step("a new connection after the flap"):
            run.expect("a new connection works", run.write(client, server, attributes), "SUCCESS")
