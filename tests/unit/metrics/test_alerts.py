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


def quiet(name: str, at_s: int) -> dict[str, Any]:
    return {"eval_time": f"{at_s}s", "alertname": name, "exp_alerts": []}


@pytest.fixture
def alarms(tmp_path: Path) -> Alarms:
    """The names of the alarms that fire when these measurements were scraped, 30 seconds after each other."""

    def evaluate(measured: Sequence[Measured]) -> list[str]:
        found = [samples(one) for one in measured]
        last_s = 30 * (len(measured) - 1)
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
            test = {"interval": "30s", "input_series": series, "alert_rule_test": [quiet(name, last_s)]}
            (tmp_path / "test.yml").write_text(
                yaml.safe_dump({"rule_files": ["alerts.yml"], "evaluation_interval": "30s", "tests": [test]})
            )
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
    assert alarms(both) == ["DuplicateAddress"]


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


# Each alarm: what raises it, and what ends it


def moved() -> Measured:
    """The leaf has the MAC of another one for the pod's address."""
    now = lab()
    now["tables"][LEAF] = [entry("arp", "02:99", "e1", "10.0.0.3"), entry("fdb", "02:99", "e1")]
    return now


def on_another_port() -> Measured:
    now = lab()
    now["tables"][LEAF] = [entry("arp", "02:13", "e1", "10.0.0.3"), entry("fdb", "02:13", "e2")]
    return now


def link(**state: bool) -> Measured:
    now = lab()
    now["nodes"][1]["interfaces"][0].update({"peer": "leaf:e1", **state})
    return now


def at_two() -> Measured:
    now = lab()
    now["nodes"][2]["interfaces"].append(interface("h2:eth2", "02:14", "10.0.0.3"))
    return now


def at_another() -> Measured:
    now = lab()
    now["nodes"][3]["interfaces"][0]["mac"] = "02:77"
    now["tables"][LEAF] = []
    return now


def job(*, ok: bool | None = None, stalled: bool = False, step_s: float = 0.2) -> Measured:
    now = lab()
    now["jobs"][0].update(ok=ok, stalled=stalled, steps=3, step_s=[step_s, step_s])
    return now


def grown(of: str, place: str, counter: str) -> tuple[Measured, Measured]:
    """What was counted before, and what is from then on: a cure ends the growth."""
    before, _, after = counted(of, place, **{counter: 3})
    return before, after


def paused(of_s: float, lab_s: float) -> Measured:
    now = lab()
    now["counters"][LEAF]["interfaces"]["e1"]["SAI_PORT_STAT_PFC_3_RX_PAUSE_DURATION_US"] = round(of_s * 1e6)
    now["now_s"] = lab_s
    return now


WITHIN = 13
"""Measurements in more than the five minutes for which increases count."""
AGAIN = grown(H1, "h1-eth1", "completer_retry_err")
DEAD = grown(H1, "h1-eth1", "retry_exceeded_err")
FRAMES = grown(H1, "eth1", "rx_prio3_pause")
DROPS = grown(LEAF, "e1", "SAI_QUEUE_STAT_DROPPED_PACKETS__3")
STORY: dict[str, tuple[list[Measured], list[Measured]]] = {
    "NeighbourOfAnotherMac": ([moved()], [lab()]),
    "NeighbourOnAnotherPort": ([on_another_port()], [lab()]),
    "RdmaRetransmissions": ([*AGAIN], [AGAIN[1]]),
    "RdmaRetriesExceeded": ([*DEAD], [DEAD[1]]),
    "PfcPauses": ([*FRAMES], [FRAMES[1]]),
    "PfcStorm": ([paused(0, 0), paused(29, 30)], [paused(29, 30 + 30 * n) for n in range(1, WITHIN + 1)]),
    "LosslessDrop": ([*DROPS], [DROPS[1]]),
    "LinkDown": ([link(), link(carrier=False)], [link()]),
    "DuplicateAddress": ([at_two()], [lab()]),
    "GidMoved": ([lab()] * WITHIN + [at_another()], [at_another()]),
    "JobStalled": ([job(), job(stalled=True)], [job()]),
    "JobFailed": ([job(), job(ok=False)], [job()]),
    "SlowStep": ([job()] * 5 + [job(step_s=0.9)], [job()]),
}
"""By alarm: measurements with the fault, which raise it, and those after the cure."""


def test_each_alarm_has_its_story() -> None:
    assert sorted(STORY) == sorted(NAMES)


@pytest.mark.parametrize("name", STORY)
def test_the_fault_raises_it_and_the_cure_ends_it(alarms: Alarms, name: str) -> None:
    fault, cure = STORY[name]
    assert name in alarms(fault)
    assert alarms([*fault, *(cure * WITHIN)[:WITHIN]]) == []


def test_a_lossy_class_may_drop(alarms: Alarms) -> None:
    before, after = grown(LEAF, "e1", "SAI_QUEUE_STAT_DROPPED_PACKETS__0")
    assert alarms([before, after, after]) == []


def test_short_pauses_are_no_storm(alarms: Alarms) -> None:
    assert "PfcStorm" not in alarms([paused(0, 0), paused(15, 30), paused(30, 60)])


def test_a_lab_whose_time_stands_still_has_no_storm(alarms: Alarms) -> None:
    assert alarms([paused(5, 10)] * 3) == []
