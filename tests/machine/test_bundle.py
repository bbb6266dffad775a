"""What a lab's hosts and switches print, as a bundle of a real cluster: it is diagnosed without the lab's knowledge,
and the lab that is made of it fails in the same way."""

from pathlib import Path

import pytest
from diagnosis import bundles

COLLECTED = Path(__file__).parents[1] / "diagnosis/collected"


@pytest.mark.slow
def test_a_cluster_whose_address_was_reused_is_diagnosed_and_rebuilt(testbed, tmp_path):
    runs = tmp_path / "runs"
    ran = testbed("run", str(COLLECTED), "--variant", "ip-reuse", "--out", str(runs))
    assert ran.status == 0, ran.stderr
    bundles.make(runs / "collected/latest/ip-reuse", tmp_path / "bundle")
    lab = tmp_path / "cluster.clab.yml"
    done = testbed("diagnose", "--from", str(tmp_path / "bundle"), "--topology-out", str(lab), "--json")
    [found] = done.json["variants"][0]["jobs"]
    assert done.status == 1
    assert (found["cause"], found["address"]) == ("stale-neighbour", "10.1.2.44")
    assert found["link"] == "leaf2:Ethernet1/2 - n4:eth1"

    again = testbed("train", str(COLLECTED / "job.py"), "--on", str(lab), "--out", str(runs))
    assert again.status == 1, again.stderr
    done = testbed("diagnose", str(runs / "job/latest"), "--json")
    [same] = done.json["variants"][0]["jobs"]
    assert [same[key] for key in ("cause", "address", "ranks")] == [found[key] for key in ("cause", "address", "ranks")]
