"""What a diagnosis observes, some rule reads: an event or a counter that nobody reads makes a slow job healthy."""

import ast
from pathlib import Path

import pytest

import testbed.report
from testbed.protocol import events
from testbed.records.counter_names import Counter, known
from testbed.report.diagnosis.observations import SHOWN
from testbed.report.diagnosis.rules import congestion_control
from testbed.report.diagnosis.rules.pauses import DROPPED, FRAMES, PAUSED_US, RESUMED, SENT, WATCHED

SOURCES = [
    *(Path(testbed.report.__path__[0]) / "diagnosis").rglob("*.py"),
    Path(testbed.report.__path__[0]) / "owners.py",
    Path(testbed.report.__path__[0]).parent / "records" / "switch_tables.py",
]
NOT_READ = {
    events.Lossless: "a packet that waits for a MAC is counted as miss_dropped where it is lost",
    events.Resumed: "a job that goes on has pauses in its flight records",
    events.JobStep: "steps are those of flight records",
}
"""Events that no rule reads, and why not."""
NO_RULE = {
    "rx_dropped": "the kernel counts what no protocol takes, too",
    "tx_dropped": "as rx_dropped",
    "rx_errors": "the sum of others",
    "tx_errors": "the sum of others",
    "collisions": "none on full-duplex links",
    "tx_heartbeat_errors": "none on full-duplex links",
    "tx_window_errors": "none on full-duplex links",
    "tx_aborted_errors": "of the sender's NIC, before the link",
    "tx_carrier_errors": "a link that is down is an event",
    "tx_fifo_errors": "of the sender's NIC, before the link",
    "link_downed": "a link that is down is an event",
    "link_down_events_phy": "a link that is down is an event",
    "queue_lost": "the lab's own knowledge",
    "queue_marked": "marks are judged by their answers",
    "rx_reorder": "a NIC that puts packets in order says what it did; gaps that it leaves are counted",
    "rx_unsorted_packets": "as rx_reorder",
    "rp_unpaced_packets": "a limit of the emulation",
    "roce_": "adaptive retransmission of ConnectX, beside the counters of retries",
    "PFC_WD_QUEUE_STATS_TX_DROPPED_PACKETS": "the storm is found by DEADLOCK_DETECTED",
    "PFC_WD_QUEUE_STATS_RX_DROPPED_PACKETS": "the storm is found by DEADLOCK_DETECTED",
    "SAI_QUEUE_STAT_WRED_ECN_MARKED_PACKETS": "marks are judged by their answers",
    "duplicate_request": "the answer was lost, which its sender counts as a retry",
    "send_err": "the kernel's, in the sender",
    "rnr": "a receiver that is not ready is the program's pace",
    "out_of_buffer": "a receiver that is not ready is the program's pace",
    "local_length": "errors of a program, which end its queue pair with a status",
    "cqe_error": "the status of a completion ends the job",
    "remote_": "errors of a program, which end its queue pair with a status",
    "out_of_sequence": "out_of_seq_request of soft-RoCE, under ConnectX' name",
    "packet_seq_err": "rcvd_seq_err of soft-RoCE, under ConnectX' name",
    "req_transport_retries_exceeded": "retry_exceeded_err of soft-RoCE, under ConnectX' name",
    "local_ack_timeout_err": "completer_retry_err of soft-RoCE, under ConnectX' name",
    "implied_nak_seq_err": "of ConnectX, beside its NAKs",
}
"""Counters with a meaning that no rule reads, by a part of their names, and why not."""
BY_NAME = [PAUSED_US, FRAMES, RESUMED, SENT, WATCHED, DROPPED]


def used(file: Path) -> set[str]:
    """The attributes and names that the functions of a source file use."""
    made = [node for node in ast.parse(file.read_text()).body if isinstance(node, ast.ClassDef | ast.FunctionDef)]
    nodes = [node for one in made for node in ast.walk(one)]
    return {node.attr for node in nodes if isinstance(node, ast.Attribute)} | {
        node.id for node in nodes if isinstance(node, ast.Name)
    }


USED = set().union(*map(used, SOURCES))


@pytest.mark.parametrize("kind", SHOWN)
def test_each_kind_of_event_has_a_reader_or_a_reason(kind: type[events.Data]) -> None:
    assert (kind.__name__ in USED) != (kind in NOT_READ)


def is_read(counter: Counter) -> bool:
    name = counter.name.replace("<priority>", "3")
    named = name in Path(congestion_control.__file__).read_text() or name == "rx_icrc_encapsulated"
    return bool(counter.role) or named or any(pattern.fullmatch(name) for pattern in BY_NAME)


@pytest.mark.parametrize("counter", [one for one in known() if one.meaning in ("error", "congestion")], ids=str)
def test_each_counter_of_trouble_has_a_rule_or_a_reason(counter: Counter) -> None:
    reasons = [part for part in NO_RULE if part in counter.name]
    assert is_read(counter) or reasons, f"no rule reads {counter.name}"


def test_no_reason_is_given_for_nothing() -> None:
    unread = [one.name for one in known() if one.meaning in ("error", "congestion") and not is_read(one)]
    assert [part for part in NO_RULE if not any(part in name for name in unread)] == []
