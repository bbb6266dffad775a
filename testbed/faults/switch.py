"""Switches: a CPU that is slow or out, tables that are too small, entries that are wrong or lost."""

from contextlib import ExitStack
from typing import Annotated, Any, ClassVar

from pydantic import Field

from testbed.errors import InputError
from testbed.faults.fault import Address, Fault, Mac, Verified
from testbed.kernel.rtnetlink import Neighbour
from testbed.lab import Lab, Switch
from testbed.switch import ecmp
from testbed.topology import IPAddress

Seconds = Annotated[float, Field(gt=0, le=1e7)]
Count = Annotated[int, Field(ge=1, le=1_000_000)]


class _SwitchFault(Fault):
    switch: str
    """The switch's name."""


class Setting(_SwitchFault):
    """Values of the switch's profile, or of its CPU, that are not what they should be."""

    of_cpu: ClassVar[bool] = False

    def _values(self) -> dict[str, Any]:
        return self.model_dump(exclude={"switch"}, exclude_none=True)

    def inject(self, lab: Lab, undo: ExitStack) -> None:
        switch = lab.switch(self.switch)
        undo.callback((switch.change_cpu if self.of_cpu else switch.change_profile)(**self._values()))

    def verify(self, lab: Lab) -> Verified | None:
        switch = lab.switch(self.switch)
        now = switch.cpu() if self.of_cpu else switch.profile()
        values = {name: now[name] for name in self._values()}
        return values if values == self._values() else None


class ArpAgeing(Setting):
    """ARP entries age faster or more slowly than they should."""

    name: ClassVar[str] = "arp-ageing"
    arp_age: Seconds
    """Seconds."""


class ArpCapacity(Setting):
    """The ARP table is too small for the attached hosts: when it is full, new entries are refused or evict old ones."""

    name: ClassVar[str] = "arp-capacity"
    arp_cap: Count
    """Number of entries, including unresolved ones."""


class ArpCpuLimit(Setting):
    """The switch limits the ARP packets per second to its CPU (CoPP)."""

    name: ClassVar[str] = "arp-cpu-limit"
    arp_pps: Count
    """Packets per second; a burst may have the packets of one second."""


class MacAgeing(Setting):
    """MAC addresses age faster or more slowly than they should."""

    name: ClassVar[str] = "mac-ageing"
    mac_age: Seconds
    """Seconds."""


class MacCapacity(Setting):
    """The MAC table is too small for the attached hosts; by profile, other frames are flooded or dropped."""

    name: ClassVar[str] = "mac-capacity"
    mac_cap: Count
    """Entries."""


class EcmpSeedShared(_SwitchFault):
    """The switch has the hash key of another switch, as with one default for all (polarisation).

    Of flows that the other one has sent here, its own hash sends all the same way: some of its next hops of equal cost
    get nothing.
    """

    name: ClassVar[str] = "ecmp-seed-shared"
    like: str
    """The other switch."""

    def inject(self, lab: Lab, undo: ExitStack) -> None:
        switch, seed = lab.switch(self.switch), lab.switch(self.like).read_sysctl(ecmp.SEED)
        undo.callback(switch.sysctl, ecmp.SEED, switch.read_sysctl(ecmp.SEED))
        switch.sysctl(ecmp.SEED, seed)

    def verify(self, lab: Lab) -> Verified | None:
        own, other = (lab.switch(name).read_sysctl(ecmp.SEED) for name in (self.switch, self.like))
        return {"seed": int(own)} if own == other else None


class SwitchCpuOutage(_SwitchFault):
    """The switch's CPU handles no ARP: it does not answer, learn, resolve or age.

    It still forwards by its tables, as an ASIC does. ARP packets that arrive in the meantime are lost.
    """

    name: ClassVar[str] = "switch-cpu-outage"

    def inject(self, lab: Lab, undo: ExitStack) -> None:
        undo.callback(lab.switch(self.switch).change_cpu(out=True))

    def verify(self, lab: Lab) -> Verified | None:
        return {"cpu": "out"} if lab.switch(self.switch).cpu()["out"] else None


class ArpCpuDelay(Setting):
    """The switch's CPU handles every ARP packet late."""

    name: ClassVar[str] = "arp-cpu-delay"
    of_cpu: ClassVar[bool] = True
    delay: Annotated[float, Field(gt=0, le=3600)]
    """Seconds."""


class SwitchReboot(_SwitchFault):
    """The switch reboots: its ports are down, its tables are lost. It is up again when the fault is recovered.

    A warm reboot (SONiC) does not touch the data plane: the ports stay up and it forwards by its tables, while the CPU
    handles no ARP and no packet without a neighbour entry. When the fault is recovered the control plane restores its
    entries as stale, and requests each by broadcast: entries that are answered are confirmed, the others age out.
    """

    name: ClassVar[str] = "switch-reboot"
    warm: bool = False
    """True for a warm reboot."""

    def inject(self, lab: Lab, undo: ExitStack) -> None:
        switch = lab.switch(self.switch)
        if self.warm:
            undo.callback(switch.change_cpu(out=True))
            undo.callback(switch.restart)  # before the CPU is back, which does what is overdue
            return
        for port in switch.interfaces.values():
            undo.callback(port.hold_down())
        switch.clear_arp()
        switch.clear_nd()
        switch.clear_fdb()

    def verify(self, lab: Lab) -> Verified | None:
        switch = lab.switch(self.switch)
        if self.warm:
            up = sum(port.is_up for port in switch.interfaces.values())
            return {"cpu": "out", "ports_up": up} if up and switch.cpu()["out"] else None
        down = not any(port.is_up for port in switch.interfaces.values())
        forgotten = not switch.arp_table() and not switch.nd_table()
        return {"ports_down": len(switch.interfaces)} if down and forgotten else None


class ArpEntryCorrupt(_SwitchFault):
    """The data plane has another MAC for an address than the control plane (SONiC: kernel and
    ASIC disagree).

    The entry stays wrong until the control plane writes it again: when the owner's MAC changes, or the entry is
    cleared.
    """

    name: ClassVar[str] = "arp-entry-corrupt"
    holds: ClassVar[bool] = False
    ip: Address
    """An address with an entry in the switch."""
    mac: Mac = "02:00:00:00:00:bd"
    """The MAC in the data plane."""

    def inject(self, lab: Lab, undo: ExitStack) -> None:
        switch = lab.switch(self.switch)
        if switch.neighbour(self.ip) is None:
            raise InputError(f"fault {self}: {switch} has no entry for {self.ip}")
        entry = _entry(switch, self.ip)
        if entry is None:
            raise InputError(f"fault {self}: the kernel of {switch} has no entry for {self.ip}")
        undo.callback(self._write, lab, switch, entry.index)
        switch.kernel.set_neighbour(entry.index, self.ip, self.mac)

    def _write(self, lab: Lab, switch: Switch, index: int) -> None:
        if right := switch.neighbour(self.ip):
            switch.kernel.set_neighbour(index, self.ip, right)

    def verify(self, lab: Lab) -> Verified | None:
        entry = _entry(lab.switch(self.switch), self.ip)
        return {"data_plane_mac": self.mac} if entry and entry.mac == self.mac else None


def _entry(switch: Switch, ip: IPAddress) -> Neighbour | None:
    """The entry by which the switch's kernel forwards; None if it has none for the address."""
    return next((entry for entry in switch.kernel.neighbours(ip.version) if entry.ip == ip), None)


class FdbFlush(_SwitchFault):
    """The switch forgets a MAC address; frames to it are unknown unicast until its owner sends something."""

    name: ClassVar[str] = "fdb-flush"
    holds: ClassVar[bool] = False
    host: str
    """The host that owns the forgotten MAC."""
    interface: str = "eth1"
    """The host's interface."""

    def inject(self, lab: Lab, undo: ExitStack) -> None:
        undo.callback(lab.scheduler.wait, lambda: self.verify(lab) is None, 1.0)
        undo.callback(lab.host(self.host)[self.interface].teach)
        lab.switch(self.switch).clear_fdb(mac=self._mac(lab))

    def verify(self, lab: Lab) -> Verified | None:
        table = lab.switch(self.switch).fdb_table()
        return None if self._mac(lab) in table else {"missing": self._mac(lab)}

    def _mac(self, lab: Lab) -> str:
        return lab.host(self.host)[self.interface].mac


class FdbWrongPort(_SwitchFault):
    """A static MAC entry points to the wrong port; frames to the host are sent there and lost.

    The entry is sticky: frames from the host do not move it (bridge(8); br_fdb_update).
    """

    name: ClassVar[str] = "fdb-wrong-port"
    host: str
    """The host that owns the MAC."""
    port: str
    """The wrong port."""
    interface: str = "eth1"
    """The host's interface."""

    def inject(self, lab: Lab, undo: ExitStack) -> None:
        switch, nic = lab.switch(self.switch), lab.host(self.host)[self.interface]
        attached = nic.peer.plan if nic.peer and nic.peer.node is switch else None
        vlan = attached.vlan if attached else None
        at = (nic.mac, "dev", self.port, "master", *(("vlan", str(vlan)) if vlan else ()))
        there = switch[self.port].plan
        if vlan and there and vlan not in (there.vlan, *there.trunk):
            raise InputError(f"fault {self}: the MAC is in VLAN {vlan}, and {switch}:{self.port} is not")
        switch.run("bridge", "fdb", "replace", *at, "static", "sticky")
        undo.callback(nic.teach)
        undo.callback(lambda: self.verify(lab) and switch.run("bridge", "fdb", "delete", *at))

    def verify(self, lab: Lab) -> Verified | None:
        switch, mac = lab.switch(self.switch), lab.host(self.host)[self.interface].mac
        shown = switch.run("bridge", "fdb", "show", "dev", switch[self.port].name).stdout
        found = any(line.startswith(mac) and " static" in line for line in shown.splitlines())
        return {"static_entry": f"{mac} on {self.port}"} if found else None
