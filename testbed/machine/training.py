"""A user's training script: the scenario that runs it, and the hosts of a topology for its ranks."""

import sys
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_interface
from pathlib import Path

from testbed.errors import InputError
from testbed.machine import files, questions
from testbed.machine.scenarios import Source
from testbed.protocol import InterfaceRow, PlanRows, requests

SCENARIO = Path(__file__).parents[1] / "scenario" / "train" / "scenario.py"
LAUNCHER, MANAGEMENT = "launcher", "mgmt0"
RANKS = 4
"""Ranks of a job on a generated fabric, unless the user gives a number."""
LEAVES, SPINES = 2, 2
PYTHON = (3, 13)
"""Python of the image. An older one cannot judge a script for it."""
NETWORK_HINT = "`testbed topology new KIND --management` writes a file with one; see docs/jobs.md."


@dataclass(frozen=True)
class Placement:
    """Placement of a job's ranks: `hosts` has the host of each, `nics` its interface of the data network; `management`
    is the launcher's interface."""

    hosts: Sequence[str]
    nics: Sequence[str]
    launcher: str
    management: str


def source(script: Path, topology: Path) -> Source:
    """Return the scenario that runs a script. InputError if the script is not a Python file."""
    text = files.read(script)
    if script.suffix != ".py":
        raise InputError("is not a Python file", where=str(script), hint="Its name must end in .py.")
    if b"\0" in text:
        raise InputError("is not Python: it has null bytes", where=str(script))
    try:
        with warnings.catch_warnings(action="ignore"):
            compile(text, str(script), "exec", dont_inherit=True)
    except SyntaxError as error:
        if sys.version_info >= PYTHON:
            raise InputError(f"is not Python: {error.msg}", where=f"{script}:{error.lineno}") from None
    return Source(script.stem, SCENARIO, topology=topology, program=script)


def fabric(ranks: int, ranks_per_host: int | None) -> str:
    """Return a topology text with hosts for so many ranks behind two leaves, and a management network."""
    hosts = -(-ranks // (ranks_per_host or 1))
    options = {"leaves": LEAVES, "spines": SPINES, "hosts": -(-hosts // LEAVES), "management": True}
    return questions.ask(requests.Fabric(fabric="leaf-spine", options=options))


def place(
    plan: PlanRows, where: str, ranks: int | None, ranks_per_host: int | None = None, nics: Sequence[str] = ()
) -> Placement:
    """Return the hosts of a topology for so many ranks, in the order of the file: those with an RDMA device on the data
    network. `nics` are the interfaces that the ranks of a host use in turn, by default the one that most hosts have;
    there are as many ranks a host by default. InputError with what the topology lacks; `where` is its file."""
    ends: dict[str, dict[str, InterfaceRow]] = {}
    for row in plan["interfaces"]:
        if row["kind"] == "host":
            ends.setdefault(row["node"], {})[row["interface"]] = row
    launching = ends.pop(LAUNCHER, {})
    management = management_of(launching, where)
    data = list(nics) or [data_interface(ends)]
    each = ranks_per_host or len(data)
    hosts = [host for host, own in ends.items() if all(name in own and has_device(own[name]) for name in data)]
    wanted = len(hosts) * each if ranks is None else ranks
    if wanted > len(hosts) * each or wanted < 2:
        raise unfitting(where, hosts, " and ".join(data), wanted, each)
    placed = [(host, data[number % len(data)]) for host in hosts for number in range(each)][:wanted]
    network = ip_interface(launching[management]["address"]).network
    for host in dict.fromkeys(host for host, _ in placed):
        own = ends[host].get(management)
        if own is None or not own["address"] or ip_interface(own["address"]).network != network:
            text = f"{host} has no address in {network}, the launcher's network on {management}"
            raise InputError(text, where=where, hint=NETWORK_HINT)
    return Placement([host for host, _ in placed], [nic for _, nic in placed], LAUNCHER, management)


def has_device(row: InterfaceRow) -> bool:
    """Return True if a rank can use an interface: it has an RDMA device and an address."""
    return bool(row["rdma"] and (row["address"] or row["address6"]))


def data_interface(ends: Mapping[str, Mapping[str, InterfaceRow]]) -> str:
    """Return the interface that most hosts have with an RDMA device; the first of several."""
    found = [name for own in ends.values() for name, row in own.items() if has_device(row)]
    return max(dict.fromkeys(found), key=found.count, default="eth1")


def management_of(launching: Mapping[str, InterfaceRow], where: str) -> str:
    if not launching:
        text = f"no host {LAUNCHER!r}, on which mpirun runs, and no management network"
        raise InputError(text, where=where, hint=NETWORK_HINT)
    found = [name for name, row in launching.items() if row["address"] and not row["rdma"]]
    if not found:
        text = f"{LAUNCHER} has no interface with an IPv4 address and `rdma: false`, for the management network"
        raise InputError(text, where=where, hint=NETWORK_HINT)
    return MANAGEMENT if MANAGEMENT in found else found[0]


def unfitting(where: str, hosts: Sequence[str], data: str, wanted: int, ranks_per_host: int) -> InputError:
    """Return an error for a number of ranks that a topology has no hosts for, with devices on `data`."""
    if not hosts:
        hint = "A host's interface has one unless the file sets `rdma: false`."
        return InputError(f"no host has an RDMA device with an address for a rank on {data}", where=where, hint=hint)
    there = f"{len(hosts)} host{'s' if len(hosts) > 1 else ''} with an RDMA device on {data} ({', '.join(hosts)})"
    if wanted < 2:
        text = f"a job needs at least two ranks, but the topology has {there}"
        return InputError(text, where=where, hint="Name more: --ranks-per-host 2, or another topology.")
    text = f"{wanted} ranks do not fit: the topology has {there}, {ranks_per_host} rank{'s'[: ranks_per_host > 1]} each"
    fewer = f"--ranks {len(hosts) * ranks_per_host}, " if len(hosts) * ranks_per_host > 1 else ""
    more = f"--ranks-per-host {-(-wanted // len(hosts))}"
    hint = f"Use {fewer}{more}, or leave out --on for a generated fabric of the right size."
    return InputError(text, where=where, hint=hint)
