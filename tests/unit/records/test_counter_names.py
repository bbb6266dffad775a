"""The vocabulary of counters: complete, without two meanings for a name, and with each name that a lab can emit."""

import re
import runpy
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import pytest

from testbed.kernel.link_readings import STATISTICS
from testbed.kernel.lossless.layout import constants, structures
from testbed.lab.host_interface import OF_SOFT_ROCE, with_hardware_names
from testbed.lab.interface import Direction, Interface
from testbed.lab.port import Port
from testbed.records.counter_names import Meaning, Role, find, known

TOP = Path(__file__).parents[3]
OF_RXE = (
    *("sent_pkts", "rcvd_pkts", "duplicate_request", "out_of_seq_request", "rcvd_rnr_err", "send_rnr_err"),
    *("rcvd_seq_err", "ack_deferred", "retry_exceeded_err", "retry_rnr_exceeded_err", "completer_retry_err"),
    *("send_err", "link_downed", "rdma_sends", "rdma_recvs", "sent_bytes", "rcvd_bytes"),
)
"""The names of drivers/infiniband/sw/rxe/rxe_hw_counters.c. tests/lab/lossless reads them from the kernel."""


def lossless(*, switch: bool) -> dict[str, int]:
    """The counters of a port of a lossless link, all of whose queues are used."""
    config, state = structures()["port_config"](), structures()["port_state"]()
    config.algorithm, config.lossless = constants()["DCQCN"], 1 << 3 | 1 << 4
    config.marking[3].interval_us = 1
    for queue in state.queue:
        queue.in_packets = 1
    address = bytes(10) + b"\xff\xff" + bytes((10, 0, 0, 1))
    flow = SimpleNamespace(address=address, qpn=17, rate=1, limited=1)
    ports: Any = SimpleNamespace(configs=[config], states=[state], flows=lambda _: [flow])
    plan: Any = SimpleNamespace()
    return Port(ports, 0, SimpleNamespace(priorities=(3, 4)), plan, switch=switch).counters()  # type: ignore[arg-type]


def of_queue() -> dict[str, int]:
    """The counters of a link with a rate and a queue."""
    node = SimpleNamespace(kernel=SimpleNamespace())
    unshaped: Any = SimpleNamespace(_port=SimpleNamespace(node=node), shaped=False, secret=False, _dropped=0)
    quality = SimpleNamespace(rate=1)
    sends = SimpleNamespace(quality=quality, shaped=True, counters=lambda: Direction.counters(unshaped))
    interface: Any = SimpleNamespace(port=None, _sends=sends)
    return Interface.queue_counters(interface)


EMITTED = {
    "interface": STATISTICS,
    "link queue": tuple(of_queue()),
    "RDMA device": tuple(with_hardware_names(dict.fromkeys(OF_RXE, 0))),
    "NIC": tuple(lossless(switch=False)),
}


@pytest.mark.parametrize("owner", EMITTED)
def test_each_name_that_a_lab_emits_is_in_the_table_with_its_owner(owner: str) -> None:
    assert {name: find(name).owner for name in EMITTED[owner]} == dict.fromkeys(EMITTED[owner], owner)


def test_so_is_each_name_of_a_switch_port() -> None:
    found = {name: find(name).owner for name in lossless(switch=True)}
    assert set(found.values()) == {"switch queue", "priority group", "switch port", "PFC watchdog"}
    assert {name for name, owner in found.items() if "QUEUE_STAT_" in name and owner != "switch queue"} == set()


def test_an_entry_is_complete_and_the_only_one_for_its_name() -> None:
    for counter in known():
        assert counter.meaning in set(get_args(Meaning)) - {"unknown"}
        assert counter.role in get_args(Role)
        assert counter.unit
        assert counter.source
        assert re.fullmatch(r"[A-Z].*\.", counter.text)
        example = counter.name.replace("<priority>", "3").replace("<peer>", "fd00::1").replace("<number>", "17")
        assert [one for one in known() if one.pattern.fullmatch(example)] == [counter]
        assert find(example) is counter
        for command in counter.commands:
            assert "{" not in re.sub(r"\{(port|interface|device)\}", "", command.run)


def test_counters_of_one_metric_are_alike() -> None:
    found: dict[str, set[tuple[str, str, str]]] = {}
    for one in known():
        for metric in one.metrics:
            found.setdefault(metric, set()).add((one.meaning, one.unit, one.text))
    assert {name for name, kinds in found.items() if len(kinds) > 1} == set()


def test_the_names_of_hardware_mean_what_those_of_soft_roce_mean() -> None:
    for name, own in OF_SOFT_ROCE.items():
        assert (find(name).meaning, find(name).unit) == (find(own).meaning, find(own).unit)
        assert find(name).role == "", "a diagnosis would count it twice"


@pytest.mark.parametrize(
    ("meaning", "names"),
    [
        ("error", "rx_dropped rx_crc_errors completer_retry_err duplicate_request out_of_seq_request send_rnr_err"),
        ("error", "rx_missed_errors collisions link_downed rp_cnp_ignored SAI_QUEUE_STAT_DROPPED_PACKETS:3"),
        ("error", "PFC_WD_QUEUE_STATS_TX_DROPPED_PACKETS:3 queue_dropped"),
        ("congestion", "SAI_PORT_STAT_PFC_3_RX_PKTS rx_prio3_pause_duration np_cnp_sent queue_marked"),
        (
            "level",
            "SAI_QUEUE_STAT_CURR_OCCUPANCY_BYTES:0 queue_waiting rp_rate_bps:10.0.10.6#17 rp_rate_bps:fd00::6#17",
        ),
        ("peak", "SAI_INGRESS_PRIORITY_GROUP_STAT_XOFF_ROOM_WATERMARK_BYTES:3"),
        ("traffic", "ack_deferred sent_bytes rx_bytes tx_packets multicast tx_prio3_bytes"),
        ("unknown", "SAI_QUEUE_STAT_DROPPED_PACKETS sai_queue_stat_dropped_packets:3 rx_prio9_pause rx_bytes2 <a> ("),
    ],
)
def test_counters_have_a_meaning(meaning: str, names: str) -> None:
    assert {name: find(name).meaning for name in names.split()} == dict.fromkeys(names.split(), meaning)


def test_the_page_has_the_table() -> None:
    page = runpy.run_path(str(TOP / "tests/docs/counters.py"))["page"]
    assert page() == (TOP / "docs/counters.md").read_text(), "make examples writes it"
