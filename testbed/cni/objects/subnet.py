"""SpiderSubnet: addresses from which applications get pools of their own, which follow their size.

Sources: Spiderpool 1.0, docs/usage/spider-subnet.md, docs/reference/crd-spidersubnet.md and annotation.md.
"""

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field, TypeAdapter

from testbed.cni.ipam.pool import Address
from testbed.cni.objects.kinds import Addresses, Part
from testbed.documents import json
from testbed.errors import InputError

PREFIX = "ipam.spidernet.io"
ONE, SEVERAL = f"{PREFIX}/subnet", f"{PREFIX}/subnets"
NUMBER, RECLAIM = f"{PREFIX}/ippool-ip-number", f"{PREFIX}/ippool-reclaim"
REDUNDANT = "+1"
"""The default of Spiderpool's chart for applications that give no number."""
LONGEST_NAME = 253


class SubnetSpec(Addresses):
    """SpiderSubnet."""


class _Subnets(Part):
    interface: str = "eth0"
    ipv4: list[Annotated[str, Field(min_length=1)]] = Field(default_factory=list)
    ipv6: list[Annotated[str, Field(min_length=1)]] = Field(default_factory=list)


class _SubnetsOfInterface(_Subnets):
    interface: str


_ONE = TypeAdapter(_Subnets)
_SEVERAL = TypeAdapter(Annotated[list[_SubnetsOfInterface], Field(min_length=1)])


@dataclass(frozen=True)
class Wanted:
    """A pool that an application wants."""

    subnet: str
    family: int
    interface: str


@dataclass(frozen=True)
class Settings:
    """The annotations of a pod template. `count` is of addresses, beyond the pods if `flexible`."""

    pools: Sequence[Wanted]
    count: int
    flexible: bool
    reclaim: bool

    def size(self, pods: int) -> int:
        return pods + self.count if self.flexible else self.count


def settings(annotations: Mapping[str, str]) -> Settings | None:
    """Return the settings, None if no subnet is named. An interface's first subnet counts. InputError."""
    key = SEVERAL if SEVERAL in annotations else ONE
    if key not in annotations:
        return None
    entries = _entries(key, annotations[key])
    wanted = [one for entry in entries for one in _of_entry(entry)]
    if not wanted:
        raise InputError("it names no subnet", where=f"annotation {key}")
    if len({entry.interface for entry in entries}) < len(entries):
        raise InputError("an interface is given twice", where=f"annotation {key}")
    if len({one.subnet for one in wanted}) < len(wanted):
        raise InputError("a subnet is given twice", where=f"annotation {key}")
    number = annotations.get(NUMBER, REDUNDANT)
    if not re.fullmatch(r"\+?\d{1,5}", number):
        raise InputError(f"{number!r} is not a number such as '5' or '+1'", where=NUMBER)
    reclaim = annotations.get(RECLAIM, "true").lower()
    if reclaim not in ("true", "false"):
        raise InputError(f"{reclaim!r} is neither 'true' nor 'false'", where=RECLAIM)
    return Settings(wanted, int(number), number.startswith("+"), reclaim == "true")


def _of_entry(entry: _Subnets) -> Iterator[Wanted]:
    for family, names in ((4, entry.ipv4), (6, entry.ipv6)):
        if names:
            yield Wanted(names[0], family, entry.interface)


def _entries(key: str, text: str) -> Sequence[_Subnets]:
    where = f"annotation {key}"
    if key == ONE:
        return [json.typed(text, _ONE, where)]
    return json.typed(text, _SEVERAL, where)


def pool_name(family: int, kind: str, namespace: str, name: str, interface: str) -> str:
    """Name the pool of an application as Spiderpool does, but with a suffix from the application's name, not a random
    UID."""
    end = hashlib.sha256(f"{kind}/{namespace}/{name}".encode()).hexdigest()[:5]
    room = LONGEST_NAME - len(f"auto4--{interface}-{end}")
    return f"auto{family}-{name[:room]}-{interface}-{end}".lower()


def labels_of(api_version: str, kind: str, namespace: str, name: str) -> dict[str, str]:
    """Return the labels by which affinities know an application."""
    group, _, version = api_version.rpartition("/")
    of_it = {"api-group": group, "api-version": version, "kind": kind, "name": name, "namespace": namespace}
    return {f"{PREFIX}/app-{key}": value for key, value in of_it.items()}


def ranges(addresses: Sequence[Address]) -> list[str]:
    """Return ranges such as ``10.0.10.1-10.0.10.3`` of sorted addresses."""
    found: list[list[Address]] = []
    for address in addresses:
        if found and int(address) == int(found[-1][-1]) + 1:
            found[-1].append(address)
        else:
            found.append([address])
    return [f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in found]
