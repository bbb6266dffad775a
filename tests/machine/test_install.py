"""testbed installed from a wheel, in an environment that is empty before and far from any checkout."""

import json
import sys
import zipfile
from pathlib import Path

import pytest
from elsewhere import TEST, run

CHECKOUT = Path(__file__).parents[2]


def build(kind, source, target):
    done = run(sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", target, cwd=source)
    assert done.returncode == 0, done.stderr
    [made] = [path for path in target.iterdir() if path.name.endswith({"wheel": ".whl", "sdist": ".tar.gz"}[kind])]
    return made


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    return build("wheel", CHECKOUT, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """The programs of an environment with the wheel in it."""
    place = tmp_path_factory.mktemp("installed")
    for words in ((sys.executable, "-m", "venv", "env"), ("env/bin/pip", "install", "--quiet", wheel)):
        done = run(*words, cwd=place)
        assert done.returncode == 0, done.stderr
    return place / "env/bin"


def test_a_wheel_has_what_git_has_and_that_of_an_sdist_has_the_same(wheel, tmp_path):
    tracked = run("git", "ls-files", "testbed", "scenarios", "docs", "requirements.lock", cwd=CHECKOUT).stdout.split()
    wanted = {name if name.startswith("testbed/") else f"testbed/shipped/{name}" for name in tracked}
    assert {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name} == wanted
    sdist = build("sdist", CHECKOUT, tmp_path / "sdist")
    done = run("tar", "xf", sdist, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    again = build("wheel", tmp_path / sdist.name.removesuffix(".tar.gz"), tmp_path / "wheel")
    assert contents(again) == contents(wheel)


def contents(wheel):
    """The files, each with its mode."""
    archive = zipfile.ZipFile(wheel)
    return {info.filename: (info.external_attr >> 16, archive.read(info)) for info in archive.infolist()}


def test_it_has_the_scenarios_and_runs_one_as_a_checkout_does(installed, testbed, tmp_path, ip_reuse):
    listed = run(installed / "testbed", "list", "--json", cwd=tmp_path)
    assert json.loads(listed.stdout) == testbed("list", "--json").json
    done = run(installed / "testbed", "run", "ip-reuse", "--variant", "garp", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    [variant] = json.loads(done.stdout)["variants"]
    assert variant["trace"] == ip_reuse.variants["garp"]["trace"]


@pytest.mark.slow
def test_plain_pytest_beside_it_runs_tests_in_a_machine(installed, tmp_path):
    (tmp_path / "test_lab.py").write_text(TEST)
    done = run(installed / "pytest", "-q", cwd=tmp_path)
    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout


def test_doctor_names_the_place_of_the_documentation(installed, tmp_path):
    done = run(installed / "testbed", "doctor", "--json", cwd=tmp_path)
    text = next(check["text"] for check in json.loads(done.stdout)["vm"] if check["subject"] == "testbed")
    assert (Path(text.rpartition(" ")[2]) / "docs/scenarios.md").is_file()
