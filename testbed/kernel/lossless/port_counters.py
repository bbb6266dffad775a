"""The counters of a lossless link's port, under the names of SONiC (SAI) for a switch's port, of mlx5 for a NIC.

They are read from the memory that the programs share: by the process that loaded them, and by `ethtool -S` of a node.
"""

import time
from collections.abc import Iterable
from ipaddress import IPv6Address
from typing import Any

from testbed.kernel.lossless.layout import PRIORITIES


def of_switch_port(config: Any, state: Any) -> dict[str, int]:
    """Return the counters of a switch's port (struct port_config, struct port_state)."""
    found: dict[str, int] = {}
    for priority in PRIORITIES:
        queue, group = state.queue[priority], state.group[priority]
        lossless = config.lossless >> priority & 1
        if not (queue.in_packets or queue.dropped_packets or lossless):
            continue
        named = f"SAI_QUEUE_STAT_{{}}:{priority}".format
        found |= {
            named("PACKETS"): queue.sent_packets,
            named("DROPPED_PACKETS"): queue.dropped_packets,
            named("BYTES"): queue.sent_bytes,
            named("CURR_OCCUPANCY_BYTES"): queue.bytes,
            named("SHARED_WATERMARK_BYTES"): queue.max,
        }
        if not lossless:
            continue
        if config.marking[priority].interval_us:
            found[f"ecn_probability_ppm:{priority}"] = queue.probability * 1_000_000 >> 16
        grouped = f"SAI_INGRESS_PRIORITY_GROUP_STAT_{{}}:{priority}".format
        watched = f"PFC_WD_QUEUE_STATS_{{}}:{priority}".format
        found |= {
            named("WRED_ECN_MARKED_PACKETS"): queue.marked,
            f"SAI_PORT_STAT_PFC_{priority}_RX_PKTS": _pause_frames(state, "rx", priority),
            f"SAI_PORT_STAT_PFC_{priority}_TX_PKTS": _pause_frames(state, "tx", priority),
            f"SAI_PORT_STAT_PFC_{priority}_ON2OFF_RX_PKTS": queue.on_to_off,
            f"SAI_PORT_STAT_PFC_{priority}_RX_PAUSE_DURATION_US": paused_ns(queue) // 1000,
            f"miss_dropped:{priority}": state.missed[priority],
            grouped("CURR_OCCUPANCY_BYTES"): group.reserve + group.shared + group.headroom,
            grouped("SHARED_WATERMARK_BYTES"): group.max,
            grouped("XOFF_ROOM_WATERMARK_BYTES"): group.max_headroom,
            watched("DEADLOCK_DETECTED"): queue.storms,
            watched("DEADLOCK_RESTORED"): queue.restored,
            watched("TX_PACKETS"): queue.storm_sent,
            watched("TX_DROPPED_PACKETS"): queue.storm_dropped,
            watched("RX_PACKETS"): queue.storm_received,
            watched("RX_DROPPED_PACKETS"): queue.storm_dropped_in,
        }
    return found


def of_nic(config: Any, state: Any, sorter: Any, flows: Iterable[Any]) -> dict[str, int]:
    """Return the counters of a NIC. `sorter` has the state of what puts its packets in order, or is None; `flows` its
    queue pairs (struct flow)."""
    found = {
        "np_ecn_marked_roce_packets": state.ce_packets,
        "np_cnp_sent": state.cnp_sent,
        "rp_cnp_handled": state.cnp_handled,
        "rp_cnp_ignored": state.cnp_ignored,
        "rp_unpaced_packets": state.flows_unpaced,
    }
    if sorter:
        found |= {
            "rx_reordered_packets": sorter.reordered,
            "rx_reorder_held": sorter.held,
            "rx_reorder_most_held": sorter.most_held,
            "rx_reorder_timeouts": sorter.gave_up,
            "rx_reorder_overflows": sorter.overflowed,
            "rx_reorder_discarded": sorter.discarded,
            "rx_unsorted_packets": state.unsorted,
        }
    if config.algorithm:
        found |= {f"rp_rate_bps:{peer}#{number}": rate for peer, number, rate in rates(flows)}
    for priority in PRIORITIES:
        if config.lossless >> priority & 1:
            found |= {
                f"rx_prio{priority}_pause": _pause_frames(state, "rx", priority),
                f"tx_prio{priority}_pause": _pause_frames(state, "tx", priority),
                f"rx_prio{priority}_pause_duration": paused_ns(state.queue[priority]) // 1000,
                f"tx_prio{priority}_packets": state.queue[priority].sent_packets,
                f"tx_prio{priority}_bytes": state.queue[priority].sent_bytes,
            }
    return found


def _pause_frames(state: Any, way: str, priority: int) -> int:
    """Return the number of frames that stop and that resume a priority, as NICs and switches count them."""
    return int(getattr(state, f"{way}_pause")[priority] + getattr(state, f"{way}_resume")[priority])


def paused_ns(queue: Any) -> int:
    """Return the nanoseconds for which its peer has stopped a queue so far; of a pause that lasts, until now."""
    while True:
        since, until, ended = queue.paused_at, queue.pause_until, queue.paused_ns
        now = min(until, time.monotonic_ns())  # the programs' bpf_ktime_get_ns
        if (since, until, ended) == (queue.paused_at, queue.pause_until, queue.paused_ns):
            return int(ended + (now - since if since else 0))


def rates(flows: Iterable[Any]) -> list[tuple[str, int, int]]:
    """Return queue pairs: address of the peer, its number there, and bits per second; 0 for one that is not limited."""
    return [(_address(bytes(one.address)), one.qpn, one.rate if one.limited else 0) for one in flows]


def _address(mapped: bytes) -> str:
    found = IPv6Address(mapped)
    return str(found.ipv4_mapped or found)
