"""Counters of RDMA devices under the names of a hardware NIC's driver (mlx5), beside soft-RoCE's own."""

from collections.abc import Mapping

OF_SOFT_ROCE = {
    "out_of_sequence": "out_of_seq_request",
    "packet_seq_err": "rcvd_seq_err",
    "out_of_buffer": "send_rnr_err",
    "rnr_nak_retry_err": "rcvd_rnr_err",
    "req_transport_retries_exceeded": "retry_exceeded_err",
}
"""Counters of the same events. mlx5's `local_ack_timeout_err` has none: soft-RoCE counts retries of all causes."""


def with_hardware_names(counters: Mapping[str, int]) -> dict[str, int]:
    """Return the counters, with both names where hardware has another."""
    return {**counters, **{name: counters[own] for name, own in OF_SOFT_ROCE.items() if own in counters}}
