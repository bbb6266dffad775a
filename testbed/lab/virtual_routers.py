"""The virtual routers of a lab's switches: their devices, vrrpd's states, and who is master."""

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Literal, TypedDict

from testbed.kernel import ipv6
from testbed.lab.nodes.switch_node import Switch
from testbed.switch import vrrp
from testbed.topology import Svi
from testbed.topology.addressing import svi_mac

State = Literal["Initialize", "Master", "Backup"]
Ask = Callable[..., str]
"""`Routing.ask`."""


class VrrpRow(TypedDict):
    """A family of a virtual router, as vrrpd of a switch has it (`show vrrp json`)."""

    vlan: int
    id: int
    address: str
    mac: str
    state: State
    priority: int


def make_devices(switch: Switch, svis: Sequence[Svi]) -> None:
    """Make the devices of virtual routers, not set up: vrrpd decides first whether they are protocol-down."""
    with switch.entered():
        for device in vrrp.devices(svis):
            switch.kernel.add_macvlan(device.name, switch.kernel.index(device.svi.name), device.mac)
            index = switch.kernel.index(device.name)
            if device.family == 6:
                # Advertisements have the device's link-local address, by which routers of one priority are told apart:
                # it must not follow from the virtual MAC, which all have.
                ipv6.enable(switch.kernel, device.name, svi_mac(switch.planned.number))
            # With the SVI's prefix length, as FRR documents it: another one would be one more route of BGP.
            switch.kernel.set_address(index, device.address, prefix_route=False)


def set_up(switch: Switch, svis: Sequence[Svi]) -> None:
    for device in vrrp.devices(svis):
        switch.kernel.set_link(switch.kernel.index(device.name), up=True)


def delete_devices(switch: Switch, svis: Sequence[Svi]) -> None:
    """Delete devices; those of an SVI that has gone have gone with it."""
    there = {link.name: index for index, link in switch.now().links.items()}
    for device in vrrp.devices(svis):
        if device.name in there:
            switch.kernel.delete_link(there[device.name])


def rows(switch: Switch, ask: Ask) -> list[VrrpRow]:
    """Return the states of a switch's virtual routers as vrrpd has them."""
    found: list[VrrpRow] = []
    if not switch.planned.virtual_routers:
        return found
    shown = {(one["interface"], one["vrid"]): one for one in json.loads(ask(switch, "vrrpd", "show vrrp json"))}
    for device in vrrp.devices(switch.planned.svis):
        if one := shown.get((device.svi.name, device.router)):
            state = one[f"v{device.family}"]
            found += [
                {
                    "vlan": device.svi.vlan,
                    "id": device.router,
                    "address": address,
                    "mac": state["vmac"],
                    "state": state["status"],
                    "priority": state["effectivePriority"],
                }
                for address in state["addresses"]
            ]
    return found


def decided(switch: Switch, svis: Sequence[Svi], ask: Ask) -> bool:
    """Return whether vrrpd has begun with virtual routers, and the kernel has its decision about their devices."""
    devices = vrrp.devices(svis)
    states = {(row["vlan"], row["address"]): row["state"] for row in rows(switch, ask)}
    down = {"Backup": True, "Master": False}
    return all(
        down.get(states.get((one.svi.vlan, str(one.address.ip)), "Initialize"))
        == switch.kernel.is_protocol_down(switch.kernel.index(one.name))
        for one in devices
    )


def without_master(switches: Iterable[Switch], ask: Ask) -> str:
    """Return a virtual router of which no switch is master, in words; empty if there is none."""
    masters: dict[tuple[int, str], bool] = {}
    for switch in switches:
        for row in rows(switch, ask):
            key = row["id"], row["address"]
            masters[key] = masters.get(key, False) or row["state"] == "Master"
    return next((f"{address} of virtual router {number}" for (number, address), has in masters.items() if not has), "")
