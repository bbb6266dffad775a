"""
Docker's daemon, with the images of a lab's containers. It waits in a snapshot of its own.

Images come as archives, each a pmem device. They are unpacked into the machine's memory, once for all runs.

This file stands alone: it is in the snapshot below the one that has testbed.
"""

import contextlib
import http.client
import shlex
import socket
import subprocess
import time
from pathlib import Path

DIRECTORY = Path(__file__).resolve().parent
DATA = Path("/var/lib/docker")
LOG = Path("/run/testbed/dockerd.log")
SOCKET = Path("/run/docker.sock")
VERSION = "1.43"
"""Version of the API: the first with annotations. A client without one asks the daemon, which may not be up yet."""
RUNTIME = "testbed"
START_S = 60.0
"""Virtual seconds for its start, which takes two."""
PING_S = 5.0
"""Virtual seconds for an answer: it may accept a connection and not answer."""
LOAD_S = 900.0
"""Virtual seconds for an image: the daemon unpacks and hashes up to 700 MB (machine/containers.py)."""
SIZE = "80%"
"""Share of the memory: an image is in it twice while it is loaded."""
POLL_S = 0.01
MAGIC = b"ustar"
MAGIC_OFFSET = 257
"""Offset of the magic in the head of a tar."""
COMMAND = shlex.split(f"""dockerd --storage-driver=overlay2 --exec-opt=native.cgroupdriver=cgroupfs --log-level=warn
    --bridge=none --iptables=false --ip6tables=false --ip-forward=false --ip-masq=false --userland-proxy=false
    --add-runtime={RUNTIME}={DIRECTORY}/runtime.sh --default-runtime={RUNTIME}""")


def prepare(job: object, out: str, emit: object, devices: object = None) -> None:
    """Prepare a snapshot in which the daemon is up and has the images."""
    (DIRECTORY / "runtime.sh").chmod(0o755)
    DATA.mkdir(parents=True, exist_ok=True)
    # overlay2 needs a file system that is no overlay itself, as the machine's root is.
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "docker", str(DATA)], check=True)
    with LOG.open("wb") as log:
        daemon = subprocess.Popen(COMMAND, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
    wait(daemon)
    import docker

    client = docker.DockerClient(base_url=f"unix://{SOCKET}", version=VERSION, timeout=LOAD_S)
    for archive in archives():
        with archive.open("rb") as file:
            client.images.load(file)
    client.close()


def wait(daemon: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + START_S
    while not answers():
        if daemon.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"dockerd did not start:\n{LOG.read_text(errors='replace')[-2000:]}")
        time.sleep(POLL_S)


def answers() -> bool:
    connection = http.client.HTTPConnection("docker")
    with contextlib.closing(connection), socket.socket(socket.AF_UNIX) as connection.sock:
        connection.sock.settimeout(PING_S)
        try:
            connection.sock.connect(str(SOCKET))
            connection.request("GET", "/_ping")
            return connection.getresponse().status == http.client.OK
        except (OSError, http.client.HTTPException):
            return False


def archives() -> "list[Path]":
    found = []
    for device in sorted(Path("/dev").glob("pmem*"), key=lambda path: (len(path.name), path.name)):
        with device.open("rb") as file:
            file.seek(MAGIC_OFFSET)
            if file.read(len(MAGIC)) == MAGIC:
                found.append(device)
    return found
