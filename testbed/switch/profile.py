"""Profiles: the ARP, neighbour discovery and MAC address behaviour of kinds of switches, from profiles.yml."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import BaseModel, ConfigDict, Field, GetJsonSchemaHandler, ValidationError, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from testbed.errors import InputError, did_you_mean
from testbed.protocol import SwitchValue

LONGEST_S, MOST = 1e7, 10_000_000
"""Bounds of any value: four months, and more entries than a switch has."""
_SECONDS = {"unit": "s"}
Seconds = Annotated[float, Field(gt=0, le=LONGEST_S, allow_inf_nan=False, json_schema_extra=_SECONDS)]
Duration = Annotated[float, Field(ge=0, le=LONGEST_S, allow_inf_nan=False, json_schema_extra=_SECONDS)]
Period = Annotated[float, Field(ge=0.001, le=LONGEST_S, allow_inf_nan=False, json_schema_extra=_SECONDS)]
"""A period of the control plane: a shorter one would leave it no time for anything else."""
Count = Annotated[int, Field(gt=0, le=MOST)]
Entries = Annotated[int, Field(gt=0, le=MOST, json_schema_extra={"unit": "entries"})]
PerSecond = Annotated[int, Field(gt=0, le=MOST, json_schema_extra={"unit": "packets/s"})]
Bytes = Annotated[int, Field(ge=0, le=1 << 30, json_schema_extra={"unit": "bytes"})]
Moves = Annotated[int, Field(ge=2, le=1000)]
Freeze = Annotated[Literal[0] | Annotated[int, Field(ge=30, le=3600)], Field(json_schema_extra=_SECONDS)]
Percent = Annotated[float, Field(ge=0, le=100, json_schema_extra={"unit": "%"})]
Balancing = Literal["ecmp", "spray", "random", "adaptive", "flowlet"]
Alpha = Annotated[float, Field(ge=1 / 128, le=128)]
Source = Literal["D", "M", "S", "U"]
QUALITY = {"D": "documented", "M": "from memory", "S": "chosen", "U": "set here", "": "default"}
"""Where a value is from, by its source; `set here`: in the topology file, by the scenario or a setting."""

DEFAULT = "linux-default"
"""The default profile of a switch."""

_DATA = Path(__file__).with_name("profiles.yml")


class Profile(BaseModel):
    """
    One switch's ARP and FDB behaviour. Times are seconds; ARP ageing does not depend on data traffic.

    What holds for ARP holds for IPv6 too: a solicitation is a request, a solicited advertisement a reply and an
    unsolicited one a gratuitous ARP.

    `source` is where each value of profiles.yml comes from, U for one that was replaced; a value not named there is
    this class's default. `citations` has the document behind each documented value.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    name: str
    about: str
    source: Mapping[str, Source] = Field(default_factory=dict)
    citations: Mapping[str, str] = Field(default_factory=dict)

    arp_age: Seconds
    """Time from the last confirmation of an entry until it is stale (`probe`) or removed (other refreshes)."""
    arp_jitter: Duration = 0
    """Most of the random time that an entry lives longer, drawn when it is created."""
    arp_refresh: Literal["none", "probe", "daemon"] = "none"
    """probe: the switch requests near the end of `arp_age`. daemon: it requests every entry every `refresh_period`."""
    refresh_before: Duration = 0
    """probe: time before the end of `arp_age` at which the first request is sent."""
    refresh_probes: Count = 3
    """probe: number of requests before the entry is removed."""
    refresh_interval: Seconds = 1
    """probe: time between requests; the entry is removed when `arp_age` is over and the last request has no answer."""
    refresh_cast: Literal["unicast", "broadcast", "last-broadcast"] = "unicast"
    """unicast: requests reach the old owner only. broadcast: they also find a new owner."""
    refresh_period: Period = 120
    """daemon: time between its rounds."""
    refresh_incomplete: bool = False
    """daemon: also requests addresses that could not be resolved in the last `arp_age`."""

    garp_new: bool
    """True if a gratuitous ARP (request or reply) creates an entry."""
    garp_update: bool
    """True if a gratuitous ARP changes and confirms an entry."""
    request_update: bool = True
    """True if requests and unsolicited replies change and confirm an entry (RFC 826, "merge")."""
    on_mac_change: Literal["update", "drop", "verify"] = "update"
    """verify: request the old owner by unicast; if it does not answer, the new one; only then update."""
    on_port_change: Literal["update", "drop"] = "update"
    """Action if the MAC is unchanged but the FDB has it on another port than before."""
    verify_timeout: Seconds = 3
    """verify: time to wait for each of the two answers."""

    arp_ignore: Literal[0, 1, 2] = 2
    """As Linux's sysctl: 0 answers for any own address (IPv6: as 1), 1 for the receiving SVI's address, 2 only to its
    subnet."""
    announce: bool = False
    """True if the switch sends a gratuitous ARP for each own address at start (Linux's arp_notify)."""

    autostate: Literal["bridge", "vlan", "none"] = "bridge"
    """When an SVI is down: without a link at any port of its VLAN (`vlan`, as on Cisco's and Arista's), at any port of
    the switch (`bridge`, as Linux), or never (`none`, as on SONiC). FRR announces the subnets of SVIs that are up."""
    svi_carrier: Literal["keep", "purge"] = "keep"
    """purge: an SVI that goes down (`autostate`) loses its entries (Linux: arp_evict_nocarrier,
    ndisc_evict_nocarrier)."""

    port_down: Literal["keep", "resolve", "purge"] = "keep"
    """Action for the entries behind a port that goes down: their MACs were there when they were last confirmed. purge:
    they go. resolve, as SONiC by means of Linux: those that no answer to a request has confirmed are probed, after 5 s,
    by unicast, three times, and go without an answer; the others stay."""

    evpn_claim: Literal["take", "keep"] = "take"
    """Action if a host here claims an address that another switch announces for another MAC. take: it is announced from
    here. keep: the claim is ignored until the other switch withdraws the address."""
    evpn_dup_moves: Moves | None = 5
    """EVPN: moves of a MAC or an address between switches within `evpn_dup_window` that make it a duplicate. None: they
    are not counted."""
    evpn_dup_window: Annotated[int, Field(ge=2, le=1800, json_schema_extra=_SECONDS)] = 180
    """See `evpn_dup_moves`; whole seconds."""
    evpn_dup_freeze: Freeze | None = None
    """Time for which the switch does not follow a duplicate, in whole seconds; 0: until it is cleared. None: a
    duplicate is only reported."""

    mlag_session_lost: Literal["leave", "keep"] = "leave"
    """Action of the standby of a pair (MLAG) that does not hear the other switch. leave: its port channels get an LACP
    system of their own, so that hosts use those of the other switch. keep: both stay one system."""
    mlag_peer_link_down: Literal["keep", "disable"] = "keep"
    """Action of the standby without the peer link, if it still hears the other switch by a link of its own. disable:
    the members of its port channels go down until the peer link is back."""

    arp_cap: Entries | None = None
    """Maximum number of entries of a family, including unresolved ones. None: no limit."""
    arp_cap_per_svi: Entries | None = None
    """The same limit for each SVI."""
    arp_full: Literal["refuse", "evict"] = "refuse"
    """evict: the entry with the oldest confirmation is removed."""
    arp_pps: PerSecond | None = None
    """ARP and ND packets per second that reach the CPU; a burst may have the packets of one second. None: no limit."""
    miss_pps: PerSecond | None = None
    """Data packets without a neighbour entry that reach the CPU per second; bursts as for `arp_pps`."""

    miss_packets: Literal["keep", "cpu", "drop"] = "keep"
    """Data packets without a neighbour entry, on a switch with lossless classes, while the address is requested. keep:
    those of lossless classes wait in the buffer of the port by which they came, and leave in order. cpu: as many as
    `miss_pps` allows wait at the CPU, the others are dropped. drop: so are all but the one that causes the request."""
    miss: Literal["resolve", "drop"] = "resolve"
    """drop: data packets for an address without an entry cause no request, and are dropped until a packet of its owner
    makes an entry (SONiC issues 9401 and 9470, on some platforms)."""
    resolve_attempts: Count = 3
    """Number of broadcast requests for an address that data packets need."""
    resolve_interval: Seconds = 1
    """Time to wait after each of these requests."""
    hold_down: Duration = 0
    """Time after a failed resolution in which data packets for the address are dropped without new requests."""

    mac_age: Seconds
    """Time from the last frame of a MAC until the bridge removes it."""
    mac_cap: Entries | None = None
    """Maximum number of learned MAC addresses; the bridge does not learn more."""
    mac_moves: Count | None = None
    """Moves of one MAC within `mac_move_window` at which ports are disabled: all ports that it moved to except the
    first by name. None: moves are not limited."""
    mac_move_window: Seconds = 5
    """See `mac_moves`."""
    mac_move_recovery: Seconds = 600
    """Time from the last excess move until the ports come up again; checked every `mac_move_check`."""
    mac_move_check: Period = 30
    """Time between two checks."""
    unknown_unicast: Literal["flood", "drop"] = "flood"
    """Action for frames to an unknown MAC."""
    lossless_unknown_unicast: Literal["flood", "drop"] = "flood"
    """drop: routed packets of a lossless class are dropped while the next hop's MAC is not in the FDB."""
    lossless_dscp: tuple[Annotated[int, Field(ge=0, le=63)], ...] = (3, 4, 26)
    """The lossless classes, for `lossless_unknown_unicast`."""

    buffer: Bytes = 400_000
    """Lossless classes: the packet buffer of all ports, including their reserves and headroom. Real switches have 12 to
    64 MB; an rxe queue pair has at most 65 packets outstanding, so it would take many to fill such a buffer."""
    pfc_alpha: Alpha = 1
    """Maximum share of a priority group (the packets of a class that arrived at one port) in the shared buffer, as a
    factor of the free part. A power of two on switches (`dynamic_th`)."""
    pfc_xon_offset: Bytes = 3_000
    """Distance below its threshold at which a priority group lets its peer resume."""
    pfc_headroom: Bytes = 10_000
    """Space of each priority group for packets that still arrive after the pause frame."""
    pfc_reserve: Bytes = 0
    """Reserved space of each priority group; the shared buffer is used after it."""
    lossy_alpha: Alpha = 1
    """Maximum share of a lossy class's queue in the shared buffer, as `pfc_alpha`; packets beyond it are dropped."""
    lossy_reserve: Bytes = 0
    """Reserved space of each queue of a lossy class."""
    ecn_min: Bytes = 0
    """Lossless classes: queue length in bytes at which marking with CE starts (Kmin)."""
    ecn_max: Bytes = 0
    """Queue length at which every packet is marked (Kmax). 0: no marking."""
    ecn_probability: Percent = 1
    """Share of packets that are marked just below `ecn_max` (Pmax)."""
    ecn_control: Literal["fixed", "adaptive"] = "fixed"
    """adaptive: the switch moves each queue's Pmax between 1 and 50 % so that its average length stays between 40 and
    60 % of the way from `ecn_min` to `ecn_max` (Adaptive RED, 2001); it begins at `ecn_probability`."""
    ecn_interval: Annotated[Period, Field(le=60)] = 0.5
    """adaptive: the time between two steps of Pmax, in which senders respond to the last one."""
    pfc_watchdog: Duration = 0
    """PFC watchdog: a queue that stays paused for this time, by pause frames in each poll, is in a storm. 0: off."""
    pfc_watchdog_restoration: Duration = 0.4
    """Time without pause frames after which a storm is over."""
    pfc_watchdog_poll: Period = 0.2
    """Time between two polls of the queues, at least that after which pause frames are sent again; a storm is detected
    at a poll."""
    pfc_watchdog_action: Literal["drop", "forward"] = "drop"
    """drop: packets to a queue in a storm, and those that its port receives in the class, are dropped. forward: they
    pass. In both the port has no PFC in the class meanwhile."""

    load_balancing: Balancing | dict[Annotated[int, Field(ge=0, le=5)], Balancing] = "ecmp"
    """How packets of lossless classes share paths of equal cost, or those of each priority that is named. ecmp: a flow
    has one path. spray: packets take the paths in turn. random: each takes one at random. adaptive: each takes the one
    whose port has the shortest queue. flowlet: packets of a flow change their path after a gap."""
    flowlet_gap: Duration = 0.1
    """flowlet: the gap in a flow after which it may take another path."""

    @model_validator(mode="after")
    def _marking_has_a_range(self) -> Self:
        if self.ecn_max and self.ecn_min > self.ecn_max:
            raise ValueError(f"ecn_min ({self.ecn_min} bytes) is above ecn_max ({self.ecn_max})")
        if self.ecn_control == "adaptive" and self.ecn_min >= self.ecn_max:
            raise ValueError(f"ecn_control: adaptive needs ecn_max ({self.ecn_max}) above ecn_min ({self.ecn_min})")
        return self

    @model_validator(mode="after")
    def _refresh_starts_after_birth(self) -> Self:
        before, age = self.refresh_before, self.arp_age
        if before >= age:
            raise ValueError(f"refresh_before ({before:g} s) must be less than arp_age ({age:g} s)")
        return self

    @property
    def arp_lifetime(self) -> float:
        """Return the seconds from the last confirmation to the end of an entry whose owner is gone, without jitter."""
        if self.arp_refresh != "probe":
            return self.arp_age
        return max(self.arp_age, self.arp_age - self.refresh_before + self.refresh_probes * self.refresh_interval)

    def replace(self, **values: object) -> Profile:
        """Return a copy with some values changed, validated as a whole; InputError names the wrong value."""
        check_names(values)
        found = _validated({**self.model_dump(), **values}, where=f"profile {self.name}")
        changed = [name for name in values if getattr(found, name) != getattr(self, name)]
        cited = {name: text for name, text in self.citations.items() if name not in changed}
        return found.model_copy(update={"source": {**self.source, **dict.fromkeys(changed, "U")}, "citations": cited})

    def settings(self, *, lossless: bool) -> dict[str, SwitchValue]:
        """Return the values that are not this class's defaults, by name, each as `value`, `unit` and `quality`. Those
        of lossless classes are left out for a switch without any."""
        units = _units()
        shown = set(self.source) if lossless else {*self.source} - set(LOSSLESS)
        values = self.model_dump(mode="json", include=shown)
        return {
            name: {"value": value, "unit": units[name], "quality": QUALITY[self.source[name]]}
            for name, value in values.items()
        }


class _Names:
    """Schema annotation with the names of profiles."""

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {**handler(core), "enum": list(load_profiles())}


ProfileName = Annotated[str, _Names()]
"""A scenario parameter that is a profile's name. `profile` checks it."""


_QUEUES = "buffer", "ecn_", "flowlet_", "load_", "lossy_", "miss_packets", "pfc_"
LOSSLESS = tuple(name for name in Profile.model_fields if name.startswith(_QUEUES))
"""Names of the values of queues, buffers and priority flow control."""


def check_names(values: Iterable[str]) -> None:
    """Raise InputError for a name that is no value of a profile."""
    for name in values:
        if name not in settable():
            raise InputError(f"a switch profile has no value {name!r}", hint=_known(name, settable()))


@cache
def settable() -> tuple[str, ...]:
    """Return the names of the values that `replace` accepts."""
    return tuple(name for name in Profile.model_fields if name not in ("name", "about", "source", "citations"))


def value_problems(name: str, values: Mapping[str, Any]) -> dict[str, str]:
    """Return the problems of `values` that override a profile, by name; the empty name has those of the combination."""
    base = load_profiles()[name or DEFAULT]
    problems = {
        value: f"a switch profile has no value {value!r}{did_you_mean(value, settable(), aside=True)}"
        for value in values
        if value not in settable()
    }
    known = {value: given for value, given in values.items() if value in settable()}
    try:
        # As JSON: there a list may stand for a tuple, but nothing else for a number.
        Profile.model_validate_json(json.dumps({**base.model_dump(mode="json"), **known}), strict=True)
    except ValidationError as error:
        # Of a value with alternatives, the error deepest in it is of the one that was meant.
        for wrong in sorted(error.errors(), key=lambda one: -len(one["loc"])):
            value = str(wrong["loc"][0]) if wrong["loc"] else ""
            message = wrong["msg"].removeprefix("Value error, ")
            problems.setdefault(value, f"{value}: {message}" if value else message)
    return problems


def descriptions() -> list[dict[str, Any]]:
    """Return `name`, `about` and `values` of each profile; each value has `value`, `unit`, `source` (empty: a default),
    `citation` (empty if it is not documented) and `text`."""
    properties = Profile.model_json_schema()["properties"]
    units = _units()
    texts = {name: properties[name].get("description", "") for name in settable()}
    found = []
    for name, each in load_profiles().items():
        shown = {
            value: {
                "value": given,
                "unit": units[value],
                "source": each.source.get(value, ""),
                "citation": each.citations.get(value, ""),
                "text": texts[value],
            }
            for value, given in each.model_dump(mode="json", include=set(settable())).items()
        }
        found.append({"name": name, "about": each.about.strip(), "values": shown})
    return found


@cache
def _units() -> dict[str, str]:
    """Return the units of all values; of an optional value it is in one of the alternatives."""
    properties = Profile.model_json_schema()["properties"]
    alternatives = {name: (properties[name], *properties[name].get("anyOf", ())) for name in settable()}
    return {name: next((one["unit"] for one in found if "unit" in one), "") for name, found in alternatives.items()}


def values_schema() -> dict[str, Any]:
    """Return the JSON Schema of values that override a profile."""
    properties = Profile.model_json_schema()["properties"]
    left_out = ("default", "title", "unit")
    shown = {
        name: {key: value for key, value in properties[name].items() if key not in left_out} for name in settable()
    }
    return {"type": "object", "properties": shown, "additionalProperties": False}


@cache
def load_profiles() -> Mapping[str, Profile]:
    """Return all profiles of profiles.yml by name, in file order, with `base` applied."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml, if installed, is ten times faster
    data: dict[str, dict[str, Any]] = yaml.load(_DATA.read_text(encoding="utf-8"), Loader=loader)  # noqa: S506
    return {name: _validated(_with_base(name, data), where=f"{_DATA.name}: {name}") for name in data}


def configured(name: str, values: Iterable[tuple[str, Any]]) -> Profile:
    """Return the profile of a switch by what its topology file says: a name, which may be empty, and values."""
    return profile(name or DEFAULT).replace(**dict(values))


def profile(name: str) -> Profile:
    """Return a profile that testbed includes; InputError for an unknown name."""
    profiles = load_profiles()
    if name not in profiles:
        raise InputError(f"there is no switch profile {name!r}", hint=_known(name, profiles))
    return profiles[name]


def _with_base(name: str, data: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return a profile's fields: in the file each value is [value, source], except `about`, `base` and `cited`."""
    given = dict(data[name])
    base, about, cited = given.pop("base", None), given.pop("about"), given.pop("cited", [])
    fields: dict[str, Any] = _with_base(base, data) if base else {"source": {}, "citations": {}}
    fields |= {key: value for key, (value, _) in given.items()}
    source = fields["source"] | {key: source for key, (_, source) in given.items()}
    citations = {key: text for key, text in fields["citations"].items() if key not in given}
    citations |= {key: one["in"] for one in cited for key in one["values"]}
    return fields | {"name": name, "about": about, "source": source, "citations": citations}


def _validated(fields: Mapping[str, Any], where: str) -> Profile:
    try:
        return Profile.model_validate(fields)
    except ValidationError as error:
        wrong = error.errors()[0]
        value = ".".join(str(part) for part in wrong["loc"])
        message = f"{value}: {wrong['msg']}" if value else wrong["msg"].removeprefix("Value error, ")
        raise InputError(message, where=where) from error


def _known(name: str, known: Collection[str]) -> str:
    return f"{did_you_mean(name, known)}Known: {', '.join(known)}."
