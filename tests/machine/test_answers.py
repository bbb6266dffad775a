"""Who answered an ARP request in a real fabric, as the report of a run has it."""

from testbed.report.contents import contents
from testbed.report.run_model import read_run


def test_the_report_tells_the_fabrics_answers_from_those_of_hosts(testbed, tmp_path):
    """A leaf answers for a host in another rack, and a host answers for itself: both replies have the host's MAC."""
    done = testbed("run", "evpn-stale-suppression", "--variant", "as-is", "--variant", "take", "--json")
    assert done.status == 0, done.err or done.out
    parts = contents([read_run(tmp_path / done.json["out"])], lambda _: "", tmp_path)["parts"]
    keys = "asker", "ip", "by", "why", "level"
    rows = [[tuple(row[key] for key in keys) for row in part["answers"]["rows"]] for part in parts]
    own = ("new", "10.0.10.3", "late", "the reply was on its link", "plain")
    suppressed = "suppression: learned from"
    assert rows == [
        [("late", "10.0.10.4", "leaf1", f"{suppressed} leaf2; nothing came from old", "bad"), own],
        [("late", "10.0.10.4", "leaf1", f"{suppressed} leaf3; nothing came from new", "note"), own],
    ]
    for part in parts:
        assert any(lane["group"] == "Answers" and lane["name"] == "late asks for 10.0.10.4" for lane in part["lanes"])
