"""The end of programs that a lab follows."""

import os
import signal
import subprocess
from types import SimpleNamespace

from testbed.lab.programs import Programs


def test_a_program_ends_once_although_a_process_that_was_forked_meanwhile_has_its_pidfd() -> None:
    """An agent of switches that come later has copies of all open files; epoll goes on to report such a file."""
    programs, ended = Programs(), []
    popen = subprocess.Popen(["sleep", "600"])
    program = SimpleNamespace(
        pid=popen.pid, stopped=False, node="h1", command=["sleep", "600"], ended=-9, log=SimpleNamespace(name="1.log")
    )
    programs.follow(program, lambda *event: ended.append(event))  # type: ignore[arg-type]
    fork = os.fork()  # as an agent is
    if fork == 0:
        signal.pause()
        os._exit(0)
    try:
        popen.kill()
        popen.wait()
        programs.drain()
        programs.drain()
    finally:
        os.kill(fork, signal.SIGKILL)
        os.waitpid(fork, 0)
    programs.close()
    assert [node for _, node, _ in ended] == ["h1"]
