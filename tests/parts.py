"""Run commands one after the other, each a part of a test run; report what each took in the end.

python tests/parts.py 'unit tests=.venv/bin/pytest tests/unit' 'lint=make lint'

CPU seconds are those of all processes that a part started, also of those that outlive their parent, as the keepers of
labs that live do. They say more than minutes on a machine that others use, too. The first part that fails is the last.
"""

import ctypes
import os
import shlex
import subprocess
import sys
import time

PR_SET_CHILD_SUBREAPER = 36


def run(command: str) -> tuple[int, float]:
    """Return the exit status of a command and the CPU seconds of all that it started."""
    child = subprocess.Popen(shlex.split(command))
    cpu_s = 0.0
    while True:
        pid, status, usage = os.wait4(-1, 0)
        cpu_s += usage.ru_utime + usage.ru_stime
        if pid == child.pid:
            child.returncode = os.waitstatus_to_exitcode(status)
            return child.returncode, cpu_s


def main(parts: list[str]) -> int:
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    lines, status = [], 0
    for part in parts:
        name, _, command = part.partition("=")
        begin = time.monotonic()
        status, cpu_s = run(command)
        lines.append(f"{name:24} {cpu_s:7.0f} CPU s {time.monotonic() - begin:7.0f} s" + (" failed" if status else ""))
        if status:
            break
    print(*lines, sep="\n", flush=True)
    return 1 if status else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
