"""The sockets of FRR's daemons by which vtysh asks them (lib/vty.c)."""

import socket
from pathlib import Path

from testbed.errors import TestbedError

ANSWER_S = 10.0
END = b"\0\0\0"
"""The end of a daemon's answer, before the status, one byte."""
REFUSED = (2, 3, 4, 13)
"""Status of a command that is not carried out: no match, ambiguous, incomplete, failed (lib/command.h)."""


def ask(path: Path, *commands: str) -> str:
    """Return a daemon's answer to the last of some commands. TestbedError for one that it refuses, or if it is gone."""
    name = path.stem
    with socket.socket(socket.AF_UNIX) as vty:
        vty.settimeout(ANSWER_S)
        try:
            vty.connect(str(path))
            for line in ("enable", *commands):
                vty.sendall(line.encode() + b"\0")
                answer = b""
                while answer[-4:-1] != END:
                    if not (data := vty.recv(1 << 16)):
                        raise TestbedError(f"FRR's {name} ended during {line!r}")
                    answer += data
                if answer[-1] in REFUSED:
                    raise TestbedError(f"FRR's {name} refuses {line!r}: {answer[:-4].decode(errors='replace').strip()}")
        except OSError as error:
            raise TestbedError(f"FRR's {name} does not answer {commands[-1]!r}: {error}") from error
    return answer[:-4].decode()
