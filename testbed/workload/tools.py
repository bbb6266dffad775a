"""perftest and rping unchanged: third-party programs, a server and a client.

perftest's two sides agree over TCP. In shared RDMA netns mode both run in a namespace that has only a loopback, so that
the lab's network carries RoCE alone; in exclusive mode a device is visible only where its interface is, and TCP goes
over the data network as well. rping connects with rdma_cm, which needs shared mode and the data network.
"""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv4Interface
from pathlib import Path
from typing import Self

from testbed.errors import InputError, TestbedError, UnsupportedError
from testbed.kernel import netns, rdma
from testbed.kernel.syscalls import readable
from testbed.lab import HostInterface, processes
from testbed.lab.processes import Process, Ready
from testbed.workload.attributes import STATUSES
from testbed.workload.queue_pair import gid_index, open_device

EVENTS = {
    f"ib_{operation}_{measure}": operation != "write"
    for operation in ("send", "read", "atomic", "write")
    for measure in ("bw", "lat")
}
"""perftest's programs, and whether they can wait for events. On one CPU a busy ib_write_lat measures the scheduler."""
PORT = 18515
MANAGEMENT = "management"
"""The namespace made for the time of a perftest in shared mode."""
LISTEN_S = 10.0
TCP_LISTEN = "0A"
STATUS = re.compile(r"Failed status (\d+)")
CM_EVENT = re.compile(r"RDMA_CM_EVENT_\w+")


@dataclass(frozen=True, slots=True)
class Side:
    """A host for these programs: `ip` is its address on the interface of RDMA device `device`."""

    node: str
    namespace: str
    device: str
    ip: IPv4Address

    @classmethod
    def of(cls, interface: HostInterface) -> Self:
        """Return an interface of a lab's host or pod, with its IPv4 address."""
        host = interface.node
        return cls(host.name, host.namespace, interface.device, IPv4Address(interface.address().ip))


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a client. `error` is empty if it succeeded, else a completion status or an event of rdma_cm, or the
    first line the client wrote (its errors come first). `output` is all it wrote.

    `figures` are perftest's own: BW_average and BW_peak in MiB/s, MsgRate in millions a second, t_min, t_avg, t_max,
    percentile_99 … in microseconds, MsgSize in bytes; for rping `pings`.
    """

    output: str
    error: str = ""
    figures: dict[str, float] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        return not self.error


def perftest(
    tool: str,
    server: Side,
    client: Side,
    directory: Path,
    *,
    options: Sequence[str] = (),
    within: float,
    ready: Ready = readable,
) -> Result:
    """Run a program of perftest between two hosts; outputs are kept in `directory`.

    `options` go to both sides, as ``-n 1000 -s 4096``. DeadlineError after `within` seconds: perftest asks for seven
    retries, which rxe takes as for ever, so on a path that died nothing else ends it. With a lab's `ready` its timers,
    and so faults at a moment, are kept meanwhile.
    """
    if tool not in EVENTS:
        raise InputError(f"{tool} is not a known program of perftest", hint=f"Known: {', '.join(EVENTS)}.")
    report = directory / f"{client.node}-{tool}.json"
    report.unlink(missing_ok=True)
    with _exchange(server, client) as (server_place, client_place, address):

        def process(side: Side, place: str, *more: str) -> Process:
            events = ("-e",) if EVENTS[tool] else ()
            with open_device(side.namespace, side.device) as context:
                gid = str(gid_index(context, side.ip))
            command = [tool, "-d", side.device, "-x", gid, "-p", str(PORT), *events, *options, *more]
            log = directory / f"{side.node}-{tool}.log"
            return Process(side.node, place, command, log, ready, devices_of=side.namespace)

        output, error = _ended(
            lambda: process(server, server_place),
            lambda: _listens(server_place, PORT),
            lambda: process(client, client_place, "--out_json", f"--out_json_file={report}", str(address)),
            within,
        )
    return Result(output, error, {} if error else figures_in(report.read_text()))


def rping(
    server: Side,
    client: Side,
    directory: Path,
    *,
    count: int = 10,
    size: int = 64,
    within: float,
    ready: Ready = readable,
) -> Result:
    """Run `count` round trips of rping, `size` bytes each, with the data verified. `ready` as for `perftest`."""
    with rdma.Rdma() as system:
        if system.exclusive:
            raise UnsupportedError(
                "rping needs rdma_cm, which does not work in exclusive RDMA netns mode",
                hint="Set `rdma_mode: shared` in the topology, beside `nodes`; or use Lab(…, rdma_mode='shared').",
            )
    common = ["-a", str(server.ip), "-C", str(count), "-S", str(size), "-v", "-V"]

    def process(side: Side, role: str) -> Process:
        log = directory / f"{side.node}-rping.log"
        return Process(side.node, side.namespace, ["rping", role, *common], log, ready)

    output, error = _ended(
        lambda: process(server, "-s"), lambda: _accepts(server), lambda: process(client, "-c"), within
    )
    return Result(output, error, {"pings": float(output.count("ping data: "))})


def _ended(
    server: Callable[[], Process], listens: Callable[[], bool], client: Callable[[], Process], within: float
) -> tuple[str, str]:
    """Start both, the client when the server `listens`; return the client's output and error when it has ended."""
    with ExitStack() as undo:
        listener = server()
        undo.callback(listener.stop)
        listener.wait_until("listen", listens, LISTEN_S)
        sender = client()
        undo.callback(sender.stop)
        status = sender.wait(within)
        return sender.output, error_in(sender.output) if status else ""


@contextmanager
def _exchange(server: Side, client: Side) -> Iterator[tuple[str, str, IPv4Address]]:
    """Yield the namespaces for server and client, and the server's address for TCP."""
    with rdma.Rdma() as system:
        exclusive = system.exclusive
    if exclusive:
        yield server.namespace, client.namespace, server.ip
        return
    netns.create(MANAGEMENT)
    try:
        processes.run(MANAGEMENT, MANAGEMENT, ["ip", "link", "set", "lo", "up"], LISTEN_S)
        yield MANAGEMENT, MANAGEMENT, IPv4Interface("127.0.0.1/8").ip
    finally:
        netns.delete(MANAGEMENT)


def _listens(namespace: str, port: int) -> bool:
    with netns.entered(namespace):
        sockets = [Path(f"/proc/thread-self/net/{table}").read_text().splitlines()[1:] for table in ("tcp", "tcp6")]
    fields = [line.split() for table in sockets for line in table]
    return any(state == TCP_LISTEN and local.endswith(f":{port:04X}") for _, local, _, state, *_ in fields)


def _accepts(server: Side) -> bool:
    shown = processes.run(server.node, server.namespace, ["rdma", "-j", "resource", "show", "cm_id"], LISTEN_S)
    return any(entry["ifname"] == server.device and entry["state"] == "LISTEN" for entry in json.loads(shown.stdout))


def error_in(output: str) -> str:
    """Return the reason why a client failed, by the standard name if it gives one."""
    if found := STATUS.search(output):
        return STATUSES[int(found[1])]
    if found := CM_EVENT.search(output):
        return found[0]
    return next((line.strip() for line in output.splitlines() if line.strip()), "ended without a word")


def figures_in(report: str) -> dict[str, float]:
    """Return the results in a report of perftest (--out_json)."""
    try:
        results = json.loads(report)["results"]
        return {name: float(value) for name, value in results.items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise TestbedError(f"the report of perftest cannot be read: {error!r}\n{report}") from error
