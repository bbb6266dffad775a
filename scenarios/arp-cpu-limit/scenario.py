"""See the docstring of ArpCpuLimit, or `testbed describe arp-cpu-limit`."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address

from pydantic import Field

from testbed import Parameters, Run, Scenario, Variant
from testbed.lab import Host
from testbed.switch.profile import Profile, profile

NODES = ("node1", "node2", "node3", "node4")
PODS = 16
"""On each node."""
DISCARD = 9
"""The port of RFC 863."""
RTR_S = 1.0
"""The kernel asks for the gateway's MAC for so long before modify to RTR fails (rdma_addr_find_l2_eth_by_grh)."""
GIVEN_UP_S = 3.0
"""Linux asks three times, a second apart (mcast_solicit, retrans_time)."""


class Settings(Parameters):
    pps: int = Field(20, ge=1, description="ARP packets a second that reach the leaf's CPU, with a burst of a second's")
    wave: int = Field(len(NODES) * PODS, ge=1, description="pods that start at once; the next ones a second later")


@dataclass(frozen=True)
class Pod:
    node: Host
    interface: str
    ip: IPv4Address


class ArpCpuLimit(Scenario):
    """
    All pods of a rack start at once, and the switch's CPU hears only some of their ARP requests.

    A switch protects its CPU: control-plane policing lets so many ARP packets a second pass and drops the rest, without
    telling the sender. 600 a second is SONiC's default; a hardened configuration, or one made for an office floor, has
    20. After a restart 64 pods ask for their gateway in the same moment. Linux asks again after a second, and once
    more, all in the same moment again, so that with 20 a second a third of the pods gets through at each go, and the
    last ones give up. A queue pair waits for a second at most, so its connection fails although the gateway is well.

    The pods are macvlan children with an address and a MAC of their own, 16 on each of four nodes, and the node's
    kernel asks for each of them. They are in their node's namespace, not in one each, and they do no RDMA: that do the
    four nodes, which connect to the client one after the other from the moment of the start.

    On real gear: the drops of control-plane policing in the class with ARP (`show policy-map interface control-plane`
    on NX-OS) grew at the time of the start, and only then; `ip neigh` on the nodes has the gateway FAILED; modify to
    RTR fails with ETIMEDOUT. It works an hour later, when somebody looks.

    The cures: a limit for what is attached (SONiC's default is enough here), or starts that are spread over time.
    """

    title = "A restart storm meets the ARP limit of the switch's CPU"
    tags = ("arp", "kubernetes", "switch")
    parameters = Settings
    variants = (
        Variant("as-is", "fault", "20 ARP packets a second reach the CPU, 64 pods start at once"),
        Variant("default-limit", "healthy", "600 a second, SONiC's default", {"pps": 600}),
        Variant("staggered", "healthy", "20 a second, and 16 pods start a second", {"wave": 16}),
    )

    def profiles(self, parameters: Settings) -> Mapping[str, Profile]:
        return {"leaf": profile("sonic").replace(arp_pps=parameters.pps)}

    def run(self, run: Run, p: Settings) -> None:
        client, nodes = run.lab.host("client"), [run.lab.host(name) for name in NODES]
        pods = [pod for node in nodes for pod in make_pods(node)]
        run.sleep(1, "a second's burst is saved up")

        with run.step("the pods start"):
            began, started = run.log.now, {}
            for number, pod in enumerate(pods):
                if number and not number % p.wave:
                    run.sleep(1, "the next wave")
                started[str(pod.ip)] = run.log.now
                ask_for_gateway(pod)

        with run.step("the nodes connect to the client"):
            statuses = [run.write(node, client) for node in nodes]
            run.sleep(GIVEN_UP_S, "the last pods have asked their last time")

        learned = {event["data"]["ip"]: event["t"] for event in run.log.find("arp.learned", vlan=20)}
        heard = {ip: (learned[ip] - at) / 1e9 for ip, at in started.items() if ip in learned}
        in_time = sum(after < RTR_S for after in heard.values())
        last_s = max(((learned[ip] - began) / 1e9 for ip in heard), default=None)
        connected = statuses.count("SUCCESS")
        run.note(in_time=f"{in_time} of {len(pods)}", late=len(heard) - in_time, never=len(pods) - len(heard))
        run.note(last_ready_s=last_s and round(last_s, 2), connections=f"{connected} of {len(nodes)}")
        dropped = bool(run.log.find("arp.limited", reason="arp-rate"))
        if connected == len(nodes) and in_time == len(pods):
            run.observe("healthy", "all pods reach their gateway at once, all nodes are connected")
            run.expect("the limit dropped ARP", dropped, False)
        else:
            run.observe("fault", f"{len(pods) - in_time} pods are late, {len(nodes) - connected} nodes not connected")
            run.expect("the limit dropped ARP", dropped, True)
            run.expect("nodes without a connection", connected, lambda number: number < len(nodes))
            run.expect("they have no MAC for their gateway", set(statuses) - {"SUCCESS"}, {"ETIMEDOUT"})
            run.expect("pods in time: the burst of a second", in_time, lambda number: p.pps <= number <= p.pps + 2)


def make_pods(node: Host) -> list[Pod]:
    """Interfaces with an address and a MAC each, which speak for themselves only."""
    node.sysctl("net/ipv4/conf/all/arp_ignore", 1)
    node.sysctl("net/ipv4/conf/all/arp_announce", 2)
    network, first = node.addresses["eth1"].network, 20 * int(node.name.removeprefix("node"))
    pods = [Pod(node, f"pod{number + 1}", network[first + number]) for number in range(PODS)]
    commands = [
        command
        for pod in pods
        for command in (
            f"link add {pod.interface} link eth1 type macvlan mode bridge",
            f"address add {pod.ip}/{network.prefixlen} dev {pod.interface}",
            f"link set {pod.interface} up",
        )
    ]
    node.run("ip", "-batch", "-", text="\n".join(commands))
    return pods


def ask_for_gateway(pod: Pod) -> None:
    """Sends the gateway something, for which the kernel has to ask for its MAC."""
    gateway = str(pod.node.gateway("eth1"))
    with pod.node.entered(), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        udp.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, pod.interface.encode())
        udp.sendto(b"", (gateway, DISCARD))
