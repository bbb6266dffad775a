"""testbed on the distributions that it is for: installed from a wheel by a plain user. QEMU comes with the image."""

import json
import os
import sys
from pathlib import Path

import pytest
from elsewhere import PATH, TEST, USER, make_busybox_root, make_root, run, run_in
from test_install import build

from testbed.machine.archives.boot_image import export
from testbed.machine.image import find

CHECKOUT = Path(__file__).parents[2]
PACKAGES = ("python3-venv",)
PYTHONS = {"bookworm": "3.11", "trixie": "3.13"}
VARIANTS = "run", "ip-reuse", *(word for name in ("as-is", "garp", "aging") for word in ("--variant", name)), "--json"
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", params=PYTHONS)
def suite(request):
    return request.param


@pytest.fixture(scope="module")
def user(suite, tmp_path_factory):
    """Runs commands of a user in a fresh root of the distribution, without a network. At home are the wheels that pip
    installs and an image that was exported."""
    place = tmp_path_factory.mktemp(suite)
    root = place / "root"
    make_root(suite, PACKAGES, root)
    home = root / "home/user"
    home.mkdir()
    wheel = build("wheel", CHECKOUT, place)
    download = (sys.executable, "-m", "pip", "download", "--quiet", "--only-binary=:all:", "--dest", home / "wheels")
    done = run(*download, "--python-version", PYTHONS[suite], wheel, cwd=place)
    assert done.returncode == 0, done.stderr
    export(find(), home / "image.oci")
    os.chown(home, USER, USER)

    def call(*words):
        path = f"/home/user/env/bin:{PATH}"
        return run_in(root, *words, user=USER, home="/home/user", directory="/home/user", path=path)

    for words in (
        ("python3", "-m", "venv", "env"),
        ("pip", "install", "--quiet", "--no-index", "--find-links", "wheels", "testbed"),
        ("testbed", "image", "import", "image.oci"),
    ):
        done = call(*words)
        assert done.returncode == 0, done.stderr
    return call


def test_a_scenario_runs_as_it_does_here_with_the_same_trace(user, suite, testbed):
    assert user("python3", "-V").stdout.startswith(f"Python {PYTHONS[suite]}.")
    done = user("testbed", *VARIANTS)
    assert done.returncode == 0, done.stderr
    there, here = json.loads(done.stdout), testbed(*VARIANTS).json
    assert seen(there) == seen(here)
    assert there["trace"] == here["trace"]
    again = user("testbed", "rerun", "runs/ip-reuse/latest")
    assert again.returncode == 0, again.stdout


def seen(result):
    return [(variant["name"], variant["observed"]) for variant in result["variants"]]


def test_a_test_of_the_user_s_runs_in_a_machine(user):
    user("sh", "-c", f"mkdir tests; cat > tests/test_lab.py <<'END'\n{TEST}END")
    done = user("pytest", "-q", "tests")
    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout


def test_a_linux_that_is_no_debian_needs_python_and_an_image(tmp_path, testbed):
    """Busybox has the programs. A plain user imports an image and runs a scenario: the trace is the one here."""
    root = tmp_path / "root"
    make_busybox_root(root)
    home = root / "home/user"
    wheel = build("wheel", CHECKOUT, tmp_path)
    install = (sys.executable, "-m", "pip", "install", "--quiet", "--only-binary=:all:", "--target", root / "site")
    done = run(*install, wheel, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    export(find(), home / "image.oci")
    os.chown(home, USER, USER)
    os.chown(home / "image.oci", USER, USER)

    def call(*words):
        python = ("env", "PYTHONPATH=/site", "LD_LIBRARY_PATH=/lib", "python3", "-m", "testbed")
        return run_in(root, *python, *words, user=USER, home="/home/user", directory="/home/user", path=f"/bin:{PATH}")

    refused = call("run", "ip-reuse", "--variant", "as-is")
    assert refused.returncode == 3, refused.stderr
    assert "testbed image import" in refused.stderr
    assert "apt-get" not in refused.stderr
    done = call("image", "import", "image.oci")
    assert done.returncode == 0, done.stderr
    one = ("run", "ip-reuse", "--variant", "as-is", "--json")
    done = call(*one)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["trace"] == testbed(*one).json["trace"]
