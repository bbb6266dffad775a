"""The same machine with systemd-udevd and NetworkManager at work, as a desktop or a server has them."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_this_kernel import COMMAND_LINE, HERE, call

START_S = 60
UPLINK = "uplink"
"""A link of the machine's own, which NetworkManager has."""


@contextlib.contextmanager
def daemon(*command: str, log: Path) -> Iterator[None]:
    with log.open("wb") as output, subprocess.Popen(command, stdout=output, stderr=output) as process:
        try:
            yield
        finally:
            process.terminate()


def nmcli(*words: str) -> str:
    done = subprocess.run(["nmcli", "-t", *words], capture_output=True, text=True, check=False)
    return done.stdout if done.returncode == 0 else ""


def until(condition: object) -> None:
    deadline = time.monotonic() + START_S
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.fixture(scope="module", autouse=True)
def _managed() -> Iterator[None]:
    for directory in ("/run/dbus", "/run/udev", "/run/NetworkManager"):
        os.makedirs(directory, exist_ok=True)
    Path("/etc/machine-id").write_text("0" * 31 + "1\n")
    with (
        daemon("dbus-daemon", "--system", "--nofork", "--nopidfile", log=HERE / "dbus.log"),
        daemon("/usr/lib/systemd/systemd-udevd", log=HERE / "udevd.log"),
    ):
        until(Path("/run/dbus/system_bus_socket").exists)
        until(Path("/run/udev/control").exists)
        subprocess.run(["udevadm", "trigger", "--action=add"], check=True)
        subprocess.run(["udevadm", "settle"], check=True)
        with daemon("NetworkManager", "--no-daemon", "--log-level=DEBUG", log=HERE / "nm.log"):
            until(lambda: nmcli("general"))
            subprocess.run(["ip", "link", "add", UPLINK, "type", "dummy"], check=True)
            add = ("connection", "add", "type", "dummy", "ifname", UPLINK, "con-name", UPLINK)
            nmcli(*add, "ipv4.method", "manual", "ipv4.addresses", "192.0.2.1/24")
            until(lambda: f"{UPLINK}:dummy:connected" in nmcli("device"))
            yield


@pytest.mark.parametrize("mode", ["shared", "exclusive"])
def test_udev_and_network_manager_leave_a_lab_alone_and_it_them(mode: str) -> None:
    topology = HERE / "lab" / "topology.clab.yml"
    topology.write_text(topology.read_text().replace("exclusive", mode).replace("shared", mode))
    before, log = nmcli("device"), HERE / f"{mode}.log"
    with (
        daemon("ip", "monitor", "link", log=HERE / f"links-{mode}.log"),
        daemon("udevadm", "monitor", "--kernel", "--udev", "--property", "-s", "infiniband", log=log),
    ):
        until(lambda: "KERNEL" in log.read_text())
        done = call(*COMMAND_LINE)
        subprocess.run(["udevadm", "settle"], check=True)
    assert done.returncode == 0, done.stderr
    assert nmcli("device") == before
    assert (HERE / f"links-{mode}.log").read_text() == ""
    told = (HERE / "nm.log").read_text()
    assert UPLINK in told
    assert "eth1" not in told
    print(log.read_text())
