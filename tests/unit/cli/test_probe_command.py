"""What `testbed probe` shows of the probes of a lab."""

import io
from itertools import permutations
from typing import Any

from rich.console import Console

from testbed.cli.live import probe_command
from testbed.protocol.live import ProbedMesh


def mesh(count: int = 3, **worse: dict[str, Any]) -> ProbedMesh:
    """Probes between `count` hosts; `worse` has values of a pair by its name, such as `h1_h2`."""
    times = {"shortest_us": 30.0, "median_us": 35.2, "longest_us": 40.0}
    pairs: Any = [
        {"source": f"{near}:eth1", "target": f"{far}:eth1", "sent": 8, "arrived": 8, "error": "", "paths": {}}
        | times
        | worse.get(f"{near}_{far}", {})
        for near, far in permutations([f"h{number}" for number in range(count)], 2)
    ]
    nics = [f"h{number}:eth1" for number in range(count)]
    return {
        "protocol": "rdma", "nics": nics, "bytes": 1024, "pairs": pairs, "lost_at": [], "slow_ports": {}, "resent": 0,
        "unseen": 0,
    }  # fmt: skip


def drawn(of: ProbedMesh) -> list[str]:
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(*probe_command.shown(of), sep="\n")
    return [" ".join(line.split()) for line in console.export_text().splitlines() if line.strip()]


def test_a_matrix_has_medians_and_what_is_lost() -> None:
    nothing = {"arrived": 0, "median_us": None}
    lines = drawn(mesh(h0_h1={"arrived": 5}, h2_h0=nothing))
    assert lines == [
        "RDMA, one way: median in µs, 1024 bytes",
        "from \\ to h0 h1 h2",
        "h0 · 35 -3/8 35",
        "h1 35 · 35",
        "h2 none 35 ·",
    ]


def test_of_many_nics_only_the_bad_pairs_are_shown() -> None:
    assert len(drawn(mesh(20))) == 1
    assert drawn(mesh(20, h3_h7={"arrived": 2}))[1:] == ["from to median", "h3:eth1 h7:eth1 35 -6/8"]


def test_nics_of_one_host_have_their_interfaces() -> None:
    assert probe_command.short_names(["h1:eth1", "h1:eth2", "h2:eth1"]) == {
        "h1:eth1": "h1:eth1", "h1:eth2": "h1:eth2", "h2:eth1": "h2",
    }  # fmt: skip


def test_sentences_say_where_and_why() -> None:
    found = mesh(h0_h1={"arrived": 5}, h1_h0={"error": "no route to 10.0.0.1"})
    found["lost_at"] = [{"place": "in leaf1, before leaf1:e5 sends it", "end": "leaf1:e5", "count": 3}]
    found["slow_ports"] = {"leaf3:e6": 5013.0}
    found["resent"], found["unseen"] = 2, 4
    assert [line.strip() for line in probe_command.sentences(found)] == [
        "3 of 48 probes are lost",
        "3 of them last seen: in leaf1, before leaf1:e5 sends it",
        "leaf3:e6 keeps packets for 5013 µs",
        "2 connections needed a second SYN, or a second answer to it",
        "4 packets could not be looked at in time: places are not all known",
        "h1:eth1 to h0:eth1: no route to 10.0.0.1",
    ]
