"""Virtual routers: whom the control plane answers for, what the kernel has of them, and vrrpd's configuration."""

from dataclasses import replace
from ipaddress import IPv4Address, IPv4Interface, IPv6Address, IPv6Interface
from typing import Any

from testbed.kernel import link_readings, netlink
from testbed.kernel.netlink import mac_bytes
from testbed.switch import vrrp
from testbed.switch.changes import RouterChange
from testbed.switch.control import ControlPlane
from testbed.switch.core import DeleteNeighbour, Event, Send
from testbed.switch.frames import NO_MAC, REPLY, REQUEST, Arp
from testbed.switch.frr import configurations, daemons
from testbed.switch.nd import Nd, solicited_node
from testbed.switch.profile import profile
from testbed.switch.virtual_routers import VirtualRouters
from testbed.topology.fabrics import leaf_spine
from testbed.topology.plan import IPAddress, Node, Svi, VirtualRouter

MAC, HOST, VIRTUAL, VIRTUAL6 = "02:00:00:00:00:01", "02:00:00:00:00:0a", "00:00:5e:00:01:05", "00:00:5e:00:02:05"
SVI = Svi(10, "vlan10", MAC, IPv4Interface("10.0.10.2/24"), IPv6Interface("2001:db8::2/64"))
SVI_20 = Svi(20, "vlan20", MAC, IPv4Interface("10.0.20.2/24"))
ADDRESS, ADDRESS6, ASKER = IPv4Address("10.0.10.1"), IPv6Address("2001:db8::1"), IPv4Address("10.0.10.9")


def plane(name: str = "sonic") -> ControlPlane:
    made = ControlPlane("leaf", (SVI, SVI_20), profile(name), lambda: 0.0)
    made.start(0)
    return made


def answers(made: ControlPlane, target: IPAddress, vlan: int = 10) -> list[str]:
    """The MACs in the answers to a request."""
    request: Arp | Nd
    if isinstance(target, IPv4Address):
        request = Arp(REQUEST, HOST, ASKER, NO_MAC, target)
    else:
        request = Nd(REQUEST, HOST, IPv6Address("2001:db8::9"), target)
    sent = [effect for effect in made.on_packet(1, vlan, request) if isinstance(effect, Send)]
    return [one.packet.sender_mac for one in sent if one.packet.op == REPLY]


def events(effects: list[Any]) -> list[tuple[str, Any]]:
    return [(effect.kind, effect.fields.get("ip")) for effect in effects if isinstance(effect, Event)]


def test_only_the_master_answers_and_with_the_virtual_mac() -> None:
    made = plane()
    assert answers(made, ADDRESS) == []
    assert events(made.on_router(2, 10, VIRTUAL, (ADDRESS,))) == [("vrrp.master", "10.0.10.1")]
    assert answers(made, ADDRESS) == [VIRTUAL]
    assert answers(made, IPv4Address("10.0.10.2")) == [MAC]
    assert events(made.on_router(3, 10, VIRTUAL, ())) == [("vrrp.backup", "10.0.10.1")]
    assert answers(made, ADDRESS) == []


def test_each_family_has_a_master_of_its_own() -> None:
    made = plane()
    made.on_router(2, 10, VIRTUAL6, (ADDRESS6,))
    assert answers(made, ADDRESS6) == [VIRTUAL6]
    assert answers(made, ADDRESS) == []


def test_in_another_vlan_it_is_an_address_of_the_switch_like_others() -> None:
    """As Linux answers with arp_ignore 0: with the MAC of the interface that was asked."""
    made = plane("linux-default")
    made.on_router(2, 10, VIRTUAL, (ADDRESS,))
    request = Arp(REQUEST, HOST, IPv4Address("10.0.20.9"), NO_MAC, ADDRESS)
    sent = [effect for effect in made.on_packet(3, 20, request) if isinstance(effect, Send)]
    assert [one.packet.sender_mac for one in sent if one.packet.op == REPLY] == [MAC]


def test_a_new_master_forgets_what_it_learned_of_the_last_one() -> None:
    made = plane("cisco-nxos")
    made.on_miss(1, 10, ADDRESS)
    made.on_packet(2, 10, Arp(REPLY, VIRTUAL, ADDRESS, MAC, IPv4Address("10.0.10.2")))
    assert [row["ip"] for row in made.neighbours(2, 4)] == [str(ADDRESS)]
    effects = made.on_router(3, 10, VIRTUAL, (ADDRESS,))
    assert events(effects) == [("arp.cleared", "10.0.10.1"), ("vrrp.master", "10.0.10.1")]
    assert DeleteNeighbour(10, ADDRESS) in effects
    # What another master claims meanwhile is not learned.
    claimed = made.on_packet(4, 10, Arp(REQUEST, VIRTUAL, ADDRESS, NO_MAC, ADDRESS))
    assert [effect.fields["reason"] for effect in claimed if isinstance(effect, Event)] == ["own-address"]
    assert made.neighbours(4, 4) == []


def test_requests_of_a_master_are_from_its_own_address() -> None:
    made = plane()
    made.on_router(1, 10, VIRTUAL, (ADDRESS,))
    (request,) = [effect for effect in made.on_miss(2, 10, ASKER) if isinstance(effect, Send)]
    assert (request.packet.sender_mac, str(request.packet.sender_ip)) == (MAC, "10.0.10.2")


def test_without_its_svi_a_router_answers_nobody() -> None:
    made = plane()
    made.on_router(1, 10, VIRTUAL, (ADDRESS,))
    made.on_svi(2, 10, MAC, ())
    assert answers(made, ADDRESS) == []
    made.on_svi(3, 10, MAC, SVI.addresses)
    assert answers(made, ADDRESS) == [VIRTUAL]


# The kernel's part

BRIDGE, SVI_INDEX, INDEX = 1, 2, 7


class Kernel:
    """An rtnetlink socket that keeps what it is asked for."""

    def __init__(self) -> None:
        self.done: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments, **_: self.done.append((name, *arguments))


def macvlan(*, up: bool = True, down: bool = False, mac: str = VIRTUAL, parent: int = SVI_INDEX) -> bytes:
    information = netlink.nested(link_readings.IFLA_LINKINFO, netlink.string(link_readings.IFLA_INFO_KIND, "macvlan"))
    body = link_readings.header(INDEX, flags=int(up)) + netlink.string(link_readings.IFLA_IFNAME, "vrrp4-10-5")
    body += netlink.attribute(link_readings.IFLA_ADDRESS, mac_bytes(mac)) + netlink.u32(5, parent)
    return body + information + netlink.u8(39, int(down))


def followed(made: VirtualRouters, body: bytes) -> list[RouterChange]:
    found = link_readings.link_state(body)
    assert found
    return list(made.follow(*found, body, {SVI_INDEX: 10}))


def routers(kernel: Kernel, *addresses: str) -> VirtualRouters:
    """A backup's device with addresses."""
    made = VirtualRouters(kernel, BRIDGE)  # type: ignore[arg-type]
    assert followed(made, macvlan(up=False)) == []
    for address in addresses:
        given = IPv4Interface(address) if "." in address else IPv6Interface(address)
        assert list(made.address(INDEX, given, has=True)) == []
    return made


def test_a_backup_has_neither_address_nor_mac() -> None:
    kernel = Kernel()
    made = routers(kernel, "10.0.10.1/32")
    assert kernel.done == [("delete_address", INDEX, IPv4Interface("10.0.10.1/32"))]
    kernel.done.clear()
    assert followed(made, macvlan(down=True)) == []
    assert kernel.done == [("delete_own_mac", SVI_INDEX, VIRTUAL)]  # or the bridge would be promiscuous


def test_a_master_has_both_until_it_is_a_backup_again() -> None:
    kernel, address = Kernel(), IPv4Interface("10.0.10.1/32")
    made = routers(kernel, "10.0.10.1/32")
    followed(made, macvlan(down=True))
    list(made.address(INDEX, address, has=False))  # what it did itself
    kernel.done.clear()
    assert followed(made, macvlan()) == [RouterChange(10, VIRTUAL, (ADDRESS,))]
    assert kernel.done == [("set_bridge_mac", BRIDGE, 10, VIRTUAL), ("set_address", INDEX, address)]
    assert followed(made, macvlan()) == []
    kernel.done.clear()
    assert followed(made, macvlan(down=True)) == [RouterChange(10, VIRTUAL, ())]
    assert kernel.done == [("delete_bridge_mac", BRIDGE, 10, VIRTUAL), ("delete_address", INDEX, address)]


def test_addresses_that_a_command_changes_are_followed() -> None:
    made = routers(Kernel(), "10.0.10.1/32")
    followed(made, macvlan())
    other = IPv4Interface("10.0.10.7/32")
    assert list(made.address(INDEX, other, has=True)) == [RouterChange(10, VIRTUAL, (ADDRESS, other.ip))]
    assert list(made.address(INDEX, IPv4Interface("10.0.10.1/32"), has=False)) == [
        RouterChange(10, VIRTUAL, (other.ip,))
    ]
    assert list(made.gone(INDEX)) == [RouterChange(10, VIRTUAL, ())]
    assert made.indices == set()


def test_with_another_mac_a_device_is_no_virtual_router_and_keeps_a_command_s_addresses() -> None:
    kernel, address = Kernel(), IPv4Interface("10.0.10.1/32")
    made = routers(kernel, "10.0.10.1/32")
    followed(made, macvlan())
    assert followed(made, macvlan(mac=HOST)) == [RouterChange(10, VIRTUAL, ())]
    kernel.done.clear()
    assert list(made.address(INDEX, IPv4Interface("10.0.10.8/32"), has=True)) == []
    assert kernel.done == []
    assert followed(made, macvlan()) == [RouterChange(10, VIRTUAL, (ADDRESS,))]
    assert ("set_address", INDEX, address) in kernel.done


def test_only_a_device_with_a_virtual_mac_on_an_svi_is_one() -> None:
    made = VirtualRouters(Kernel(), BRIDGE)  # type: ignore[arg-type]
    for other in macvlan(mac=HOST), macvlan(parent=99):
        assert followed(made, other) == []
    assert made.indices == set()


def test_a_master_accepts_solicitations_for_its_address() -> None:
    made = routers(Kernel(), "2001:db8::1/128")
    assert not made.accepts(10, solicited_node(ADDRESS6))
    followed(made, macvlan())
    assert made.accepts(10, solicited_node(ADDRESS6))
    assert made.accepts(10, ADDRESS6)
    assert not made.accepts(20, ADDRESS6)
    assert not made.accepts(10, solicited_node(IPv6Address("2001:db8::2")))
    list(made.address(INDEX, IPv6Interface("fe80::1/64"), has=True))  # that of its advertisements
    assert not made.accepts(10, IPv6Address("fe80::1"))


# vrrpd

ROUTER = VirtualRouter(5, ADDRESS, ADDRESS6, priority=200, interval_ms=250, preempt=False)


def switch(router: VirtualRouter | None) -> Node:
    return Node("leaf", "switch", (), svis=(replace(SVI, vrrp=router), SVI_20))


def test_vrrpd_gets_all_that_is_not_its_default_and_the_addresses_last() -> None:
    assert (
        vrrp.conf(switch(ROUTER))
        == """\
interface vlan10
vrrp 5 version 3
vrrp 5 priority 200
vrrp 5 advertisement-interval 250
no vrrp 5 preempt
vrrp 5 ip 10.0.10.1
vrrp 5 ipv6 2001:db8::1
exit
"""
    )
    assert vrrp.commands(replace(SVI, vrrp=VirtualRouter(5, ADDRESS))) == [
        "interface vlan10",
        "vrrp 5 version 3",
        "vrrp 5 ip 10.0.10.1",
    ]


def test_each_family_has_a_device_and_names_fit_into_linux() -> None:
    assert [(one.name, one.mac) for one in vrrp.devices(switch(ROUTER).svis)] == [
        ("vrrp4-10-5", VIRTUAL),
        ("vrrp6-10-5", VIRTUAL6),
    ]
    longest = replace(SVI, vlan=4094, vrrp=replace(ROUTER, id=255))
    assert max(len(one.name) for one in vrrp.devices([longest])) < 16


def test_a_switch_has_the_daemons_that_it_needs() -> None:
    fabric = leaf_spine(leaves=2, spines=2, hosts=1, routing="frr").topology().plan().nodes["leaf1"]
    assert daemons(switch(None)) == []
    assert daemons(switch(ROUTER)) == ["mgmtd", "zebra", "vrrpd"]
    assert daemons(fabric) == ["mgmtd", "zebra", "bfdd", "bgpd"]
    both = replace(fabric, svis=switch(ROUTER).svis)
    assert daemons(both) == ["mgmtd", "zebra", "bfdd", "bgpd", "vrrpd"]
    assert [*configurations(fabric, profile("sonic"))] == ["zebra", "bgpd"]
    assert [*configurations(both, profile("sonic"))] == ["zebra", "bgpd", "vrrpd"]
    assert all(text.startswith("hostname leaf1\n") for text in configurations(both, profile("sonic")).values())
