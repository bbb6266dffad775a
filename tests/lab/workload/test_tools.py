"""perftest and rping between two hosts: what they measure, and how a broken path looks to them."""

import threading
import time
from contextlib import closing
from pathlib import Path

import pytest
from wire_lab import Host, Wire

from testbed.errors import DeadlineError, InputError, UnsupportedError
from testbed.kernel import netns
from testbed.kernel.rxe_devices import counters
from testbed.nic import HardwareNics
from testbed.workload.tools import EVENTS, MANAGEMENT, Result, Side, perftest, rping

ELSEWHERE = "02:00:00:00:00:99"


def side(host: Host) -> Side:
    return Side(host.namespace, host.namespace, host.device, host.ip)


@pytest.mark.parametrize("tool", EVENTS)
def test_each_program_reports_its_figures(wire: Wire, tmp_path: Path, tool: str) -> None:
    result = perftest(tool, side(wire.right), side(wire.left), tmp_path, options=["-n", "20"], within=30)

    assert result.ok, result.output
    figure = "BW_average" if tool.endswith("_bw") else "t_avg"
    assert result.figures[figure] > 0
    assert not netns.path(MANAGEMENT).exists()


def test_in_shared_mode_only_roce_is_on_the_wire(wire: Wire, tmp_path: Path) -> None:
    sniffers = [wire.sniff(host) for host in (wire.left, wire.right)]
    perftest("ib_send_bw", side(wire.right), side(wire.left), tmp_path, options=["-n", "20"], within=30)
    for sniffer in sniffers:
        kinds = [frame.kind for frame in sniffer.frames() if not frame.dst.startswith("33:33")]
        assert set(kinds) == {"arp", "roce"}


@pytest.mark.parametrize("wire", ["exclusive"], indirect=True)
def test_in_exclusive_mode_tcp_takes_the_data_network(wire: Wire, tmp_path: Path) -> None:
    result = perftest("ib_send_bw", side(wire.right), side(wire.left), tmp_path, options=["-n", "20"], within=30)
    assert result.ok, result.output
    with pytest.raises(UnsupportedError, match="rdma_cm, which does not work in exclusive") as refused:
        rping(side(wire.right), side(wire.left), tmp_path, within=10)
    assert "`rdma_mode: shared` in the topology" in refused.value.hint


def test_rping(wire: Wire, tmp_path: Path) -> None:
    result = rping(side(wire.right), side(wire.left), tmp_path, count=7, within=10)
    assert result.ok, result.output
    assert result.figures["pings"] == 7


def test_rping_to_nobody(wire: Wire, tmp_path: Path) -> None:
    wire.block(wire.right)
    result = rping(side(wire.right), side(wire.left), tmp_path, within=60)
    assert result.error == "RDMA_CM_EVENT_ADDR_ERROR"


def test_perftest_without_a_neighbour(wire: Wire, tmp_path: Path) -> None:
    wire.block(wire.right)
    result = perftest("ib_send_bw", side(wire.right), side(wire.left), tmp_path, within=30)
    assert "Failed to modify QP" in result.output + (tmp_path / "right-ib_send_bw.log").read_text()
    assert result.error
    assert not result.figures


def run_and_mislead(wire: Wire, tmp_path: Path, within: float) -> Result:
    """Has the client's host learn a wrong MAC for the server while perftest runs."""
    sent_then = []

    def mislead() -> None:
        while (sent := counters(wire.left.device, "left")["sent_pkts"]) < 500:
            time.sleep(0.01)
        wire.left.set_neighbour(wire.right.ip, ELSEWHERE)
        sent_then.append(sent)

    thread = threading.Thread(target=mislead, daemon=True)
    thread.start()
    try:
        options = ["-n", "4000", "-s", "1024"]
        return perftest("ib_send_bw", side(wire.right), side(wire.left), tmp_path, options=options, within=within)
    finally:
        thread.join()
        assert 500 <= sent_then[0] < 3000


def test_plain_rxe_stalls_for_ever_when_the_neighbour_table_goes_wrong(wire: Wire, tmp_path: Path) -> None:
    with pytest.raises(DeadlineError, match=r"left: ib_send_bw .* still running after 10 s"):
        run_and_mislead(wire, tmp_path, within=10)


def test_a_hardware_nic_keeps_a_foreign_program_going(wire: Wire, tmp_path: Path) -> None:
    with closing(HardwareNics()) as nics:
        nic = nics.add(wire.left.entered, "eth1", wire.left.device)
        result = run_and_mislead(wire, tmp_path, within=60)
        assert result.ok, result.output
        nics.settle()
        assert {pin.mac for pin in nic.pins.values()} == {wire.right.mac}


def test_a_program_that_is_not_perftest(wire: Wire, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="rm is not a known program of perftest"):
        perftest("rm", side(wire.right), side(wire.left), tmp_path, within=1)
