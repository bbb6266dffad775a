"""Nodes that are containers, from outside. Debian's mirror is asked for Docker."""

import shutil
from pathlib import Path

import pytest

HERE = Path(__file__).parent
PROGRAMS = HERE / "programs" / "containers"
NAMES = "testbed-tests/tools:1", "testbed-tests/bare:1"
SCENARIO = '''
from testbed import Scenario, Variant


class Pair(Scenario):
    """Two containers play ping-pong, on a machine as the tests in containers have it."""

    images = ("testbed-tests/bare:1",)
    variants = (Variant("only", "healthy", "they do"),)

    def run(self, run, p):
        a, b = run.lab.host("a"), run.lab.host("b")
        server = b.spawn("ibv_rc_pingpong", "-e", "-g", "1", "-n", "50")
        run.sleep(0.3, "the server listens")
        wrote = a.run("ibv_rc_pingpong", "-e", "-g", "1", "-n", "50", "10.0.0.2").stdout
        run.note(wrote=wrote, server=server.wait(5), random=a.run("cat", "/proc/sys/kernel/random/uuid").stdout)
        run.observe("healthy" if "50 iters" in wrote else "fault", "they played")
'''
TOPOLOGY = """name: pair
topology:
  nodes:
    a: {kind: linux, image: testbed-tests/tools:1}
    b: {kind: linux, image: testbed-tests/tools:1}
  links:
    - {endpoints: ["a:eth1", "b:eth1"], ipv4: [10.0.0.1/24, 10.0.0.2/24]}
"""


@pytest.fixture
def images(testbed, tmp_path):
    """Images made in a machine, in the cache until the end of the test."""
    inside = tmp_path / "make"
    shutil.copytree(PROGRAMS, inside, ignore=shutil.ignore_patterns("in_containers.py", "conf"))
    shutil.copy(HERE.parent / "container_images.py", inside)
    done = testbed("pytest", inside / "make_images.py", "--out", tmp_path / "made")
    assert done.status == 0, done.out + done.err
    for file in sorted((tmp_path / "made").rglob("tmp/*/*.tar")):
        assert testbed("image", "add", file).status == 0
    yield NAMES
    assert testbed("image", "rm", *NAMES).status == 0


@pytest.mark.slow
def test_nodes_with_an_image_are_containers_and_each_run_of_them_is_the_same(testbed, images, tmp_path):
    assert {one["name"] for one in testbed("image", "ls", "--json").json} >= set(images)
    inside = [word for name in images for word in ("--image", name)]
    done = testbed("pytest", *inside, PROGRAMS / "in_containers.py")
    assert done.status == 0, done.out + done.err

    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "scenario.py").write_text(SCENARIO)
    (mine / "topology.clab.yml").write_text(TOPOLOGY)
    runs = [testbed("run", mine, "--seed", seed, "--json").json for seed in ("1", "1", "2")]
    assert [run["verdict"] for run in runs] == ["as-expected"] * 3
    assert runs[0]["trace"] == runs[1]["trace"] != runs[2]["trace"]

    (mine / "topology.clab.yml").write_text(TOPOLOGY.replace("tools:1", "nothing:1"))
    done = testbed("run", mine)
    assert done.status == 2
    assert "the image testbed-tests/nothing:1 has not been added" in done.error
    assert "docker save testbed-tests/nothing:1 -o FILE && testbed image add FILE" in done.error
