"""The container image in which labs run without privileges, with the docker of the distribution and no registry."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from conftest import LIMIT_S

CHECKOUT = Path(__file__).parents[2]
READ_ONLY = ("--read-only", "--tmpfs", "/tmp", "--tmpfs", "/runs:mode=1777")  # noqa: S108
GARP = ("run", "ip-reuse", "--variant", "garp", "--json")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(LIMIT_S)]


@pytest.fixture(scope="module")
def docker(tmp_path_factory):
    """The docker command with a daemon of its own, which needs neither bridges nor nftables of this kernel."""
    place = tmp_path_factory.mktemp("docker")
    command = ["dockerd", "--bridge=none", "--iptables=false", "--ip6tables=false", "--host", f"unix://{place}/socket"]
    command += ["--data-root", place / "data", "--exec-root", place / "exec", "--pidfile", place / "pid"]
    with (place / "log").open("w") as log:
        daemon = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
    environment = {**os.environ, "DOCKER_HOST": f"unix://{place}/socket"}

    def call(*words, program="docker"):
        return subprocess.run(
            [program, *map(str, words)], env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=False
        )

    begin = time.monotonic()
    while call("info").returncode:
        assert daemon.poll() is None, (place / "log").read_text()
        assert time.monotonic() - begin < LIMIT_S, (place / "log").read_text()
        time.sleep(0.2)
    yield call
    daemon.send_signal(signal.SIGTERM)
    daemon.wait(LIMIT_S)


@pytest.fixture(scope="module")
def container(docker, tmp_path_factory):
    """Runs testbed in a container without a network, a capability or a new privilege."""
    archive = tmp_path_factory.mktemp("image") / "testbed.tar"
    for words in ([CHECKOUT / "containers/build", "testbed", "-o", archive], ["docker", "load", "--input", archive]):
        done = docker(*words[1:], program=words[0])
        assert done.returncode == 0, done.stderr
    archive.unlink()

    def run(*words, options=()):
        limits = ("--rm", "--network=none", "--cap-drop=ALL", "--security-opt=no-new-privileges")
        return docker("run", *limits, *options, "testbed", *words)

    return run


def test_labs_run_in_a_container_without_privileges(container, tmp_path):
    """One test, because its image takes minutes to build."""
    traces = set()
    for options in (), ("--user=12345:678",), READ_ONLY, (*READ_ONLY, "--user=12345:678"):
        done = container(*GARP, options=options)
        assert done.returncode == 0, done.stderr
        assert "for the first time" not in done.stderr  # the snapshot is in the image
        traces.add(json.loads(done.stdout)["trace"])
    assert len(traces) == 1

    tmp_path.chmod(0o777)
    assert container(*GARP, options=("--user=12345", f"--volume={tmp_path}:/runs")).returncode == 0
    assert (tmp_path / "ip-reuse/latest/result.json").stat().st_uid == 12345

    done = container(*GARP, options=("--read-only", "--tmpfs=/tmp"))
    assert done.returncode == 3
    error = json.loads(done.stdout)["error"]
    assert (error["message"], error["where"]) == ("this file system is read-only", "runs/ip-reuse")
    assert "Traceback" not in done.stderr
