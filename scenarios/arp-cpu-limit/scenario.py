import socket

from testbed import Field, HostInterface, IPAddress, Parameters, Profile, Run, Scenario, Variant, profile

NODES = ("node1", "node2", "node3", "node4")
PODS = 16
"""On each node."""


class Settings(Parameters):
    pps: int = Field(20, ge=1, description="ARP packets a second that reach the leaf's CPU, with a burst of a second's")
    wave: int = Field(len(NODES) * PODS, ge=1, description="pods that start at once; the next ones a second later")


class ArpCpuLimit(Scenario[Settings]):
    """A restart storm meets the ARP limit of the switch's CPU.

    Control-plane policing passes a limited number of ARP packets per second to the switch's CPU and silently drops the
    rest. SONiC's default is 600; a hardened configuration, or one for an office floor, has 20. After a restart 64 pods
    of a rack ask for their gateway in the same moment. Linux asks again after a second, and once more, for all pods in
    the same moment again. With 20 a second a third of them gets through each time, and the last ones give up. A queue
    pair waits for a second at most, so its connection fails although the gateway works.

    The pods are macvlan children with their own address and MAC, 16 on each of four nodes, in their node's namespace.
    They do no RDMA. The nodes do: they connect to the client one after the other, from the start on.

    On real gear: the drops of control-plane policing in the class with ARP (`show policy-map interface control-plane`
    on NX-OS) grew at the time of the start, and only then. `ip neigh` on the nodes has the gateway FAILED; modify to
    RTR fails with ETIMEDOUT. An hour later, when somebody checks, it works.

    The fixes: a limit that fits the attached pods (SONiC's default is enough here), or starts that are spread over
    time.
    """

    tags = ("arp", "kubernetes", "switch")
    variants = (
        Variant("as-is", "fault", "20 ARP packets a second reach the CPU, 64 pods start at once"),
        Variant("default-limit", "healthy", "600 a second, SONiC's default", {"pps": 600}),
        Variant("staggered", "healthy", "20 a second, and 16 pods start a second", {"wave": 16}),
    )

    def profiles(self, p: Settings) -> dict[str, Profile]:
        return {"leaf": profile("sonic").replace(arp_pps=p.pps)}

    def run(self, run: Run, p: Settings) -> None:
        client, *nodes = run.nics("client", *NODES)
        pods = [(nic, *pod) for number, nic in enumerate(nodes, 1) for pod in make_pods(nic, 20 * number).items()]
        run.sleep(1, "a second's burst is saved up")

        with run.step("the pods start"):
            began, started = run.now, {}
            for number, (nic, name, ip) in enumerate(pods):
                if number and not number % p.wave:
                    run.sleep(1, "the next wave")
                started[str(ip)] = run.now
                ask_for_gateway(nic, name)

        with run.step("the nodes connect to the client"):
            statuses = [run.write(nic, client) for nic in nodes]
            run.sleep(3, "the last pods have asked their last time")  # thrice, a second apart (mcast_solicit)

        learned = {event["data"]["ip"]: event["t"] / 1e9 for event in run.events("arp.learned", vlan=20)}
        heard = {ip: learned[ip] - at for ip, at in started.items() if ip in learned}
        in_time = sum(after < 1 for after in heard.values())  # RTR waits for so long (rdma_addr_find_l2_eth_by_grh)
        last_s = max((round(learned[ip] - began, 2) for ip in heard), default=None)
        connected = statuses.count("SUCCESS")
        run.note(in_time=f"{in_time} of {len(pods)}", late=len(heard) - in_time, never=len(pods) - len(heard))
        run.note(last_ready_s=last_s, connections=f"{connected} of {len(nodes)}")
        well = connected == len(nodes) and in_time == len(pods)
        run.expect("the limit dropped ARP", bool(run.events("arp.limited", reason="arp-rate")), not well)
        if well:
            run.observe("healthy", "all pods reach their gateway at once, all nodes are connected")
        else:
            run.observe("fault", f"{len(pods) - in_time} pods are late, {len(nodes) - connected} nodes not connected")
            run.expect("nodes without a connection", connected, lambda number: number < len(nodes))
            run.expect("they have no MAC for their gateway", set(statuses) - {"SUCCESS"}, {"ETIMEDOUT"})
            run.expect("pods in time: the burst of a second", in_time, lambda number: p.pps <= number <= p.pps + 2)


def make_pods(nic: HostInterface, first: int) -> dict[str, IPAddress]:
    """Makes interfaces with an address (from the `first` of the subnet on) and a MAC each, which answer ARP for
    themselves only. Returns the addresses by the interfaces' names."""
    nic.node.sysctl("net/ipv4/conf/all/arp_ignore", 1)
    nic.node.sysctl("net/ipv4/conf/all/arp_announce", 2)
    network = nic.address().network
    pods: dict[str, IPAddress] = {f"pod{number + 1}": network[first + number] for number in range(PODS)}
    lines = (
        f"link add {name} link {nic.name} type macvlan mode bridge\n"
        f"address add {ip}/{network.prefixlen} dev {name}\n"
        f"link set {name} up\n"
        for name, ip in pods.items()
    )
    nic.node.run("ip", "-batch", "-", text="".join(lines))
    return pods


def ask_for_gateway(nic: HostInterface, pod: str) -> None:
    """Sends the gateway something from a pod's interface, for which the kernel has to ask for the gateway's MAC."""
    with nic.node.entered(), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        udp.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, pod.encode())
        udp.sendto(b"", (str(nic.gateway()), 9))  # discard (RFC 863)
