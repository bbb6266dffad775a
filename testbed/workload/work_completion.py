"""Completions of work requests, in the words of the standard."""

from dataclasses import dataclass

STATUSES = (
    "SUCCESS", "LOC_LEN_ERR", "LOC_QP_OP_ERR", "LOC_EEC_OP_ERR", "LOC_PROT_ERR", "WR_FLUSH_ERR",
    "MW_BIND_ERR", "BAD_RESP_ERR", "LOC_ACCESS_ERR", "REM_INV_REQ_ERR", "REM_ACCESS_ERR", "REM_OP_ERR",
    "RETRY_EXC_ERR", "RNR_RETRY_EXC_ERR", "LOC_RDD_VIOL_ERR", "REM_INV_RD_REQ_ERR", "REM_ABORT_ERR",
    "INV_EECN_ERR", "INV_EEC_STATE_ERR", "FATAL_ERR", "RESP_TIMEOUT_ERR", "GENERAL_ERR", "TM_ERR",
    "TM_RNDV_INCOMPLETE",
)  # fmt: skip
"""The names of enum ibv_wc_status without IBV_WC_, by their numbers. Source: infiniband/verbs.h."""


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
