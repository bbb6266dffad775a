"""A process on a worker of a Dask cluster, with the code that was sent: it prepares the host, and runs points.

The working directory is the place of what was sent (remote.place). Arguments are the file of the sweep's work and the
digest of the image. Requests come by standard input, one after the other, and answers go to standard output, each
preceded by its length (worker_processes.py).
"""

import asyncio
import os
import pickle
import shutil
import sys
from collections.abc import Callable, Sequence
from contextlib import chdir, suppress
from pathlib import Path
from typing import Any

from testbed.errors import TestbedError
from testbed.machine import cache, child_processes, image, layers
from testbed.machine.archives import boot_image
from testbed.machine.image import Image
from testbed.machine.qemu import Flavour
from testbed.machine.record import Identity
from testbed.machine.sweeps import answers, commands
from testbed.machine.sweeps.points import Point, Work
from testbed.machine.vm import VirtualMachine
from testbed.protocol import messages

KEEP = 4
"""Code, work, and images with snapshots kept for the last sweeps, of each so many; a killed client's partial files
too."""
LACKS = answers.write("lacks")
"""The answer of a host without the image."""
Act = Callable[..., bytes]


def main() -> None:
    work_file, digest = sys.argv[1:]
    requests, replies = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)  # requests and answers are between the worker and this process alone
    work: Work = pickle.loads(Path(work_file).read_bytes())  # noqa: S301 - the sweep's own
    with suppress(EOFError):
        while True:
            action, *others = pickle.load(requests)  # noqa: S301 - the sweep's own
            answer = answered(ACTIONS[action], work, digest, others)
            replies.write(len(answer).to_bytes(answers.LENGTH, "big") + answer)
            replies.flush()


def answered(act: Act, work: Work, digest: str, others: Sequence[Any]) -> bytes:
    """Return the answer to a request. Restore the environment and the directory for the next one."""
    environment = {**os.environ}
    try:
        with chdir("."):
            return act(work, digest, *others)
    except TestbedError as error:
        return answers.write("failed", messages.failure(error))
    finally:
        os.environ.clear()
        os.environ.update(environment)


def prepare(work: Work, digest: str) -> bytes:
    for kind in "code", "work", "image", "sent", "part", "making":
        prune(Path.cwd(), f"{kind}-*")
    machine = machine_with(work, digest)
    return answers.write("identity", Identity.of(machine)) if machine else LACKS


def take_image(work: Work, digest: str, sent: str) -> bytes:
    """Import an image that was sent, into a cache for it alone: the user's own may be another of the same version."""
    exported = Path(sent)
    use_own_cache(digest)
    boot_image.import_(exported)
    exported.unlink()
    return prepare(work, digest)


def run(work: Work, digest: str, point: Point, kept: bool) -> bytes:
    machine = machine_with(work, digest)
    if machine is None:
        return LACKS
    with child_processes.scratch() as out:
        result = asyncio.run(work.carry_out(point.variant, point.seed, machine, out))
        return answers.write("ended", result, b"" if result.as_expected or not kept else answers.packed(out))


def command(work: Work, digest: str, *words: str) -> bytes:
    """Run a command of this testbed, and return what it printed."""
    if machine_with(work, digest) is None:
        return LACKS
    with child_processes.scratch() as out:
        return answers.write("printed", commands.printed([*words, "--out", str(out)]))


def machine_with(work: Work, digest: str) -> VirtualMachine | None:
    """Return a machine with this very image, which is in the user's cache or in one for it alone."""
    if image_with(work, digest) is None:
        use_own_cache(digest)
    found = image_with(work, digest)
    return VirtualMachine(found, Flavour("virtual"), lambda _: None) if found else None


def image_with(work: Work, digest: str) -> Image | None:
    base = image.find()
    found = base and layers.find(base, work.info["packages"])
    return found if found and found.digest == digest else None


def use_own_cache(digest: str) -> None:
    own = Path.cwd() / f"image-{digest[:16]}"
    own.mkdir(exist_ok=True)
    os.utime(own)
    os.environ["XDG_CACHE_HOME"] = str(own)
    cache.directory("images")


def prune(parent: Path, pattern: str) -> None:
    """Remove all but the last used ones."""
    for path in cache.by_use(parent.glob(pattern))[:-KEEP]:
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


ACTIONS: dict[str, Act] = {"prepare": prepare, "image": take_image, "run": run, "command": command}

if __name__ == "__main__":
    main()
