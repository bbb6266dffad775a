"""The CNI plugin `ifacer`: it makes the node's interface that is the `master` of the next plugin: a VLAN device, a
bond, or a VLAN device on a bond, as Spiderpool's ifacer does. docs/cni-plugins.md describes its configuration.

All pods of the node share the interface, so nothing deletes it.
"""

import errno
import threading
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from testbed.cni import spec
from testbed.cni.objects.kinds import Part
from testbed.cni.plugins.contract import Call, Refusal, own, validated
from testbed.cni.spec import CONFIG, OWN
from testbed.documents.text import choices, describe, quoted
from testbed.kernel.link_readings import kind_of
from testbed.kernel.links import BOND_OPTIONS, Links

_turn = threading.Lock()
"""The lock for pods that start at the same time and want the same interfaces."""


def _options(value: Any) -> dict[str, int]:
    """Read ``miimon=100;xmit_hash_policy=1``."""
    if not isinstance(value, str):
        raise ValueError(f"{describe(value)} is not a text such as 'miimon=100;updelay=200'")  # noqa: TRY004 (pydantic)
    found = {}
    for pair in filter(None, value.split(";")):
        name, _, text = pair.partition("=")
        if name not in BOND_OPTIONS:
            raise ValueError(f"unknown option {quoted(name)}; allowed: {choices(name, list(BOND_OPTIONS))}")
        if not text.isdecimal():
            raise ValueError(f"{name} must be a number, not {describe(text)}")
        found[name] = int(text)
    return found


class Bond(Part):
    name: str = "sp_bond0"
    mode: int = Field(default=0, ge=0, le=6)
    options: Annotated[dict[str, int], BeforeValidator(_options)] = Field(default_factory=dict)


class Configuration(Part):
    interfaces: Annotated[list[str], Field(min_length=1)]
    vlanID: int = Field(default=0, ge=0, le=4094)  # noqa: N815 (Spiderpool's name)
    """0: no VLAN."""
    bond: Bond | None = None

    def names(self) -> list[str]:
        """Return the interfaces that it makes, each on top of the one before."""
        made = [self.bond.name] if self.bond else []
        return [*made, f"{[*self.interfaces, *made][-1]}.{self.vlanID}"] if self.vlanID else made


def configuration(config: Mapping[str, Any]) -> Configuration:
    """Return the checked configuration. Refusal with all errors in it."""
    settings = validated(Configuration, own(config))
    if settings.bond and len(settings.interfaces) < 2:
        raise Refusal(CONFIG, "bond: interfaces must name more than one")
    if not settings.bond and len(settings.interfaces) > 1:
        raise Refusal(CONFIG, "interfaces: more than one need bond")
    return settings


def call(asked: Call) -> Mapping[str, Any] | None:
    """See `contract.Plugin`. The calling thread is in the node's network namespace."""
    if asked.command == "DEL":
        return None
    settings = configuration(asked.config)
    if asked.command == "CHECK":
        with Links() as kernel:
            check(kernel, settings)
    if asked.command != "ADD":
        return None
    if "prevResult" in asked.config:
        raise Refusal(CONFIG, "ifacer must be the first in its list: it received the result of a plugin before it")
    with _turn, Links() as kernel:
        add(kernel, settings)
    return spec.convert({}, asked.version)


def add(kernel: Links, settings: Configuration) -> None:
    parents = [_existing(kernel, name) for name in settings.interfaces]
    parent = _bond(kernel, settings.bond, parents) if settings.bond else parents[0]
    if settings.vlanID:
        _vlan(kernel, settings.names()[-1], parent, settings.vlanID)


def _existing(kernel: Links, name: str) -> int:
    try:
        return kernel.index(name)
    except OSError:
        raise Refusal(OWN, f"the node has no interface {name}") from None


def _bond(kernel: Links, bond: Bond, parents: list[int]) -> int:
    """Make a bond of interfaces, or set up the existing one; return its index."""
    try:
        index, _, link = kernel.read(bond.name)
    except OSError:
        index = _made_bond(kernel, bond, parents)
    else:
        if kind_of(link)[0] != "bond":
            raise Refusal(OWN, f"the node has an interface {bond.name}, which is not a bond")
    kernel.set_link(index, up=True)
    return index


def _made_bond(kernel: Links, bond: Bond, parents: list[int]) -> int:
    try:
        index = kernel.add_bond(bond.name, bond.mode, bond.options)
    except OSError as error:
        if error.errno == errno.EINVAL:
            raise Refusal(OWN, f"the kernel refuses these options of a bond of mode {bond.mode}") from None
        raise
    up = [parent for parent in parents if kernel.is_up(parent)]
    try:
        for parent in parents:
            kernel.join_bond(parent, index)
    except BaseException:
        kernel.delete_link(index)
        for parent in up:
            kernel.set_link(parent, up=True)
        raise
    return index


def _vlan(kernel: Links, name: str, parent: int, vlan: int) -> None:
    there = kernel.vlans_on(parent)
    if other := next((other for other, number in there.items() if number == vlan and other != name), None):
        raise Refusal(OWN, f"VLAN {vlan} already has the interface {other}, so {name} cannot be created")
    if there.get(name, vlan) != vlan:
        raise Refusal(OWN, f"the node has an interface {name} in VLAN {there[name]}")
    kernel.set_link(parent, up=True)
    index = kernel.index(name) if name in there else kernel.add_vlan(name, parent, vlan)
    kernel.set_link(index, up=True)


def check(kernel: Links, settings: Configuration) -> None:
    for name in settings.names():
        if not kernel.is_up(_existing(kernel, name)):
            raise Refusal(OWN, f"the node's interface {name} is down")
