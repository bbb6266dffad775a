"""What probes between all pairs tell of a job whose counters are silent."""

from typing import Any

import pytest
from diagnosis_runs import DIED, Builder, found


def probed(run: Builder, t: float, *, protocol: str = "rdma", **more: Any) -> Builder:
    nics = ["n0:eth1", "n3:eth1"]
    empty = {"bytes": 1024, "errors": [], "lost_at": [], "slow_ports": {}, "resent": 0}
    tables = {"sent": [[0, 8], [8, 0]], "arrived": [[0, 4], [8, 0]], "median_us": [[None, 35.0], [35.0, None]]}
    return run.event(t, "probed", protocol=protocol, nics=nics, **tables, **{**empty, **more})


def lost(end: str, count: int) -> dict[str, Any]:
    return {"place": f"in leaf1, before {end} sends it", "end": end, "count": count}


@pytest.mark.parametrize("ok", [True, False])
def test_a_port_at_which_probes_are_lost(run: Builder, ok: bool) -> None:
    run.starts().ends(9, ok=ok, **({} if ok else DIED))
    one = probed(run, 10, lost_at=[lost("leaf1:up", 4), lost("leaf2:e3", 1)]).diagnosis()
    assert found(one) == ("lost-probes", [], "leaf1:up - leaf2:up")
    assert "4 of the 5" in one.finding.text


def test_probes_before_the_job_and_one_that_is_lost_by_chance_tell_nothing(run: Builder) -> None:
    probed(run, 0.5, lost_at=[lost("leaf1:up", 4)]).starts().ends(9, ok=True)
    assert probed(run, 10, lost_at=[lost("leaf1:up", 1)]).diagnosis().healthy


def test_the_last_mesh_of_rdma_counts(run: Builder) -> None:
    run.starts().ends(9, ok=True)
    probed(run, 10, lost_at=[lost("leaf1:up", 4)])
    probed(run, 11)
    assert probed(run, 12, protocol="tcp", lost_at=[lost("leaf1:up", 4)]).diagnosis().healthy


def test_a_port_that_keeps_packets(run: Builder) -> None:
    run.starts().ends(9, ok=True)
    one = probed(run, 10, slow_ports={"leaf2:e3": 5013.0, "leaf1:up": 900.0}).diagnosis()
    assert found(one) == ("long-link", [3], "leaf2:e3 - n3:eth1")
    assert one.finding.text == "packets are at leaf2:e3 for 5.0 ms; it is that of rank 3 on n3"


def test_damaged_places_are_let_through(run: Builder) -> None:
    run.starts().ends(9, ok=True)
    assert probed(run, 10, lost_at=[{"place": 3}, {"end": "leaf1:up", "count": 4}]).diagnosis().healthy
