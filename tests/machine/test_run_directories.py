"""What real runs leave: no empty file, a line of README.txt for each, known counters, captures that name the events."""

import fnmatch
import json
import shutil
import subprocess
from pathlib import Path

import pytest

from testbed.records.counter_names import find
from testbed.report.counters import at_the_end


def files(directory: Path) -> list[Path]:
    return [path for path in directory.rglob("*") if path.is_file()]


def patterns(readme: Path) -> set[str]:
    """The first words of its lines on files."""
    return {line.split()[0] for line in readme.read_text().splitlines() if "  " in line}


@pytest.mark.parametrize(
    ("scenario", "variant", "special"),
    [
        ("headroom-too-small", "as-is", set()),
        pytest.param("training-smoke", "link-down", {"packets.pcapng", "*.pcap", "job/"}, marks=pytest.mark.slow),
    ],
)
def test_a_run_explains_every_file_that_is_there_and_no_other(testbed, tmp_path, scenario, variant, special):
    done = testbed("run", scenario, "--variant", variant, "--json")
    assert done.status == 0, done.err or done.out
    check_explained(tmp_path / done.json["out"], [variant], special)


def test_so_does_a_run_with_captures_and_pods(ip_reuse):
    check_explained(ip_reuse.out, ["as-is", "garp"], {"packets.pcapng", "*.pcap", "*.tcpdump.log", "cni/"})


def check_explained(out, variants, special):
    assert [path for path in files(out) if not path.read_bytes().strip()] == []
    found = patterns(out / "README.txt")
    assert special <= found
    places = [out, *(out / variant for variant in variants)]
    names = [f"{path.name}/" if path.is_dir() else path.name for place in places for path in place.iterdir()]
    for name in {*names} - {f"{variant}/" for variant in variants} - {"README.txt"}:
        assert any(fnmatch.fnmatch(name, pattern) for pattern in found), name
    for pattern in found:
        assert fnmatch.filter(names, pattern), pattern
    counted = [row for place in places[1:] for row in at_the_end(json.loads((place / "counters.json").read_text()))]
    assert len(counted) > 20
    assert {name for _, _, name, _ in counted if find(name).meaning == "unknown"} == set()


def test_the_captures_of_a_run_name_its_events(testbed, tmp_path, ip_reuse):
    out = ip_reuse.out / "as-is"
    events = [json.loads(line) for line in (out / "events.jsonl").read_text().splitlines()]
    texts = {event["kind"]: event["text"] for event in events}
    packets = (out / "packets.pcapng").read_bytes()
    pod_a = next(event["data"]["result"]["interfaces"][0]["mac"] for event in events if event["kind"] == "cni")
    for comment in (
        f"mac.gone: the first frame to {pod_a} since pod-a lost this MAC",
        f"later: {texts['completion']}",
        f"earlier: {texts['step']}",
        f"later: {texts['arp.learned']}",
        "roce.repeated: PSN ",
    ):
        assert packets.count(comment.encode()) >= 1, comment
    again = testbed("rerun", ip_reuse.out, "--variant", "garp", "--json")
    assert again.status == 0, again.err
    first, second = (out / "garp" / "packets.pcapng" for out in (ip_reuse.out, tmp_path / again.json["run"]["out"]))
    assert first.read_bytes() == second.read_bytes()


@pytest.mark.skipif(not shutil.which("tshark"), reason="tshark is not installed (apt-get install tshark)")
def test_tshark_shows_the_comments_the_interfaces_and_the_time_of_the_events(ip_reuse):
    out = ip_reuse.out / "garp"
    wanted = ["-Y", 'frame.comment contains "arp.updated"', "-T", "fields"]
    columns = ["-e", "frame.time_epoch", "-e", "frame.interface_name", "-e", "arp.src.hw_mac"]
    command = ["tshark", "-r", out / "packets.pcapng", *wanted, *columns]
    shown = subprocess.run(command, capture_output=True, text=True, check=True)
    events = [json.loads(line) for line in (out / "events.jsonl").read_text().splitlines()]
    [updated] = [event for event in events if event["kind"] == "arp.updated"]
    [line] = shown.stdout.splitlines()
    time, interface, mac = line.split("\t")
    assert (interface, mac) == (f"leaf:{updated['data']['port']}", updated["data"]["mac"])
    assert 0 < updated["t"] / 1e9 - float(time) < 0.02


def test_two_variants_part_where_one_announced_itself(testbed, ip_reuse):
    out = ip_reuse.out
    found = testbed("diff", out / "as-is", out / "garp", "--json")
    assert found.status == 1, found.err
    [variant] = found.json["variants"]
    assert variant["inputs"] == {"parameter announce": {"run1": False, "run2": True}}
    kinds = [pair["run2"]["kind"] for pair in variant["events"] if pair["run1"] is None]
    assert {"arp.updated", "garp"} <= {*kinds}
    arp = [row for row in variant["tables"] if row["moment"] == "after the last events shown" and row["table"] == "arp"]
    assert len(arp) == 1
    assert testbed("diff", out, out).status == 0
