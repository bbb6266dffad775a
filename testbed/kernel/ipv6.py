"""
IPv6 with planned addresses: no discovery, no random values, no reports.

- A planned address is used at once, without duplicate address detection: the planner ensures that it is unique. For
  an address that a program adds, detection takes a second as usual (RFC 4862).
- Routers are neither solicited nor accepted: routes are planned too.
- The link-local address follows from the MAC. It is set here, as the kernel would run duplicate detection first.
- Multicast memberships are not reported (MLD): the kernel reports after random delays, and no bridge here snoops.

On nodes whose addresses are not planned (`enable_node`) the kernel makes link-local addresses as in containers. They
are used at once too, as is an address that a program adds there.
"""

from ipaddress import IPv6Interface

from testbed.kernel import nftables, sysctl
from testbed.kernel.rtnetlink import Rtnetlink
from testbed.topology import link_local

CONF = "net/ipv6/conf"
ADDR_GEN_MODE_NONE = 1
SYSCTLS = {"addr_gen_mode": ADDR_GEN_MODE_NONE, "accept_ra": 0, "disable_ipv6": 0}
ROUTER = {"accept_dad": 0, "accept_ra": 0, "disable_ipv6": 0}
NO_REPORTS = """
destroy table ip6 quiet
table ip6 quiet {
    chain output {
        type filter hook output priority 0;
        icmpv6 type { mld-listener-report, mld-listener-done, mld2-listener-report } drop;
    }
}
"""


def enable(kernel: Rtnetlink, interface: str, mac: str) -> None:
    """Enable IPv6 on an interface and on `lo`. The calling thread and `kernel` are in its namespace."""
    nftables.run(NO_REPORTS)
    _switch_on(interface, SYSCTLS)
    kernel.set_address(kernel.index(interface), IPv6Interface((link_local(mac), 64)))


def enable_node() -> None:
    """Enable IPv6 for future interfaces of the calling thread's namespace. The kernel makes their link-local addresses
    from their MACs each time they are set up."""
    nftables.run(NO_REPORTS)
    for name in "all", "default", "lo":
        sysctl.write_all(f"{CONF}/{name}", ROUTER)


def enable_router_port(interface: str) -> None:
    """Enable IPv6 on a router's interface in this namespace that uses only its link-local address. The kernel makes
    that address each time the interface is set up, and discovers the neighbour."""
    _switch_on(interface, ROUTER)


def _switch_on(interface: str, sysctls: dict[str, int]) -> None:
    sysctl.write(f"{CONF}/lo/disable_ipv6", 0)
    sysctl.write_all(f"{CONF}/{interface}", sysctls)
