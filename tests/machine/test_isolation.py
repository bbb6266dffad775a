"""What is beside a user's tests takes the place of no module of ours inside a machine either."""

TEST = """
import pytest
import theirs


@pytest.mark.topology("lab.clab.yml")
def test_mine(lab):
    assert theirs.MINE
    assert lab["a"].ping(str(lab.host("b")["eth1"].address().ip), within=1)
"""
TOPOLOGY = """name: pair
topology:
  nodes:
    a: {kind: host}
    b: {kind: host}
  links:
    - {endpoints: ["a:eth1", "b:eth1"]}
"""


def test_tests_in_a_directory_full_of_other_modules_names(testbed, tmp_path):
    mine = tmp_path / "mine"
    (mine / "test").mkdir(parents=True)
    for name in ("colorsys", "ipaddress", "pyroute2", "pyverbs", "scapy", "testbed", "yaml"):
        (mine / f"{name}.py").write_text("raise SystemExit('hijacked')")
    (mine / "theirs.py").write_text("MINE = True")
    (mine / "conftest.py").touch()
    (mine / "test" / "__init__.py").touch()
    (mine / "test" / "test_mine.py").write_text(TEST)
    (mine / "test" / "lab.clab.yml").write_text(TOPOLOGY)
    done = testbed("pytest", mine / "test")
    assert done.status == 0, done.out + done.err
    assert "1 passed" in done.out
