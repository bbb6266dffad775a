"""The alarms, as Prometheus' own tool evaluates them."""

import shutil
import subprocess
from collections.abc import Callable, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
import yaml
from measurements import H1, H2, LEAF, POD, entry, interface, lab, samples

from testbed.protocol.live import Measured

RULES = resources.files("testbed.metrics").joinpath("alerts.yml").read_text()
NAMES = [rule["alert"] for group in yaml.safe_load(RULES)["groups"] for rule in group["rules"]]
Alarms = Callable[[Sequence[Measured]], list[str]]
pytestmark = pytest.mark.skipif(
    not shutil.which("promtool"), reason="there is no promtool: sudo apt-get install prometheus"
)


def promtool(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["promtool", *map(str, arguments)], capture_output=True, text=True, check=False)


def quiet(name: str) -> dict[str, Any]:
    return {"eval_time": "1m", "alertname": name, "exp_alerts": []}


@pytest.fixture
def alarms(tmp_path: Path) -> Alarms:
    """The names of the alarms that fire when these measurements were scraped, 30 seconds after each other."""

    def evaluate(measured: Sequence[Measured]) -> list[str]:
        found = [samples(one) for one in measured]
        series = [
            {
                "series": f"{name}{{{','.join(f'{key}={value!r}' for key, value in (*labels, ('instance', 'lab')))}}}",
                "values": " ".join(str(one.get((name, labels), "stale")) for one in found),
            }
            for name, labels in dict.fromkeys(key for one in found for key in one)
        ]
        (tmp_path / "alerts.yml").write_text(RULES)
        firing = []
        for name in NAMES:
            test = {"interval": "30s", "input_series": series, "alert_rule_test": [quiet(name)]}
            (tmp_path / "test.yml").write_text(yaml.safe_dump({"rule_files": ["alerts.yml"], "tests": [test]}))
            done = promtool("test", "rules", tmp_path / "test.yml")
            assert done.returncode == 0 or "got:[" in done.stdout + done.stderr, done.stderr
            firing += [name] if done.returncode else []
        return firing

    return evaluate


def counted(of: str, place: str, **counters: int) -> list[Measured]:
    """Three measurements; before the last one a device or an interface has counted this."""
    before, after = lab(), lab()
    kind = "rdma" if place in after["counters"][of]["rdma"] else "interfaces"
    after["counters"][of][kind][place] |= {name.replace("__", ":"): value for name, value in counters.items()}
    return [before, before, after]


def tables(*entries: Any) -> list[Measured]:
    now = lab()
    now["tables"][LEAF] = [*entries]
    return [now] * 3


def test_prometheus_takes_the_rules(tmp_path: Path) -> None:
    (tmp_path / "alerts.yml").write_text(RULES)
    done = promtool("check", "rules", tmp_path / "alerts.yml")
    assert done.returncode == 0, done.stderr


def test_nothing_fires_in_a_sound_lab(alarms: Alarms) -> None:
    assert alarms(counted(H1, "h1-eth1", sent_pkts=1000, sent_bytes=10**6)) == []


def test_an_entry_with_the_mac_of_the_last_owner(alarms: Alarms) -> None:
    old = tables(entry("arp", "02:99", "e1", "10.0.0.3"), entry("fdb", "02:99", "e1"))
    assert alarms(old) == ["NeighbourOfAnotherMac"]
    assert alarms(tables(entry("nd", "02:99", "e1", "10.0.0.3"))) == ["NeighbourOfAnotherMac"]
    assert alarms(tables(entry("arp", "02:99", "e1", "10.0.0.77"))) == [], "nobody has that address"


def test_an_address_that_two_have_may_be_at_either(alarms: Alarms) -> None:
    both = tables(entry("arp", "02:13", "e2", "10.0.0.3"), entry("fdb", "02:13", "e2"))
    both[0]["nodes"][2]["interfaces"].append(interface("h2:eth2", "02:14", "10.0.0.3"))
    assert alarms(both) == []


def test_an_entry_on_another_port_than_its_mac(alarms: Alarms) -> None:
    moved = tables(entry("arp", "02:13", "e1", "10.0.0.3"), entry("fdb", "02:13", "e2"))
    assert alarms(moved) == ["NeighbourOnAnotherPort"]
    assert alarms(tables(entry("arp", "02:13", "e1", "10.0.0.3"))) == [], "the MAC has aged out: it is nowhere else"


@pytest.mark.parametrize(
    ("of", "place", "counter", "alarm"),
    [
        (H1, "h1-eth1", "completer_retry_err", "RdmaRetransmissions"),
        (H1, "h1-eth1", "rcvd_seq_err", "RdmaRetransmissions"),
        (H1, "h1-eth1", "retry_exceeded_err", "RdmaRetriesExceeded"),
        (H1, "eth1", "rx_prio3_pause", "PfcPauses"),
        (LEAF, "e1", "SAI_PORT_STAT_PFC_3_RX_PKTS", "PfcPauses"),
        (LEAF, "e1", "PFC_WD_QUEUE_STATS_DEADLOCK_DETECTED__3", "PfcStorm"),
    ],
)
def test_a_counter_that_grows(alarms: Alarms, of: str, place: str, counter: str, alarm: str) -> None:
    assert alarms(counted(of, place, **{counter: 1})) == [alarm]


def test_a_device_that_counts_less_than_before_is_another_one(alarms: Alarms) -> None:
    """A pod of the same name, on the same node."""
    first, second = lab(), lab()
    first["counters"][POD]["rdma"]["pod-a"] |= {"completer_retry_err": 3}
    second["counters"][POD]["rdma"]["pod-a"] |= {"completer_retry_err": 0}
    assert alarms([first, first, second]) == []


def test_what_is_not_there_any_more_is_no_alarm(alarms: Alarms) -> None:
    gone = lab()
    gone["nodes"] = [one for one in gone["nodes"] if one["name"] not in (POD, H2)]
    assert alarms([lab(), gone, gone]) == []
