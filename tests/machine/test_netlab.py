"""What `netlab create` writes for containerlab is brought up as it is, and its routers find each other's loopbacks.

netlab is installed from the package index; the topologies are of our own. Its `netlab initial` carries out the files in
/etc/config of each node; so does the test.
"""

import itertools
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conftest import Done
from elsewhere import run
from test_live_cli import run_in

TOPOLOGIES = sorted((Path(__file__).parent / "programs" / "netlab").glob("*.yml"))
CHECKOUT = Path(__file__).parents[2]
NETLAB = "networklab==26.10"
CONVERGED_S = 90
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def netlab(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path, Path], Path]:
    """Creates a lab in a directory, and returns its file for containerlab."""
    packages = tmp_path_factory.mktemp("netlab")
    install = (sys.executable, "-m", "pip", "install", "--quiet", "--target", packages, NETLAB)
    done = run(*install, cwd=packages)
    assert done.returncode == 0, done.stderr

    def create(topology: Path, place: Path) -> Path:
        words = (sys.executable, packages / "bin/netlab", "create", topology)
        made = run(*words, cwd=place, PYTHONPATH=str(packages), PATH=f"{packages}/bin:{os.environ['PATH']}")
        assert made.returncode == 0, made.stdout + made.stderr
        return place / "clab.yml"

    return create


@pytest.fixture(scope="module")
def frr(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], None]:
    """Adds our image of FRR under the name that a file has."""
    archive = tmp_path_factory.mktemp("frr") / "frr.tar"
    subprocess.run([sys.executable, CHECKOUT / "containers/build", "frr", "-o", archive], check=True)

    def add(name: str) -> None:
        assert run_in(archive.parent, "image", "add", str(archive), "--name", name).status == 0

    return add


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    run_in(tmp_path, "down", "--all")


@pytest.mark.parametrize("topology", TOPOLOGIES, ids=lambda file: file.stem)
def test_its_routers_reach_each_other(
    topology: Path, netlab: Callable[[Path, Path], Path], frr: Callable[[str], None], place: Path
) -> None:
    def testbed(*words: str) -> Done:
        return run_in(place, *words)

    text = netlab(topology, place).read_text()
    [name] = set(re.findall(r"image: (\S+)", text))
    frr(name)
    nodes = re.findall(r"^    (\w+):\n      mgmt-ipv4", text, re.MULTILINE)
    up = testbed("up", "clab.yml", "--clock", "virtual")
    assert up.status == 0, up.err
    for node in nodes:
        done = testbed("exec", node, "--", "sh", "-ec", "for file in /etc/config/*.sh; do sh -c $file; done")
        assert done.status == 0, done.out + done.err
    assert testbed("advance", f"{CONVERGED_S}s").status == 0
    loopbacks = {}
    for node in nodes:
        shown = testbed("exec", node, "--", "ip", "-4", "-o", "address", "show", "dev", "lo").out
        [loopbacks[node]] = re.findall(r"inet (\S+)/32", shown)
    assert len({*loopbacks.values()}) == len(nodes)
    for one, other in itertools.permutations(nodes, 2):
        ping = ("ping", "-c", "1", "-W", "1", "-I", loopbacks[one], loopbacks[other])
        done = testbed("exec", one, "--", *ping)
        assert done.status == 0, f"{one} does not reach {other}: {done.out}{done.err}"
