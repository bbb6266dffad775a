"""The quality of links: from the file, changed while the lab runs, read back, felt by RDMA, and gone."""

import json
import re

import pytest

from testbed.errors import InputError
from testbed.lab import Host, Lab
from testbed.topology import Quality
from testbed.workload import link_bytes
from testbed.workload.attributes import Attributes
from testbed.workload.verbs import Endpoint, connect_pair

FILE = """
name: quality
topology:
  nodes:
    leaf: {kind: switch}
    a: {kind: host}
    b: {kind: host}
  links:
    - endpoints: ["leaf:e1", {node: a, interface: eth1, delay: 2ms}]
    - endpoints: ["leaf:e2", "b:eth1"]
      rate: 100mbit
      queue: 200
"""
CABLE = Quality()
pytestmark = pytest.mark.topology(FILE)


def endpoint(host: Host) -> Endpoint:
    return Endpoint(host["eth1"].device, host.namespace, host["eth1"].address().ip)


def rtt_ms(lab: Lab) -> float:
    """Of the second ping: the first one waits for ARP."""
    said = lab["a"].run("ping", "-n", "-c2", "-i0.2", str(lab.host("b")["eth1"].address().ip)).stdout
    return float(re.findall(r"time=([0-9.]+) ms", said)[1])


def write(lab: Lab, size: int, attributes: Attributes | None = None) -> tuple[str, float]:
    """Status and seconds of an RDMA WRITE from a to b."""
    with endpoint(lab.host("a")) as near, endpoint(lab.host("b")) as far:
        connect_pair(near, far, attributes or Attributes())
        done = near.write(size, within=30)
        return done.status, done.elapsed_s


def test_what_the_file_says_is_there_from_the_start_and_read_back(lab: Lab) -> None:
    assert lab.interface("a:eth1").sends.verified() == Quality(delay=2e-3)
    assert lab.interface("leaf:e2").sends.verified() == Quality(rate=100_000_000, queue=200)
    assert lab.interface("b:eth1").sends.verified() == Quality(rate=100_000_000, queue=200)
    assert lab.interface("leaf:e1").sends.verified() == CABLE
    assert 2.0 < rtt_ms(lab) < 3.0


def test_a_rate_is_kept(lab: Lab) -> None:
    status, seconds = write(lab, 1 << 16)
    wire_bytes = link_bytes(1 << 16)
    assert status == "SUCCESS"
    assert seconds == pytest.approx(2e-3 + wire_bytes * 8 / 1e8, rel=0.02)
    assert lab.interface("leaf:e2").sends.counters()["dropped"] == 0


def test_a_change_adds_to_what_is_there_and_goes_without_it(lab: Lab) -> None:
    direction = lab.interface("a:eth1").sends
    lossy = direction.change(loss=3.0)
    slow = direction.change(delay=20e-3, jitter=1e-3)
    assert direction.verified() == Quality(delay=20e-3, jitter=1e-3, loss=pytest.approx(3.0))
    lossy()
    assert direction.verified() == Quality(delay=20e-3, jitter=1e-3)
    slow()
    assert direction.verified() == Quality(delay=2e-3)


@pytest.mark.parametrize(
    "quality",
    [
        {"loss": 20.0, "loss_burst": 4.0},
        {"duplicate": 1.0, "corrupt": 2.0},
        {"delay": 1e-3, "reorder": 25.0},
        {"rate": 10**9, "queue": 100, "ecn": 20},
        {"rate": 25 * 10**9},
    ],
)
@pytest.mark.parametrize("end", ["leaf:e1", "b:eth1"])
def test_every_value_is_read_back_and_gone_afterwards(lab: Lab, end: str, quality: dict[str, float]) -> None:
    direction = lab.interface(end).sends
    before = direction.verified()
    undo = direction.change(**quality)
    seen = direction.verified()
    assert {key: getattr(seen, key) for key in quality} == pytest.approx(quality, rel=1e-3)
    undo()
    assert direction.verified() == before


def test_what_a_host_sends_is_lost_behind_it_and_not_on_it(lab: Lab) -> None:
    """On its own egress the queue pair would end with WR_FLUSH_ERR at once."""
    with endpoint(lab.host("a")) as near, endpoint(lab.host("b")) as far:
        connect_pair(near, far, Attributes(retry_cnt=1))
        lab.interface("a:eth1").sends.change(loss=100.0)
        assert near.write(64, within=5).status == "RETRY_EXC_ERR"
    counted = lab.interface("a:eth1").sends.counters()
    assert counted["lost"] >= 2
    assert counted["dropped"] == 0


@pytest.mark.fresh
def test_a_switch_port_that_went_down_is_loss_for_its_own_host_at_once(lab: Lab) -> None:
    """Left alone the kernel carries it out up to a second later, and until then a transmission ends the queue pair."""
    with endpoint(lab.host("b")) as near, endpoint(lab.host("a")) as far:
        connect_pair(near, far, Attributes(retry_cnt=1))
        assert near.write(64, within=5).ok
        lab["leaf"]["e2"].down()
        assert near.write(64, within=5).status == "RETRY_EXC_ERR"


@pytest.mark.fresh
def test_a_full_queue_drops_and_is_counted(lab: Lab) -> None:
    undo = lab.interface("leaf:e2").sends.change(rate=20_000_000, queue=16)
    near, far = lab.interface("leaf:e1"), lab.interface("b:eth1")
    came, arrived = near.counters()["rx_packets"], far.counters()["rx_packets"]
    status, _ = write(lab, 1 << 16)
    assert status == "SUCCESS"  # go-back-N, again and again
    counted = lab.interface("leaf:e2").sends.counters()
    gone = (near.counters()["rx_packets"] - came) - (far.counters()["rx_packets"] - arrived)
    assert counted["dropped"] == gone > 0
    assert counted["lost"] == 0
    assert counted == as_tc_shows(lab, "e2")
    assert lab.interface("leaf:e1").queue_counters() == {}
    undo()
    lab.interface("leaf:e2").sends.change(loss=100.0, rate=None)
    assert lab["a"].run("ping", "-c", "4", "-i", "0.1", "-W", "1", str(far.address().ip), check=False).returncode == 1
    counted = lab.interface("leaf:e2").sends.counters()
    assert (counted["dropped"], counted["lost"]) == (gone, 4)


def as_tc_shows(lab: Lab, port: str) -> dict[str, int]:
    """The counters of a queue, from tc(8)."""
    shown = json.loads(lab["leaf"].run("tc", "-s", "-j", "qdisc", "show", "dev", port).stdout)
    found = [entry for entry in shown if entry["kind"] != "clsact"]
    [root] = [entry for entry in found if entry.get("root")]
    dropped = max(entry["drops"] for entry in found if not entry.get("root"))
    marked = sum(entry.get("marked", 0) for entry in found)
    lost = root["drops"] - dropped
    return {"sent": root["packets"], "dropped": dropped, "lost": lost, "marked": marked, "waiting": root["qlen"]}


@pytest.mark.fresh
def test_above_the_ecn_threshold_packets_are_marked_and_not_lost(lab: Lab) -> None:
    lab.interface("leaf:e2").sends.change(ecn=8)
    ect = Attributes(traffic_class=106)
    assert write(lab, 1 << 16, ect)[0] == "SUCCESS"
    counted = lab.interface("leaf:e2").sends.counters()
    assert counted["marked"] > 20
    assert counted["dropped"] == 0
    assert counted == as_tc_shows(lab, "e2")


@pytest.mark.fresh
def test_what_is_not_ecn_capable_is_neither_marked_nor_lost(lab: Lab) -> None:
    lab.interface("leaf:e2").sends.change(ecn=8)
    assert write(lab, 1 << 16)[0] == "SUCCESS"
    counted = lab.interface("leaf:e2").sends.counters()
    assert (counted["marked"], counted["dropped"]) == (0, 0)


def test_an_end_that_is_not_there_is_named(lab: Lab) -> None:
    with pytest.raises(InputError, match="no link has an end 'leaf:e3'\n  Did you mean leaf:e2"):
        lab.interface("leaf:e3")
    with pytest.raises(InputError, match="a link has no 'colour'"):
        lab.interface("leaf:e1").sends.change(colour="blue")
