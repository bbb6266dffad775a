"""The attributes of a reliable connection, set by modify-to-RTR and modify-to-RTS, and its completions of requests."""

from dataclasses import dataclass

from testbed.errors import InputError
from testbed.lab.slow_motion import ack_timeout_s
from testbed.nic.connections import source_port

VALID: dict[str, range | tuple[int, ...]] = {
    "timeout": range(32),
    "retry_cnt": range(8),
    "rnr_retry": range(8),
    "min_rnr_timer": range(32),
    "path_mtu": (256, 512, 1024, 2048, 4096),
    "traffic_class": range(256),
    "flow_label": range(1 << 20),
    "hop_limit": range(1, 256),
    "max_rd_atomic": range(1, 129),
}
STATUSES = (
    "SUCCESS", "LOC_LEN_ERR", "LOC_QP_OP_ERR", "LOC_EEC_OP_ERR", "LOC_PROT_ERR", "WR_FLUSH_ERR",
    "MW_BIND_ERR", "BAD_RESP_ERR", "LOC_ACCESS_ERR", "REM_INV_REQ_ERR", "REM_ACCESS_ERR", "REM_OP_ERR",
    "RETRY_EXC_ERR", "RNR_RETRY_EXC_ERR", "LOC_RDD_VIOL_ERR", "REM_INV_RD_REQ_ERR", "REM_ABORT_ERR",
    "INV_EECN_ERR", "INV_EEC_STATE_ERR", "FATAL_ERR", "RESP_TIMEOUT_ERR", "GENERAL_ERR", "TM_ERR",
    "TM_RNDV_INCOMPLETE",
)  # fmt: skip
"""The names of enum ibv_wc_status without IBV_WC_, by their numbers. Source: infiniband/verbs.h."""


@dataclass(frozen=True, slots=True)
class Attributes:
    """The values of one side. InputError if one is out of range. Source: ibv_modify_qp(3); measurements of rxe."""

    timeout: int = 14
    """Local ACK timeout, 4.096 us * 2^timeout. rxe: 68 ms for 14, exact to a jiffy of 4 ms from 13 on, at least 6 ms
    below; no back-off. 0 means no retransmission at all: a lost packet never completes."""
    retry_cnt: int = 3
    """Retransmissions before RETRY_EXC_ERR, so retry_cnt + 1 timeouts pass. 7 is for ever on rxe, 7 on hardware."""
    rnr_retry: int = 3
    """Retries before RNR_RETRY_EXC_ERR when the peer has no receive posted; 7 is for ever, as in the standard."""
    min_rnr_timer: int = 12
    """The peer's wait between those retries, a code: 12 is 0.64 ms, 0 is 655 ms. rxe: at least 8 ms."""
    path_mtu: int = 1024
    """Payload bytes a packet: 256, 512, 1024, 2048 or 4096, and the smaller one of both interfaces at most."""
    traffic_class: int = 0
    """The IP type of service: DSCP * 4 + ECN."""
    flow_label: int = 0
    """The choice of the UDP source port, and so of the path through ECMP. 0: made of both queue pair numbers."""
    hop_limit: int = 64
    """The IP time to live. rxe always sends 64."""
    max_rd_atomic: int = 16
    """READs and atomics in flight, as initiator and as responder."""

    def __post_init__(self) -> None:
        for name, valid in VALID.items():
            value = getattr(self, name)
            if isinstance(value, bool) or value not in valid:
                text = f"{valid[0]} to {valid[-1]}" if isinstance(valid, range) else "one of " + str(valid)[1:-1]
                raise InputError(f"{name} is {value!r}", hint=f"It is {text}.")

    @property
    def retry_s(self) -> float:
        """Return nominal seconds until RETRY_EXC_ERR on a path that is dead. Infinite where rxe never gives up."""
        if self.timeout == 0 or self.retry_cnt == 7:
            return float("inf")
        return (self.retry_cnt + 1) * ack_timeout_s(self.timeout)

    @property
    def source_port(self) -> int:
        """Return the UDP source port that the flow label chooses. InputError without one: the QP numbers decide."""
        if not self.flow_label:
            raise InputError("without a flow label the UDP source port depends on the queue pairs")
        return source_port(self.flow_label, 0, 0)


@dataclass(frozen=True, slots=True)
class Completion:
    """The completion of a work request. `status` and `opcode` are the standard names (IBV_WC_…) without their prefix.

    `byte_len` is the number of bytes received or read. `posted_ns` and `t_ns`, the time of reading it from the queue,
    are CLOCK_MONOTONIC. `near` and `far` are the ends of the connection: its address and the number of its queue pair;
    `far` is None without a connection.
    """

    wr_id: int
    opcode: str
    status: str
    byte_len: int
    posted_ns: int
    t_ns: int
    near: tuple[str, int]
    far: tuple[str, int] | None

    @property
    def ok(self) -> bool:
        return self.status == "SUCCESS"

    @property
    def elapsed_s(self) -> float:
        return (self.t_ns - self.posted_ns) / 1e9
