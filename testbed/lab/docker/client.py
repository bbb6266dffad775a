"""The client of Docker's daemon, and the errors of it."""

from __future__ import annotations

import contextlib
import functools
import os
import posixpath
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from testbed.errors import TestbedError, UnsupportedError
from testbed.lab.docker import daemon

if TYPE_CHECKING:
    from docker import APIClient

CONTAINERS = daemon.DATA / "containers"
RUNTIME_STATE = "/run/docker/runtime-runc/moby"
"""The state of runc's containers, in which it finds them by their ids."""
ANSWER_S = 60
MOST_LINKS = 40
"""Symbolic links in a path, as in the kernel."""


@functools.cache
def client() -> APIClient:
    """Return the client. UnsupportedError where this machine has no Docker, or none that is testbed's."""
    if not daemon.SOCKET.exists() or not daemon.LOG.exists():
        hint = "`testbed run` and `testbed up` start machines with Docker if the topology has nodes with an image."
        raise UnsupportedError("this machine has no Docker, so its nodes cannot be containers", hint=hint)
    import docker

    return docker.APIClient(base_url=f"unix://{daemon.SOCKET}", version=daemon.VERSION, timeout=ANSWER_S)


def has_image(name: str) -> bool:
    """Return whether the daemon of this machine has the image, `latest` if it names no tag; False without a daemon."""
    if not daemon.SOCKET.exists() or not daemon.LOG.exists():
        return False
    import docker

    with explained(f"Docker cannot look for the image {name}"):
        try:
            client().inspect_image(name)
        except docker.errors.ImageNotFound:
            return False
    return True


@contextlib.contextmanager
def explained(what: str) -> Iterator[None]:
    """Turn Docker's errors into a TestbedError that begins with `what`."""
    import docker
    import requests

    try:
        yield
    except docker.errors.APIError as error:
        raise TestbedError(f"{what}: {error.explanation or error}") from error
    except (docker.errors.DockerException, requests.exceptions.RequestException) as error:
        wrote = daemon.LOG.read_text(errors="replace").strip().splitlines()[-3:]
        raise TestbedError("\n  ".join([f"{what}: Docker does not answer. The end of its log:", *wrote])) from error


def containers() -> list[str]:
    """Return the first characters of the ids of existing containers. Docker is not asked: there may be none."""
    return sorted(path.name[:12] for path in CONTAINERS.iterdir()) if CONTAINERS.exists() else []


def program_in(root: Path, program: str, search: str) -> str | None:
    """Return the path of a program in a container with the root `root`, searched as in the PATH `search`."""
    for directory in [""] if "/" in program else search.split(":"):
        path = posixpath.join("/", directory, program)
        file = within(root, path)
        if file and file.is_file() and os.access(file, os.X_OK):
            return path
    return None


def within(root: Path, path: str) -> Path | None:
    """Return a path as seen by programs with the root directory `root`; symbolic links do not lead out of it."""
    parts, here = path.split("/")[::-1], Path("/")
    links = 0
    while parts:
        part = parts.pop()
        here = here.parent if part == ".." else here / part
        place = root / here.relative_to("/")
        if here != Path("/") and place.is_symlink():  # the root itself is one in /proc
            links += 1
            if links > MOST_LINKS:
                return None
            target = os.readlink(place)
            here = Path("/") if target.startswith("/") else here.parent
            parts += target.split("/")[::-1]
    return root / here.relative_to("/")
