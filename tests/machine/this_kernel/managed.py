"""The same machine booted by systemd, with udevd, networkd and NetworkManager, as a server or a desktop has them.

systemd is the first process of a PID namespace here, because the machine has its first process already. The network
namespace, the kernel's modules and its RDMA devices are the machine's own.
"""

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from test_this_kernel import COMMAND, COMMAND_LINE, HERE

BOOT = """
mkdir /sys/fs/cgroup/booted
echo 0 > /sys/fs/cgroup/booted/cgroup.procs
exec unshare --cgroup --mount --pid --fork --kill-child --mount-proc sh -c '
    mount -t tmpfs run /run
    mount -t cgroup2 cgroup2 /sys/fs/cgroup
    exec env -i container=vm PATH="$PATH" /usr/lib/systemd/systemd --unit=multi-user.target'
"""
USER = Path("/srv/vm")
"""What was HERE: systemd has a /run of its own."""
START_S = 120
UPLINK = "uplink"
"""A link of the machine's own, which NetworkManager has."""
HOSTNAMED = "systemd-hostnamed"
"""A service with PrivateNetwork=yes, which NetworkManager starts, and which ends half a minute later."""
CONSOLES = "console-getty.service", "getty.target"


class Booted:
    """A machine that systemd has booted; `pid` is systemd."""

    def __init__(self, pid: int) -> None:
        self._enter = ("nsenter", "--target", str(pid), "--mount", "--pid", "--cgroup", f"--wdns={USER}")

    def call(self, *words: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "PYTHONPATH": "installed:packages", "XDG_CACHE_HOME": "cache", "COLUMNS": "1000"}
        done = subprocess.run([*self._enter, *words], env=environment, capture_output=True, text=True, check=False)
        print(words, done.returncode, done.stdout, done.stderr)
        return done

    def run(self, *words: str) -> str:
        done = self.call(*words)
        assert done.returncode == 0
        return done.stdout

    @contextlib.contextmanager
    def running(self, *words: str, log: Path) -> Iterator[None]:
        with log.open("wb") as output, subprocess.Popen([*self._enter, *words], stdout=output) as process:
            try:
                yield
            finally:
                process.terminate()

    def networks(self) -> str:
        """What those that manage networks have."""
        return self.run("nmcli", "device") + self.run("networkctl", "--no-legend", "list")


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + START_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def systemd_of(parent: int) -> int:
    """The child that is systemd; 0 before it is."""
    for pid in map(int, Path(f"/proc/{parent}/task/{parent}/children").read_text().split()):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            if Path(f"/proc/{pid}/comm").read_text() == "systemd\n":
                return pid
    return 0


@contextlib.contextmanager
def boot() -> Iterator[Booted]:
    with (
        (HERE / "boot.log").open("wb") as log,
        subprocess.Popen(["sh", "-ec", BOOT], stdout=log, stderr=log) as process,
    ):
        try:
            until(lambda: systemd_of(process.pid))
            pid = systemd_of(process.pid)
            until(Path(f"/proc/{pid}/root/run/systemd/private").exists)
            yield Booted(pid)
        finally:
            process.kill()


@pytest.fixture(scope="module")
def booted() -> Iterator[Booted]:
    shutil.copytree(HERE, USER)
    for unit in CONSOLES:
        Path("/etc/systemd/system", unit).symlink_to("/dev/null")
    with boot() as machine:
        machine.run("systemctl", "start", "systemd-udevd", "systemd-networkd", "NetworkManager")
        machine.run("udevadm", "settle")
        machine.run("ip", "link", "add", UPLINK, "type", "dummy")
        dummy = ("type", "dummy", "ifname", UPLINK, "con-name", UPLINK, "autoconnect", "no")
        machine.run("nmcli", "connection", "add", *dummy, "ipv4.method", "manual", "ipv4.addresses", "192.0.2.1/24")
        machine.run("nmcli", "connection", "up", UPLINK)
        yield machine


def set_mode(mode: str) -> None:
    topology = USER / "lab" / "topology.clab.yml"
    topology.write_text(topology.read_text().replace("exclusive", mode).replace("shared", mode))


@pytest.mark.parametrize("mode", ["shared", "exclusive"])
def test_systemd_udev_and_network_manager_leave_a_lab_alone_and_it_them(booted: Booted, mode: str) -> None:
    set_mode(mode)
    booted.run("systemctl", "stop", HOSTNAMED)
    before, log = booted.networks(), USER / f"links-{mode}.log"
    with booted.running("ip", "monitor", "link", "address", log=log):
        booted.run(*COMMAND, *COMMAND_LINE)
        booted.run("udevadm", "settle")
        assert log.read_text() == ""
        booted.run("ip", "link", "add", "control", "type", "dummy")
        until(lambda: "control" in log.read_text())
        booted.run("ip", "link", "delete", "control")
        until(lambda: "Deleted" in log.read_text())
    assert booted.networks() == before
    told = booted.run("journalctl", "--output", "cat", "--unit", "NetworkManager", "--unit", "systemd-networkd")
    assert UPLINK in told
    assert "eth1" not in told


def test_a_service_with_a_network_namespace_is_named(booted: Booted) -> None:
    set_mode("exclusive")
    booted.run("systemctl", "start", HOSTNAMED)
    refused = booted.call(*COMMAND, *COMMAND_LINE)
    assert refused.returncode == 1
    assert "the RDMA netns mode could not be changed" in refused.stdout
    assert "Found: that of systemd-hostnam (process " in refused.stdout
