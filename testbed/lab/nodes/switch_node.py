"""Switches."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path
from typing import Any, ClassVar

from testbed.errors import InputError
from testbed.kernel import ipv6, nftables
from testbed.lab.context import Context
from testbed.lab.interface import Interface
from testbed.lab.node import Node
from testbed.lab.overlay import Overlay
from testbed.switch.agent import Agent
from testbed.switch.build import BRIDGE, make_svi, no_flooding
from testbed.switch.profile import Profile, check_names, configured, settable
from testbed.topology import AnAddress, IPInterface, address_of, mac_of
from testbed.topology import Interface as InterfacePlan
from testbed.topology import Node as NodePlan


class Switch(Node[Interface]):
    """A VLAN-aware bridge with SVIs in the kernel, its ARP and ND in the agent of the lab's control planes."""

    lacp_strict: ClassVar[bool] = True
    agent: Agent

    def __init__(self, context: Context, name: str, plan: NodePlan) -> None:
        super().__init__(context, name, plan)
        self.planned = plan
        self.first_profile = configured(plan.profile, plan.profile_values)
        """The profile that it starts with."""
        self.profile_changes: list[Callable[[Profile], None]] = []
        """Called with the profile that it is to have; one may raise InputError, and the switch keeps its own."""
        self.annotate: Callable[[dict[str, Any]], dict[str, Any]] = dict
        """Adds to its tables what others than its agent know."""
        self._values = Overlay(lambda _: self.profile(), self._set_profile)
        self._mlag = Overlay(lambda _: self.mlag(), lambda values: self._ask("set_mlag", **values))
        self._cpu = Overlay(lambda _: self.cpu(), lambda values: self._ask("set_cpu", **values))

    def make_interface(self, name: str, index: int, mac: str, plan: InterfacePlan | None) -> Interface:
        return Interface(self, name, index, mac, plan)

    def join(self, interface: Interface) -> None:
        plan = interface.plan
        if plan is None:
            return
        if plan.master:
            super().join(interface)
            return
        if plan.routed:
            super().join(interface)
            with self.entered():
                ipv6.enable_router_port(interface.name)
            self._ask("add_routed", index=interface.index, port=interface.name)
            return
        self.kernel.enslave(interface.index, self.kernel.index(BRIDGE))
        self.kernel.set_vlans(interface.index, plan.vlan, plan.trunk)
        self._ask("set", values={})  # what its profile has for each port
        self._bound_floods()

    def change_end(self, interface: Interface, before: InterfacePlan, now: InterfacePlan) -> None:
        super().change_end(interface, before, now)
        if (before.vlan, before.trunk) != (now.vlan, now.trunk):
            for vlan in sorted({vlan for vlan in (before.vlan, *before.trunk) if vlan} - {now.vlan, *now.trunk}):
                self.use("bridge", "vlan", "del", "dev", interface.name_now, "vid", str(vlan))
            self.kernel.set_vlans(interface.index, now.vlan, now.trunk)
            self._bound_floods()

    def _bound_floods(self) -> None:
        """Have the ports of VLANs with proxy ARP as they are planned now."""
        if any(svi.proxy_arp for svi in self.planned.svis):
            with self.entered():
                nftables.run("destroy table bridge proxy\n" + no_flooding(self.planned))

    def change(self, before: NodePlan, now: NodePlan) -> None:
        self.planned = now
        old, new = {svi.vlan: svi for svi in before.svis}, {svi.vlan: svi for svi in now.svis}
        bridge = self.kernel.index(BRIDGE)
        for vlan, svi in old.items():
            if svi.addresses and not (vlan in new and new[vlan].addresses):
                self.kernel.delete_link(self.kernel.index(svi.name))
                self.use("bridge", "vlan", "del", "dev", BRIDGE, "vid", str(vlan), "self")
        for vlan, svi in new.items():
            had = old[vlan].addresses if vlan in old else ()
            if svi.addresses and not had:
                with self.entered():
                    make_svi(self.kernel, svi, bridge, now.mtu_in(vlan))
            elif svi.addresses != had:
                self._change_addresses(self.kernel.index(svi.name), had, svi.addresses)
        self._change_profile(before, now)
        super().change(before, now)

    def fit_svis(self, before: NodePlan, now: NodePlan) -> None:
        """Give its SVIs the MTUs that follow from the ports of another plan."""
        there = {link.name: index for index, link in self.now().links.items()}
        for svi in now.svis:
            mtu = now.mtu_in(svi.vlan)
            if svi.name in there and mtu != before.mtu_in(svi.vlan):
                self.kernel.set_link(there[svi.name], mtu=mtu)

    def _change_addresses(self, index: int, before: Sequence[IPInterface], now: Sequence[IPInterface]) -> None:
        there = self.now().addresses.get(index, [])
        for address in before:
            if address not in now and address in there:
                self.kernel.delete_address(index, address)
        for address in now:
            if address not in before:
                self.kernel.set_address(index, address)

    def _change_profile(self, before: NodePlan, now: NodePlan) -> None:
        if (before.profile, before.profile_values) == (now.profile, now.profile_values):
            return
        old = self.first_profile.model_dump(mode="json")
        self.first_profile = configured(now.profile, now.profile_values)
        new = self.first_profile.model_dump(mode="json")
        self._values.rebase({name: value for name, value in new.items() if value != old[name] and name in settable()})

    def _ask(self, command: str, **arguments: Any) -> dict[str, Any]:
        return self.agent.ask(self.name, command, **arguments) or {}

    def change_profile(self, **values: Any) -> Callable[[], None]:
        """Change values of its profile, beside other changes. The returned function undoes this change. InputError for
        an unknown name or an invalid value."""
        check_names(values)
        return self._values.change(values)

    def _set_profile(self, values: Mapping[str, Any]) -> None:
        if self.profile_changes:
            wanted = Profile.model_validate(self.profile()).replace(**values)
            for change in self.profile_changes:
                change(wanted)
        self._ask("set", values=values)

    def profile(self) -> dict[str, Any]:
        """Return the values of its profile as they are now, by their names (`testbed profile describe`)."""
        return self._ask("profile")

    def change_cpu(self, **values: Any) -> Callable[[], None]:
        """Change how its CPU handles ARP, beside other changes: see `Agent.ask`. The returned function undoes it.
        InputError for a wrong name or value."""
        if unknown := values.keys() - {"out", "delay"}:
            raise InputError(f"the CPU of a switch has no {min(unknown)!r}", hint="It has: delay, out.")
        if not isinstance(values.get("out", False), bool):
            raise InputError(f"'out' must be True or False, not {values['out']!r}")
        delay = values.get("delay", 0)
        if not isinstance(delay, int | float) or isinstance(delay, bool) or not 0 <= delay < math.inf:
            raise InputError(f"'delay' must be a number of seconds, not {delay!r}")
        return self._cpu.change(values)

    def cpu(self) -> Mapping[str, Any]:
        """Return the state of its CPU: ``{"out": …, "delay": …}``, see `Agent.ask`."""
        return self._ask("cpu")

    def mlag(self) -> Mapping[str, Any]:
        """Return the state of its pair (MLAG): `peer`, `session` (up, down), `role` (active, standby), `peer_link`, and
        `channels`, each with `number`, `port`, `up`, and `peer_up`, None while it does not hear the other switch; and
        the `delay` in seconds of what it tells it. Empty for a switch that is alone."""
        return self._ask("mlag")

    def change_mlag(self, **values: Any) -> Callable[[], None]:
        """Change how it tells the other switch of its pair, beside other changes: `delay` in seconds. The returned
        function undoes it."""
        return self._mlag.change(values)

    def restart(self) -> None:
        """Complete a warm reboot of its CPU."""
        self._ask("restart")

    def follow_segments(self, directory: Path) -> None:
        """Have the agent follow the Ethernet segments that zebra has, whose socket is in this directory."""
        self._ask("follow_segments", namespace=self.namespace, directory=str(directory))

    def clear_arp(self, vlan: int | None = None, ip: IPv4Address | str | None = None) -> None:
        """Delete ARP entries: all, or those of a VLAN, of an address. As `sonic-clear arp`, `clear ip arp`."""
        self._ask("clear", family=4, vlan=vlan, ip=None if ip is None else str(address_of(ip)))

    def clear_nd(self, vlan: int | None = None, ip: IPv6Address | str | None = None) -> None:
        """Delete IPv6 neighbour entries: all, or those of a VLAN, of an address."""
        self._ask("clear", family=6, vlan=vlan, ip=None if ip is None else str(address_of(ip)))

    def clear_fdb(self, vlan: int | None = None, mac: str | None = None, port: str | None = None) -> None:
        """Delete learned MACs: all, or those of a VLAN, of a port, one MAC. Static entries stay. InputError for a port
        that the bridge does not have."""
        mac = mac_of(mac) if mac is not None else None
        bridge = self.kernel.index(BRIDGE)
        bridged = {link.name for link in self.now().links.values() if link.master == bridge}
        if port is not None and port not in bridged:
            raise InputError(f"{self} has no port {port!r}", hint=f"It has: {', '.join(sorted(bridged))}.")
        self._ask("clear_fdb", vlan=vlan, mac=mac, port=port)

    def tables(self) -> dict[str, list[dict[str, Any]]]:
        """Return the ARP, ND and FDB tables in full, see testbed.switch.control. `data_plane` of an entry is the MAC by
        which the kernel forwards, if a command gave it another one than the control plane has, and "none" if a command
        deleted it; an entry that only the kernel has is `static`."""
        return self.annotate(self._ask("tables"))

    def arp_table(self) -> dict[str, str]:
        """Return IP to MAC, as the control plane has it."""
        return {entry["ip"]: entry["mac"] for entry in self.tables()["arp"]}

    def nd_table(self) -> dict[str, str]:
        """Return IPv6 address to MAC, as the control plane has it."""
        return {entry["ip"]: entry["mac"] for entry in self.tables()["nd"]}

    def neighbour(self, ip: AnAddress) -> str | None:
        """Return the MAC that the control plane has for an address of either family, None if it has none."""
        ip = address_of(ip)
        return (self.arp_table() if ip.version == 4 else self.nd_table()).get(str(ip))

    def fdb_table(self) -> dict[str, str]:
        """Return MAC to port, as the bridge learned it."""
        return {entry["mac"]: entry["port"] for entry in self.tables()["fdb"]}

    def svi_mac(self, vlan: int | None = None) -> str:
        """Return the MAC of its SVI in a VLAN, or of the first one: a host's gateway. All its SVIs have one MAC."""
        names = [svi.name for svi in self.planned.svis if svi.addresses and vlan in (None, svi.vlan)]
        found = {link.name: link.mac for link in self.now().links.values()}
        if not names or names[0] not in found:
            raise InputError(f"{self.name} has no SVI" + (f" in VLAN {vlan}" if vlan else ""))
        return found[names[0]]

    def uplinks(self, source: AnAddress, target: AnAddress, source_ports: Sequence[int]) -> list[str]:
        """Return the egress port of RoCE packets from one address to another, for each UDP source port; see
        `egress_ports`."""
        if not isinstance(source_ports, Sequence):
            raise InputError(f"the UDP source ports must be a list, not {source_ports!r}")
        return self.egress_ports([(source, target, port) for port in source_ports])

    def egress_ports(self, flows: Sequence[tuple[AnAddress, AnAddress, int]]) -> list[str]:
        """Return the egress port of RoCE packets for each flow: source address, destination address, UDP source port.
        The kernel is asked, which hashes as for packets; they come from where the source is attached. Of a VLAN with
        several ports it is the one where the next hop's MAC is; the SVI's name if the switch does not know that."""
        plan = self.planned
        routed = [svi.name for svi in plan.svis if svi.addresses] + [port.name for port in plan.routed_ports]
        if not routed:
            raise InputError(f"{self.name} does not route: it has no SVI with an address and no routed port")
        networks = [(address.network, svi.name) for svi in plan.svis for address in svi.addresses]
        lines = []
        for given, to, port in flows:
            source, target = address_of(given), address_of(to)
            here = next((name for network, name in networks if source in network), routed[0])
            lines.append(f"route get {target} from {source} iif {here} ipproto udp dport 4791 sport {port}\n")
        answers = self.run("ip", "-j", "-batch", "-", text="".join(lines)).stdout.splitlines()
        routes = [route for line in answers if line for route in json.loads(line)]
        return [self._port_of(route["dev"], route.get("gateway", route["dst"])) for route in routes]

    def _port_of(self, device: str, hop: str) -> str:
        """Return the port to a next hop behind a device; a routed port is the device itself."""
        vlan = next((svi.vlan for svi in self.planned.svis if svi.name == device), None)
        if vlan is None:
            return device
        ports = [port.name for port in self.planned.ports if vlan in (port.vlan, *port.trunk)]
        if len(ports) == 1:
            return ports[0]
        tables = self.tables()
        rows = [*tables["arp"], *tables["nd"]]
        mac = next((row["mac"] for row in rows if (row["vlan"], row["ip"]) == (vlan, hop)), None)
        return next((row["port"] for row in tables["fdb"] if mac and (row["vlan"], row["mac"]) == (vlan, mac)), device)
