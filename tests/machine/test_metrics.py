"""Metrics of labs, as Prometheus has them."""

import contextlib
import json
import shutil
import socket
import threading
import urllib.request
from collections.abc import Iterator

import pytest
from live import Live, wait_for
from prometheus import Prometheus, running

HEADERS = 20 + 8 + 12 + 4
"""Bytes of a RoCE packet beside its payload, from the IP header on: IPv4, UDP, BTH and ICRC."""
RETH, AETH = 16, 4
"""In the first packet of a WRITE; in an acknowledgement."""
PATH_MTU = 1024


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    if not shutil.which("prometheus"):
        pytest.skip("there is no Prometheus: sudo apt-get install prometheus")
    with running(tmp_path_factory.mktemp("prometheus")) as made:
        yield made


def address(own: Live, lab: str) -> str:
    return str(own.record(lab)["metrics"])


def written(size: int) -> int:
    """Bytes of a WRITE's packets. The last one is filled up to four bytes."""
    return -(-size // 4) * 4 + RETH + HEADERS * -(-size // PATH_MTU)


def test_what_was_sent_is_what_prometheus_counts(own: Live, prometheus: Prometheus) -> None:
    lab = own.up("sums", "--clock", "virtual", "--metrics", "0")
    prometheus.scrape(lab, address(own, lab))
    sent = 'node_infiniband_port_data_transmitted_bytes_total{lab="sums", node="h1"}'
    received = 'rdma_rcvd_bytes_total{lab="sums", node_name="h2", net_dev_name="eth1"}'
    assert wait_for(lambda: prometheus.value(sent) == 0)
    for size in 1, 4096, 100_000:
        assert own("rdma", "write", "h1", "h2", "--size", str(size)).status == 0
    assert own("exec", "h2", "--detach", "--", "ib_write_bw", "-s", "65536", "-n", "50").status == 0
    assert own("exec", "h1", "--", "ib_write_bw", "-s", "65536", "-n", "50", "10.0.10.3").status == 0
    total = sum(map(written, (1, 4096, 100_000))) + 50 * written(65536)
    assert wait_for(lambda: prometheus.value(sent) == total), (prometheus.value(sent), total)
    assert prometheus.value(received) == total
    assert prometheus.alarms(lab) == {}
    shown = json.loads(own("exec", "h1", "--", "rdma", "-j", "statistic").out)
    assert shown[0]["sent_bytes"] == total


def test_on_the_real_clock_it_sees_traffic_flow(own: Live, prometheus: Prometheus) -> None:
    lab = own.up("flows", "--metrics", "0")
    prometheus.scrape(lab, address(own, lab))
    sent = 'rdma_sent_bytes_total{lab="flows", node_name="h1"}'
    assert wait_for(lambda: prometheus.value(sent) == 0)
    own("exec", "h2", "--detach", "--", "ib_write_bw", "--run_infinitely")
    assert wait_for(lambda: ":18515" in own("exec", "h2", "--", "ss", "-ltn").out)
    own("exec", "h1", "--detach", "--", "ib_write_bw", "--run_infinitely", "10.0.10.3")
    assert wait_for(lambda: (prometheus.value(f"changes({sent}[1m])") or 0) >= 3)
    own("exec", "h1", "h2", "--", "pkill", "ib_write_bw")
    shown = json.loads(own("exec", "h1", "--", "rdma", "-j", "statistic").out)
    assert wait_for(lambda: prometheus.value(sent) == shown[0]["sent_bytes"])
    assert "Metrics" not in next((own.directory / "runs").rglob("session.jsonl")).read_text()


DEAD = {"RdmaRetransmissions", "RdmaRetriesExceeded"}
"""Of a queue pair that got no answer."""
ALARMS = [
    ("ip-reuse", "as-is", ["the client connects"], {"NeighbourOfAnotherMac"}),
    ("ip-reuse", "garp", ["the client connects"], set()),
    ("duplicate-mac", "as-is", ["clone speaks", "server speaks"], {"NeighbourOnAnotherPort", *DEAD}),
    ("duplicate-mac", "unique", ["clone speaks", "server speaks"], set()),
    ("link-flap-retry-window", "longer", ["flaps", "a new"], DEAD),
    ("link-flap-retry-window", "wider-window", ["flaps", "a new"], {"RdmaRetransmissions"}),
    ("pause-storm-watchdog", "watchdog", ["the storm has come", "s of the storm"], {"PfcPauses", "PfcStorm"}),
    ("pfc-incast", "lossless", ["each writes", "T=0.5"], {"PfcPauses"}),
    ("pfc-incast", "lossy", ["each writes", "T=0.5"], {"RdmaRetransmissions"}),
    ("headroom-too-small", "as-is", ["four senders", "T=2.0"], {"PfcPauses", "RdmaRetransmissions", "LosslessDrop"}),
    ("uplink-down-reroute", "frr", ["the uplink", "new connections"], {"LinkDown", "RdmaRetransmissions"}),
    ("duplicate-ip", "as-is", ["second host gets", "T=0.5"], {"DuplicateAddress", "RdmaRetransmissions"}),
    ("link-flap-during-allreduce", "longer", ["flaps", "T=6.5"], {"JobStalled", "LinkDown", "RdmaRetransmissions"}),
]
"""Where the run of a variant is stopped and scraped, one stop after the other, and the alarms at the last one."""


@pytest.mark.parametrize(
    ("scenario", "variant", "stops", "alarms"),
    [
        pytest.param(*one, id=f"{one[0]}-{one[1]}", marks=[pytest.mark.slow] if number else [])
        for number, one in enumerate(ALARMS)
    ],
)
def test_alarms_are_those_of_what_went_wrong(
    own: Live, prometheus: Prometheus, scenario: str, variant: str, stops: list[str], alarms: set[str]
) -> None:
    name = f"{scenario} {variant}"
    for number, stop in enumerate(stops):
        if number:
            done = own("continue", "--to", stop, "-f", "json")
        else:
            run = ("run", scenario, "--variant", variant, "--json", "--metrics", "0", "--stop-at")
            done = own(*run, stop)
            prometheus.scrape(name, address(own, scenario))
        assert prometheus.sees(name, done.json["stopped"]["t"] / 1e9)
    assert set(prometheus.alarms(name)) == alarms
    assert own("down", scenario).status == 0


@contextlib.contextmanager
def scraped_all_the_time(address: str) -> Iterator[list[int]]:
    """The sizes of what each scrape got."""
    done, sizes = threading.Event(), []

    def scrape() -> None:
        while not done.is_set():
            with urllib.request.urlopen(f"http://{address}/metrics") as answer:
                sizes.append(len(answer.read()))

    thread = threading.Thread(target=scrape)
    thread.start()
    try:
        yield sizes
    finally:
        done.set()
        thread.join()


def test_on_the_virtual_clock_a_lab_that_is_scraped_is_the_same(own: Live) -> None:
    traces = []
    for lab, scraped in ("quiet", False), ("scraped", True):
        own.up(lab, "--clock", "virtual", "--metrics", "0")
        with scraped_all_the_time(address(own, lab)) if scraped else contextlib.nullcontext([1]) as sizes:
            assert own("rdma", "write", "h1", "h2", lab=lab).status == 0
            assert own("advance", "2h", lab=lab).status == 0
            assert sizes
        assert own("down", lab).status == 0
        (result,) = (own.directory / "runs" / lab / "latest").glob("result.json")
        traces.append(json.loads(result.read_text())["trace"])
    assert traces[0] == traces[1]


def test_a_port_that_is_taken_ends_up_at_once_and_leaves_nothing(own: Live) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = own("up", own.file, "--metrics", str(port))
    assert done.status == 2
    assert done.error == (
        f"error: metrics cannot be served at 127.0.0.1:{port}: Address already in use "
        "Choose another port; --metrics 0 takes a free one."
    )
    assert own.processes() == {}
    assert not [*own.labs.iterdir()]
    assert not (own.directory / "runs").exists()


def test_the_address_is_shown_and_free_after_down(own: Live) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    done = own("up", own.file, "--clock", "virtual", "--metrics", str(port))
    assert f"http://127.0.0.1:{port}/metrics" in done.out
    assert own("ps", "-f", "json").json[0]["metrics"] == f"127.0.0.1:{port}"
    assert f"127.0.0.1:{port}" in own("ps").out
    assert f"http://127.0.0.1:{port}/metrics" in own("inspect").out
    assert own("down").status == 0
    socket.create_server(("127.0.0.1", port)).close()


def test_metrics_are_for_one_variant(own: Live) -> None:
    done = own("run", "ip-reuse", "--metrics", "0")
    assert done.status == 2
    assert "--metrics is for one variant: add --variant with one of as-is" in done.error
