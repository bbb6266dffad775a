"""The steps `mac` and `rp_filter`: settings of the pod."""

from collections.abc import Iterator
from contextlib import ExitStack

from testbed.cni.plugins.contract import Refusal
from testbed.cni.plugins.coordinator.nic import Nic
from testbed.cni.spec.codes import OWN
from testbed.kernel import rdma, sysctl
from testbed.topology import IPAddress

RP_FILTER = "net/ipv4/conf/all/rp_filter"


def mac_of(prefix: str, ip: IPAddress) -> str:
    """Return the MAC derived from an address: two bytes of prefix, and the last four of the address."""
    return f"{prefix}:{ip.packed[-4:].hex(':')}"


def _planned(nic: Nic) -> str | None:
    prefix = nic.settings.podMACPrefix
    return mac_of(prefix, nic.addresses[0].ip) if prefix and nic.addresses else None


def set_mac(nic: Nic, undo: ExitStack) -> None:
    mac = _planned(nic)
    if mac is None or mac == nic.mac:
        return
    with rdma.Rdma() as here:
        if nic.name in here.links():
            hint = "put coordinator before rxe in the list"
            raise Refusal(OWN, f"{nic.name} has an RDMA device, which does not survive a change of the MAC", hint)
    undo.callback(nic.kernel.set_link, nic.index, mac=nic.mac)
    nic.kernel.set_link(nic.index, mac=mac)
    nic.mac = mac


def check_mac(nic: Nic) -> Iterator[str]:
    mac = _planned(nic)
    if mac and mac != nic.mac:
        yield f"it has MAC {nic.mac}, not {mac}"


def set_rp_filter(nic: Nic, undo: ExitStack) -> None:
    if nic.settings.podRPFilter >= 0:
        undo.callback(sysctl.write, RP_FILTER, sysctl.read(RP_FILTER))
        sysctl.write(RP_FILTER, nic.settings.podRPFilter)


def check_rp_filter(nic: Nic) -> Iterator[str]:
    wanted, found = nic.settings.podRPFilter, sysctl.read(RP_FILTER)
    if wanted >= 0 and found != str(wanted):
        yield f"net.ipv4.conf.all.rp_filter is {found}, not {wanted}"
