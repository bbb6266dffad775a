"""Packages beside those of the image. Debian's mirror is asked for them."""

import json
from pathlib import Path

import pytest

SCENARIO = '''
from testbed import Scenario, Variant


class Flow(Scenario):
    """tcpflow writes a connection down."""

    packages = ("tcpflow",)
    variants = (Variant("only", "healthy", "tcpflow is there and writes"),)

    def run(self, run, p):
        a, b = run.lab.host("a"), run.lab.host("b")
        files = a.run("mktemp", "-d").stdout.strip()
        flow = a.spawn("tcpflow", "-i", "eth1", "-o", files)
        flow.wait_output("listening on eth1", within=20)
        server = a.spawn("nc", "-n", "-v", "-l", "-N", str(a["eth1"].address().ip), "5000")
        server.wait_output("Listening", within=10)
        b.run("nc", "-n", "-N", str(a["eth1"].address().ip), "5000", text="a line")
        server.wait(within=10)

        def written():
            return a.run("sh", "-c", f"cat {files}/*.05000 || true").stdout

        run.eventually("tcpflow writes it down", written, "a line", within=10)
        flow.stop()
        run.note(written=written(), installed=a.run("dpkg-query", "-W", "-f", "${Status}", "tcpflow").stdout)
        run.observe("healthy" if written() == "a line" else "fault", "tcpflow wrote it down")
'''
TOPOLOGY = """name: flow
topology:
  nodes:
    a: {kind: host, rdma: false}
    b: {kind: host, rdma: false}
  links:
    - {endpoints: ["a:eth1", "b:eth1"]}
"""


@pytest.mark.slow
def test_a_scenario_has_the_packages_it_names_in_bytes_that_are_always_the_same(testbed, cache, tmp_path):
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "scenario.py").write_text(SCENARIO)
    (mine / "topology.clab.yml").write_text(TOPOLOGY)
    env = {"XDG_CACHE_HOME": str(cache.parent)}

    def ran() -> tuple[dict, dict]:
        done = testbed("run", mine, "--json", env=env)
        assert done.status == 0, done.err
        [layer] = testbed("image", "info", "--json", env=env).json["layers"]
        return done.json, layer

    first, layer = ran()
    [variant] = first["variants"]
    assert variant["evidence"] == {"written": "a line", "installed": "install ok installed"}
    assert "tcpflow" in layer["packages"]

    Path(layer["path"], "manifest.json").unlink()
    again, other = ran()
    assert (other["digest"], again["trace"]) == (layer["digest"], first["trace"])
    assert first["image"] == again["image"] != testbed("image", "info", "--json", env=env).json["digest"]
    assert json.loads(testbed("describe", mine, "--json").out)["packages"] == ["tcpflow"]


def test_a_package_that_debian_does_not_have_is_wrong_input(testbed, tmp_path):
    done = testbed("image", "build", "--with", "tcpflwo")
    assert done.status == 2
    assert "has no package 'tcpflwo' Did you mean tcpflow?" in done.error
