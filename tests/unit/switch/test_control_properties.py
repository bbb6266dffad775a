"""Whatever packets, misses, FDB news, commands and times come: the tables keep their bounds and ages, and a data plane
that does nothing but apply the effects has what the control plane shows."""

import itertools
from collections import Counter, defaultdict
from ipaddress import IPv4Address, IPv4Interface, IPv6Address, IPv6Interface, ip_address
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from testbed.errors import InputError
from testbed.protocol.events import named
from testbed.switch.control import ControlPlane
from testbed.switch.core import BlockLossless, DeleteNeighbour, Effect, Event, Send, SetNeighbour, SetPort
from testbed.switch.frames import BROADCAST, NO_MAC, REPLY, REQUEST, Arp, unicast
from testbed.switch.nd import ALL_NODES, Nd
from testbed.switch.packets import Packet
from testbed.switch.profile import Profile, load_profiles
from testbed.switch.table import Key
from testbed.switch.timers import SECOND, nanoseconds
from testbed.topology.addressing import link_local
from testbed.topology.plan import Family, IPAddress, Svi

GATEWAY_MAC = "02:00:00:00:00:fe"
SVIS = (
    Svi(10, "vlan10", GATEWAY_MAC, IPv4Interface("10.0.10.254/24"), IPv6Interface("2001:db8:10::fe/64")),
    Svi(20, "vlan20", GATEWAY_MAC, IPv4Interface("10.0.20.254/24"), IPv6Interface("2001:db8:20::fe/64"), True),
    Svi(30, "vlan30", GATEWAY_MAC, None),
)
OWN = {address.ip for svi in SVIS for address in svi.addresses} | {link_local(GATEWAY_MAC)}
FAMILIES: tuple[Family, ...] = (4, 6)
VLANS = st.sampled_from([10, 10, 20, 30])
PORTS = st.sampled_from(["port1", "port2", "port3"])
MACS = st.sampled_from(["02:00:00:00:00:0a", "02:00:00:00:00:0b", "02:00:00:00:00:0c"])
ODD_MACS = st.sampled_from([NO_MAC, BROADCAST, "01:00:5e:00:00:01", GATEWAY_MAC])
IPS = st.sampled_from([IPv4Address(f"10.0.{vlan}.{host}") for vlan in (10, 20) for host in (1, 2, 3, 254)])
ODD_IPS = st.sampled_from([IPv4Address(0), *map(IPv4Address, ["10.0.10.255", "192.0.2.1"])])
IPS6 = st.sampled_from(
    [IPv6Address(f"2001:db8:{vlan}::{host}") for vlan in (10, 20) for host in ("1", "2", "fe")]
    + [IPv6Address("fe80::1"), link_local(GATEWAY_MAC)]
)
ODD_IPS6 = st.sampled_from([IPv6Address(0), IPv6Address("2001:db8:99::1")])
ON_LINK: list[Key] = [
    (vlan, ip_address(template.format(vlan, host)))
    for vlan in (10, 20)
    for host in (1, 2, 3)
    for template in ("10.0.{}.{}", "2001:db8:{}::{}")
]
HOSTS = st.sampled_from([1, 2, 3, 4, 5, 6, 254])
TIMES = st.sampled_from([0.001, 0.25, 1.0, 2.5, 4.0, 9.0, 31.0])
ARPS = st.builds(Arp, st.sampled_from([REQUEST, REPLY]), MACS | ODD_MACS, IPS | ODD_IPS, st.just(NO_MAC), IPS)
NDS = st.builds(
    lambda solicits, mac, ip, target, flags: (
        Nd(REQUEST, mac, ip, target) if solicits else Nd(REPLY, mac, ip, target if flags[0] else ALL_NODES, *flags)
    ),
    st.booleans(),
    MACS | ODD_MACS,
    IPS6 | ODD_IPS6,
    IPS6,
    st.tuples(st.booleans(), st.booleans()),
)
CAPS = st.integers(1, 6) | st.none()
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "arp_age": st.sampled_from([3, 10, 30, 100]),
    "arp_refresh": st.sampled_from(["none", "probe", "daemon"]),
    "refresh_before": st.sampled_from([0, 2, 9]),
    "refresh_probes": st.integers(1, 3),
    "refresh_interval": st.sampled_from([1, 5]),
    "refresh_cast": st.sampled_from(["unicast", "broadcast", "last-broadcast"]),
    "refresh_period": st.sampled_from([1, 20]),
    "refresh_incomplete": st.booleans(),
    "garp_new": st.booleans(),
    "garp_update": st.booleans(),
    "request_update": st.booleans(),
    "on_mac_change": st.sampled_from(["update", "drop", "verify"]),
    "on_port_change": st.sampled_from(["update", "drop"]),
    "arp_ignore": st.sampled_from([0, 1, 2]),
    "arp_cap": CAPS,
    "arp_cap_per_svi": CAPS,
    "arp_full": st.sampled_from(["refuse", "evict"]),
    "arp_pps": st.none() | st.integers(1, 5),
    "miss": st.sampled_from(["resolve", "drop"]),
    "miss_pps": st.none() | st.integers(1, 5),
    "resolve_attempts": st.integers(1, 3),
    "hold_down": st.sampled_from([0, 5]),
    "mac_moves": st.none() | st.integers(1, 3),
    "mac_move_recovery": st.sampled_from([1, 60]),
    "mac_move_check": st.sampled_from([1, 30]),
    "port_down": st.sampled_from(["keep", "resolve", "purge"]),
    "lossless_unknown_unicast": st.sampled_from(["flood", "drop"]),
}
CHANGES = st.lists(
    st.sampled_from(sorted(VALUES)).flatmap(lambda name: st.tuples(st.just(name), VALUES[name])), min_size=1, max_size=3
).map(dict)
PROBING = {"arp_refresh": "probe", "arp_age": 100, "refresh_before": 99, "refresh_probes": 1}
"""Long after its last request an entry may still be confirmed."""
KINDS = st.sampled_from(
    [
        {},
        PROBING,
        {**PROBING, "request_update": True, "on_port_change": "update"},
        {"arp_refresh": "daemon", "refresh_incomplete": True, "arp_age": 30, "refresh_period": 20},
        {"arp_cap": 4, "arp_cap_per_svi": 3, "arp_full": "evict"},
        {"mac_moves": 2, "mac_move_recovery": 60},
        {"lossless_unknown_unicast": "drop"},
    ]
)
SHORT = {"arp_refresh": "probe", "arp_age": 10, "refresh_before": 2}
OTHER_KINDS = KINDS | st.sampled_from([{"mac_moves": None}, {"arp_cap": 1}, SHORT])


class AnySwitch(RuleBasedStateMachine):
    """A control plane that is run exactly when it asks to be."""

    @initialize(of=st.sampled_from(list(load_profiles().values())), kind=KINDS, values=CHANGES)
    def begin(self, of: Profile, kind: dict[str, Any], values: dict[str, Any]) -> None:
        self.now = 5 * SECOND
        self.rows: dict[Key, dict[str, Any]] = {}
        """What the control plane shows of its neighbours."""
        self.neighbours: dict[Key, str] = {}
        self.blocked: set[Key] = set()
        self.disabled: set[str] = set()
        self.fdb: dict[tuple[int, str], str] = {}
        self.moved = 0
        """The last time that a MAC moved."""
        self.out_since: int | None = None
        self.outages: list[tuple[int, int]] = []
        self.heard: dict[Key, set[int]] = defaultdict(set)
        """When somebody claimed an address, or a restart put its entry back."""
        self.asked: dict[Key, int] = {}
        """When the switch asked for an address last."""
        self.missed: dict[Key, int] = {}
        """When it began to look for one."""
        self.bounds: dict[tuple[int, int], int] = {}
        self.plane = ControlPlane("leaf", SVIS, _changed(of, {**kind, **values}), lambda: 0.0)
        self._apply(self.plane.start(self.now))

    # What happens to it

    @rule(vlan=VLANS, packet=ARPS | NDS)
    def packet(self, vlan: int, packet: Packet) -> None:
        self.heard[vlan, packet.sender_ip].add(self.now)
        self._apply(self.plane.on_packet(self.now, vlan, packet))

    @rule(svi=st.sampled_from(SVIS[:2]), hosts=st.lists(HOSTS, min_size=1, max_size=4), mac=MACS)
    def hosts_speak(self, svi: Svi, hosts: list[int], mac: str) -> None:
        """Hosts ask for their gateway, as a packet for it has them do; 254 claims to be the gateway."""
        assert svi.address
        assert svi.address6
        for host in hosts:
            ip, ip6 = svi.address.network[host], svi.address6.network[host]
            self.packet(svi.vlan, Arp(REQUEST, mac, ip, NO_MAC, svi.address.ip))
            if host not in (3, 4, 5, 6):
                self.packet(svi.vlan, Nd(REQUEST, mac, ip6, svi.address6.ip))

    @precondition(lambda self: self.rows)
    @rule(data=st.data(), mac=MACS | st.just(NO_MAC), op=st.sampled_from([REQUEST, REPLY]), override=st.booleans())
    def neighbour_speaks(self, data: st.DataObject, mac: str, op: int, override: bool) -> None:
        """The owner of an address that the switch has confirms it, or somebody else takes it."""
        vlan, ip = self._one_of(data)
        if data.draw(st.sampled_from([True, True, True, False])):
            mac = self.neighbours.get((vlan, ip), mac)
        if isinstance(ip, IPv4Address):
            self.packet(vlan, Arp(op, mac, ip, GATEWAY_MAC, IPv4Address(f"10.0.{vlan}.254")))
        else:
            self.packet(vlan, Nd(op, mac, ip, link_local(GATEWAY_MAC), op == REPLY, override))

    @rule(key=st.sampled_from(ON_LINK) | st.tuples(VLANS, IPS | IPS6 | ODD_IPS | ODD_IPS6))
    def miss(self, key: Key) -> None:
        vlan, ip = key
        effects = self.plane.on_miss(self.now, vlan, ip)
        self._apply(effects)
        row = self.rows.get((vlan, ip))
        waits = row is not None and row["state"] == "asking" and self.out_since is None
        decided = [effect for effect in effects if isinstance(effect, SetNeighbour | DeleteNeighbour)]
        assert waits or decided, "the kernel would hold the packets for ever"

    @rule(vlan=VLANS, mac=MACS, port=st.none() | PORTS, lost=st.sampled_from(["aged", "flushed"]))
    def fdb_change(self, vlan: int, mac: str, port: str | None, lost: Any) -> None:
        if port is None:
            self.fdb.pop((vlan, mac), None)
        else:
            if self.fdb.get((vlan, mac), port) != port:
                self.moved = self.now
            self.fdb[vlan, mac] = port
        self._apply(self.plane.on_fdb(self.now, vlan, mac, port, lost))

    @rule(port=PORTS)
    def port_goes_down(self, port: str) -> None:
        for (vlan, mac), at in [*self.fdb.items()]:
            if at == port:
                self.fdb_change(vlan, mac, None, "flushed")
        self._apply(self.plane.on_port_down(self.now, port))

    @rule(vlan=VLANS, mac=MACS)
    def mac_flaps(self, vlan: int, mac: str) -> None:
        for port in ("port1", "port2") * 2:
            self.fdb_change(vlan, mac, port, "aged")

    @rule(values=OTHER_KINDS | CHANGES)
    def change_profile(self, values: dict[str, Any]) -> None:
        self._apply(self.plane.set_profile(self.now, _changed(self.plane.profile, values)))
        self._hold_bounds()
        self._run()

    @rule(family=st.sampled_from(FAMILIES), vlan=st.none() | VLANS, ip=IPS | IPS6 | st.none())
    def clear(self, family: Family, vlan: int | None, ip: IPAddress | None) -> None:
        stays = [
            key
            for key in self.rows
            if key[1].version != family
            or {vlan, key[0], None} != {key[0], None}
            or {ip, key[1], None} != {key[1], None}
        ]
        self._apply(self.plane.clear(family, vlan, ip))
        assert sorted(self.rows, key=str) == sorted(stays, key=str)

    @precondition(lambda self: self.out_since is None)
    @rule()
    def cpu_goes_out(self) -> None:
        self.plane.pause(self.now)
        self.out_since = self.now
        assert self.plane.next_deadline is None

    @precondition(lambda self: self.out_since is not None)
    @rule()
    def cpu_comes_back(self) -> None:
        assert self.out_since is not None
        self.outages.append((self.out_since, self.now))
        self.out_since = None
        self._apply(self.plane.resume(self.now))

    @precondition(lambda self: self.out_since is None)
    @rule(values=OTHER_KINDS | CHANGES, seconds=TIMES)
    def outage(self, values: dict[str, Any], seconds: float) -> None:
        self.cpu_goes_out()
        self.change_profile(values)
        self.pass_time(seconds)
        self.cpu_comes_back()

    @rule()
    def restart(self) -> None:
        self._apply(self.plane.restart(self.now))
        for key in self.neighbours:
            self.heard[key].add(self.now)

    @rule(seconds=TIMES)
    def pass_time(self, seconds: float) -> None:
        self.now += nanoseconds(seconds)
        self._run()

    @precondition(lambda self: self.neighbours and self.out_since is None)
    @rule(data=st.data())
    def wait_for_the_end_of_an_entry(self, data: st.DataObject) -> None:
        confirmed = data.draw(st.sampled_from(sorted(self._confirmed().values())))
        self.now = max(self.now, confirmed + nanoseconds(self.plane.profile.arp_lifetime) + self._out(confirmed))
        self._run()

    # What holds at every step

    @invariant()
    def tables_agree(self) -> None:
        assert self.neighbours == {key: row["mac"] for key, row in self.rows.items() if row["state"] == "resolved"}
        assert {(row["vlan"], row["mac"]): row["port"] for row in self.plane.fdb.rows()} == self.fdb
        drops = self.plane.profile.lossless_unknown_unicast == "drop"
        unknown = {key for key, mac in self.neighbours.items() if (key[0], mac) not in self.fdb}
        assert self.blocked == (unknown if drops else set())

    @invariant()
    def no_table_exceeds_its_bound(self) -> None:
        """One that was lowered below what is there lets nothing be added."""
        for place, size in self._sizes().items():
            assert size <= self.bounds.get(place, size), place
        self._hold_bounds()

    @invariant()
    def no_entry_outlives_its_age(self) -> None:
        lifetime = nanoseconds(self.plane.profile.arp_lifetime)
        for key, confirmed in self._confirmed().items():
            assert confirmed in self.heard[key], "nobody has confirmed it then"
            assert self.out_since is not None or self.now < confirmed + lifetime + self._out(confirmed), key

    @invariant()
    def no_entry_gets_old_unasked(self) -> None:
        profile = self.plane.profile
        if profile.arp_refresh == "probe" and self.out_since is None:
            for key, confirmed in self._confirmed().items():
                due = confirmed + nanoseconds(profile.arp_age - profile.refresh_before) + self._out(confirmed)
                assert self.now < due or self.asked.get(key, -1) >= confirmed, key

    @invariant()
    def no_search_goes_on_for_ever(self) -> None:
        profile = self.plane.profile
        longest = nanoseconds(3 * profile.resolve_interval)
        for key, row in self.rows.items():
            if row["state"] == "asking" and self.out_since is None:
                assert self.now < self.missed[key] + longest + self._out(self.missed[key]), key

    @invariant()
    def only_neighbours_are_learned(self) -> None:
        for (vlan, ip), mac in self.neighbours.items():
            assert unicast(mac)
            assert ip not in OWN
            networks = [address.network for svi in SVIS if svi.vlan == vlan for address in svi.addresses]
            assert ip.is_link_local or any(ip in network for network in networks)

    @invariant()
    def disabled_ports_come_back(self) -> None:
        profile = self.plane.profile
        if self.disabled and self.out_since is None:
            assert profile.mac_moves is not None
            longest = nanoseconds(profile.mac_move_recovery) + nanoseconds(profile.mac_move_check)
            assert self.now < self.moved + longest + self._out(self.moved)

    @invariant()
    def it_asks_to_be_run_in_time(self) -> None:
        table = self.plane._neighbours.table
        due = [entry.deadline(self.plane.profile) for entry in table.entries.values()]
        due += [unresolved.until for unresolved in table.unresolved.values()]
        if due and self.out_since is None:
            assert self.plane.next_deadline is not None
            assert self.now < self.plane.next_deadline <= min(due)

    # The model

    def _run(self) -> None:
        """Run what is due by now, at the times it is due."""
        while (due := self.plane.next_deadline) is not None and due <= self.now:
            self._apply(self.plane.on_timer(due), due)
        self._apply([])

    def _apply(self, effects: list[Effect], now: int | None = None) -> None:
        for effect in effects:
            match effect:
                case SetNeighbour(vlan, ip, mac):
                    self.neighbours[vlan, ip] = mac
                case DeleteNeighbour(vlan, ip):
                    self.neighbours.pop((vlan, ip), None)
                case BlockLossless(vlan, ip, blocked):
                    assert blocked == ((vlan, ip) not in self.blocked), "it is so already"
                    (self.blocked.add if blocked else self.blocked.remove)((vlan, ip))
                case SetPort(port, up):
                    assert up == (port in self.disabled), "it is so already"
                    (self.disabled.remove if up else self.disabled.add)(port)
                case Send(vlan, _, packet):
                    if packet.op == REQUEST:
                        self.asked[vlan, packet.target_ip] = self.now if now is None else now
                case Event(kind, fields):
                    assert named(kind, fields).sentence()
                    if kind.endswith((".miss", ".refused")):
                        key = int(str(fields["vlan"])), ip_address(str(fields["ip"]))
                        self.missed[key] = self.now
                        assert kind.endswith(".miss") or self._is_full(key), "there is room"

        rows = [row for family in FAMILIES for row in self.plane.neighbours(self.now, family)]
        self.rows = {(row["vlan"], ip_address(row["ip"])): row for row in rows}

    def _one_of(self, data: st.DataObject) -> Key:
        return data.draw(st.sampled_from(sorted(self.rows, key=str)))

    def _confirmed(self) -> dict[Key, int]:
        """When each entry was confirmed last, by its age."""
        ages = {key: row["age"] for key, row in self.rows.items() if row["age"] is not None}
        return {key: self.now - round(age * SECOND) for key, age in ages.items()}

    def _sizes(self) -> Counter[tuple[int, int]]:
        """Addresses by family and VLAN; VLAN 0 is all of them."""
        sizes: Counter[tuple[int, int]] = Counter()
        for vlan, ip in self.rows:
            sizes.update([(ip.version, 0), (ip.version, vlan)])
        return sizes

    def _is_full(self, key: Key) -> bool:
        sizes, profile, family = self._sizes(), self.plane.profile, key[1].version
        bounds = (0, profile.arp_cap), (key[0], profile.arp_cap_per_svi)
        return any(bound is not None and sizes[family, vlan] >= bound for vlan, bound in bounds)

    def _hold_bounds(self) -> None:
        sizes, profile = self._sizes(), self.plane.profile
        self.bounds = {}
        for place in itertools.product(FAMILIES, [0, 10, 20]):
            bound = profile.arp_cap_per_svi if place[1] else profile.arp_cap
            if bound is not None:
                self.bounds[place] = max(bound, sizes[place])

    def _out(self, since: int) -> int:
        """For how long the CPU was out since then."""
        return sum(max(0, back - max(gone, since)) for gone, back in self.outages)


def _changed(profile: Profile, values: dict[str, Any]) -> Profile:
    """The profile with other values; without `refresh_before` when it does not fit the age."""
    try:
        return profile.replace(**values)
    except InputError:
        return profile.replace(**{**values, "refresh_before": 0})


TestAnySwitch = AnySwitch.TestCase
TestAnySwitch.settings = settings(max_examples=2 * settings().max_examples, stateful_step_count=40)
