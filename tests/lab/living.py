"""Whether a process lives, as tests ask it."""

from pathlib import Path


def alive(pid: str) -> bool:
    """A process that is reaped between open(2) and read(2) makes the latter fail with ESRCH."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"
