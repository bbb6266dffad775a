"""Who answered an ARP request in a real fabric, as the report of a run has it."""

import pytest

from testbed.report.contents import contents
from testbed.report.run_model import read_run


@pytest.mark.parametrize(
    ("variant", "owner", "switch", "level"), [("as-is", "old", "leaf2", "bad"), ("take", "new", "leaf3", "note")]
)
def test_the_report_tells_the_fabrics_answers_from_those_of_hosts(testbed, tmp_path, variant, owner, switch, level):
    """A leaf answers for a host in another rack, and a host answers for itself: both replies have the host's MAC."""
    done = testbed("run", "evpn-stale-suppression", "--variant", variant, "--json")
    assert done.status == 0, done.err or done.out
    [part] = contents([read_run(tmp_path / done.json["out"])], lambda _: "", tmp_path)["parts"]
    assert [(row["asker"], row["ip"], row["by"], row["why"], row["level"]) for row in part["answers"]["rows"]] == [
        ("late", "10.0.10.4", "leaf1", f"suppression: learned from {switch}; nothing came from {owner}", level),
        ("new", "10.0.10.3", "late", "the reply was on its link", "plain"),
    ]
    assert any(lane["group"] == "Answers" and lane["name"] == "late asks for 10.0.10.4" for lane in part["lanes"])
