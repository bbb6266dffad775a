"""Labs that live, for tests: their directory is the test's own, so nobody meets those of the user."""

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from conftest import COMMAND, LIMIT_S, Done
from terminal import Terminal

PAIR = """name: pair
topology:
  rdma_mode: exclusive
  nodes:
    leaf: {kind: switch, vlans: {10: 10.0.10.1/24}}
    h1: {kind: host}
    h2: {kind: host}
  links:
    - {endpoints: ["leaf:e1", "h1:eth1"], vlan: 10}
    - {endpoints: ["leaf:e2", "h2:eth1"], vlan: 10}
"""


class Live:
    """The commands of a user who has a directory for labs and one to work in."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.state = directory / "state"
        self.labs = self.state / "testbed" / "labs"
        self.file = directory / "pair.clab.yml"
        self.file.write_text(PAIR)
        self.env = {**os.environ, "XDG_STATE_HOME": str(self.state), "TESTBED_TEST": str(directory)}
        self.env.pop("TESTBED_LAB", None)

    def __call__(self, *arguments: str | Path, lab: str = "", given: bytes | None = None, **env: str) -> Done:
        done = subprocess.run(
            [*COMMAND, *map(str, arguments)],
            cwd=self.directory,
            env={**self.env, "TESTBED_LAB": lab, **env},
            **({"stdin": subprocess.DEVNULL} if given is None else {"input": given}),
            capture_output=True,
            timeout=LIMIT_S,
            check=False,
        )
        return Done(done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace"))

    @contextlib.contextmanager
    def started(self, *arguments: str | Path, lab: str = "", **options: Any) -> Iterator[subprocess.Popen[bytes]]:
        """A command that goes on, until the end of the block."""
        options = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
        env = {**self.env, "TESTBED_LAB": lab}
        with subprocess.Popen([*COMMAND, *map(str, arguments)], cwd=self.directory, env=env, **options) as process:
            try:
                yield process
            finally:
                process.kill()

    def terminal(self, *arguments: str | Path, lab: str = "", size: tuple[int, int] = (24, 80)) -> Terminal:
        return self.terminal_of([*COMMAND, *map(str, arguments)], lab, size)

    def terminal_of(self, command: list[str], lab: str = "", size: tuple[int, int] = (24, 80)) -> Terminal:
        """A terminal with any program in it."""
        return Terminal(command, self.directory, {**self.env, "TESTBED_LAB": lab}, size)

    def up(self, name: str, *arguments: str | Path) -> str:
        done = self("up", self.file, "--name", name, *arguments)
        assert done.status == 0, done.err
        return name

    def now(self, lab: str) -> float:
        """The lab's time, in seconds."""
        return float(self("inspect", "-f", "json", lab=lab).json["now_s"])

    def record(self, lab: str) -> dict[str, Any]:
        return json.loads((self.labs / lab / "lab.json").read_text())

    def processes(self) -> dict[int, str]:
        """Command lines of all processes that were started for these labs, keepers and QEMUs among them."""
        found = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) != os.getpid():
                with contextlib.suppress(OSError):
                    if f"TESTBED_TEST={self.directory}\0".encode() in (entry / "environ").read_bytes() + b"\0":
                        command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
                        if command:
                            found[int(entry.name)] = command
        return found

    def machine(self, lab: str) -> int:
        """The QEMU of a lab: the child of its keeper."""
        keeper = str(self.record(lab)["pid"])
        for pid in self.processes():
            with contextlib.suppress(OSError):
                if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1] == keeper:
                    return pid
        raise AssertionError(f"{lab} has no machine")

    def end(self) -> None:
        """Ends all labs, whatever a test did to them, and checks that nothing is left of them."""
        self("down", "--all")
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def wait_for(condition: Callable[[], Any], within: float = 60) -> bool:
    deadline = time.monotonic() + within
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def rss(pid: int) -> int:
    """Bytes of memory that a process has."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) << 10
