"""A user's own tests inside a machine: what ends them, and what comes back."""

import json
from pathlib import Path

import pytest

TOPOLOGY = """\
name: pair
topology:
  nodes:
    leaf: {kind: switch, vlans: {10: 10.0.10.1/24}}
    a: {kind: host}
    b: {kind: host}
  links:
    - {endpoints: ["leaf:e1", "a:eth1"], vlan: 10}
    - {endpoints: ["leaf:e2", "b:eth1"], vlan: 10}
"""
PLUGIN = """\
#!/bin/sh
case $CNI_COMMAND in
VERSION) echo '{"cniVersion": "1.0.0", "supportedVersions": ["0.4.0", "1.0.0"]}' ;;
ADD) echo "{\\"cniVersion\\": \\"1.0.0\\", \\"dns\\": {\\"domain\\": \\"$(cat)\\"}}" | sed 's/"{.*}"/"mine.example"/' ;;
esac
"""
TESTS = """\
import time
from pathlib import Path

import pytest

from testbed.kernel import netns

pytestmark = pytest.mark.topology("pair.clab.yml")


def test_a_lab_with_a_plugin_of_its_own(lab, log):
    capture = lab.host("b")["eth1"].capture("arp")
    assert lab["a"].ping(lab.host("b")["eth1"].address().ip, within=1)
    capture.stop()
    pod = lab.pods.create(lab.host("a"), "web", [{"cniVersion": "1.0.0", "name": "own", "type": "mine"}])
    (added,) = log.find("cni", command="ADD")
    assert added["data"]["result"]["dns"] == {"domain": "mine.example"}
    Path("values.csv").write_text("1,2")


def test_that_fails(lab):
    assert lab is None


@pytest.mark.limit(30)
def test_beyond_its_limit(lab):
    lab.scheduler.sleep(1000)


def test_the_lab_before_is_gone():
    assert netns.names() == []


def test_that_runs_at_the_end(lab):
    time.sleep(1e6)


def test_that_never_runs(lab): ...
"""
DEAF = """\
import signal
import time


def test_that_fails():
    assert 1 == 2


def test_that_hears_nothing():
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
    time.sleep(1e6)
"""


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    """A directory with tests, below the user's current one."""
    directory = tmp_path / "suite"
    (directory / "cni-plugins").mkdir(parents=True)
    (directory / "pair.clab.yml").write_text(TOPOLOGY)
    (directory / "test_pair.py").write_text(TESTS)
    (directory / "cni-plugins" / "mine").write_text(PLUGIN)
    (directory / "cni-plugins" / "mine").chmod(0o755)
    return directory


def results(out: Path) -> dict[str, dict[str, object]]:
    lines = (out / "tests.jsonl").read_text().splitlines()
    return {line["test"].partition("::")[2]: line for line in map(json.loads, lines)}


def test_what_ended_comes_back_when_the_session_s_limit_is_over(testbed, suite, tmp_path):
    done = testbed("pytest", "--limit", "2000", suite, "--", "--junitxml=of/report.xml", "--log-file", "log.txt")

    assert done.status == 1, done.out + done.err
    out = tmp_path / "runs" / "pytest" / "latest"
    tests = results(out)
    assert {name: test["outcome"] for name, test in tests.items()} == {
        "test_a_lab_with_a_plugin_of_its_own": "passed",
        "test_that_fails": "failed",
        "test_beyond_its_limit": "failed",
        "test_the_lab_before_is_gone": "passed",
        "test_that_runs_at_the_end": "failed",
    }, done.out
    assert (
        "test_beyond_its_limit: its limit of 30 virtual seconds is over; it stood at test_pair.py:27 in test_beyond"
        in done.out
    )
    ended = "the session's limit of 2000 virtual seconds is over in test_pair.py::test_that_runs_at_the_end; not run: 1"
    assert ended in done.out
    for name in "test_a_lab_with_a_plugin_of_its_own", "test_that_fails", "test_beyond_its_limit":
        directory = out / str(tests[name]["directory"])
        events = [json.loads(line) for line in (directory / "events.jsonl").read_text().splitlines()]
        assert events[0]["text"] == "build pair"
        assert json.loads((directory / "tables.jsonl").read_text())["switch"] == "leaf"
        assert "eth1" in json.loads((directory / "counters.json").read_text())["a"]["interfaces"]
    assert list((out / str(tests["test_a_lab_with_a_plugin_of_its_own"]["directory"])).glob("*.pcap"))
    assert (out / "files" / "values.csv").read_text() == "1,2"
    assert (out / "pytest.txt").read_text() == done.out
    report = (tmp_path / "of" / "report.xml").read_text()
    assert report == (out / "reports" / "junitxml" / "report.xml").read_text()
    assert 'failures="3"' in report
    assert "generated xml file: of/report.xml" in done.out
    assert (tmp_path / "log.txt").exists()


def test_a_test_that_cannot_be_ended_is_named_and_those_before_are_kept(testbed, tmp_path):
    (tmp_path / "test_deaf.py").write_text(DEAF)

    done = testbed("pytest", "--limit", "60", "test_deaf.py")

    assert done.status == 1
    assert "test_deaf.py::test_that_hears_nothing: still running after 360 virtual seconds" in done.error
    assert "1 tests had ended" in done.error
    assert "assert 1 == 2" in done.out
    out = tmp_path / "runs" / "pytest" / "latest"
    assert "assert 1 == 2" in (out / "pytest.txt").read_text()
    assert results(out)["test_that_fails"]["outcome"] == "failed"


def test_the_cli_of_a_mininet_script_is_refused_at_its_line(testbed, tmp_path):
    (tmp_path / "test_net.py").write_text(
        "from mininet.cli import CLI\n"
        "from mininet.net import Mininet\n"
        "from mininet.topo import MinimalTopo\n"
        "from testbed.mininet import KernelBridge, RdmaHost\n"
        "\n"
        "def test_net():\n"
        "    net = Mininet(MinimalTopo(), host=RdmaHost, switch=KernelBridge, controller=None)\n"
        "    net.start()\n"
        "    try:\n"
        "        CLI(net)\n"
        "    finally:\n"
        "        net.stop()\n"
    )
    done = testbed("pytest", "test_net.py")
    assert done.status == 1
    assert "test_net.py:10: `CLI(net)` asks for input, but a machine has no keyboard" in done.out
