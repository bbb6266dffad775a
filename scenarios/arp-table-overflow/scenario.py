import errno
import socket
from contextlib import ExitStack

from testbed import Field, HostInterface, IPAddress, Parameters, ProfileName, Run, Scenario, Variant
from testbed.faults import ArpCapacity

NODES = ("node1", "node2", "node3", "node4")
PODS = 3
"""On each node, beside its own address."""
ADDRESSES = len(NODES) * (PODS + 1)
NEEDED = ADDRESSES + 1
"""Entries: the client's comes on top."""


class Settings(Parameters):
    profile: ProfileName = Field("cisco-nxos", description="ARP and FDB profile of the leaf switch")
    capacity: int = Field(12, ge=1, description="entries that the leaf's ARP table holds")
    sweep: tuple[int, ...] = Field((), description="capacities to try first; the smallest that holds all is taken")


class ArpTableOverflow(Scenario[Settings]):
    """There are more addresses behind a switch than its ARP table holds.

    Sixteen addresses in one VLAN, four nodes with three pods each: each additional node fills the table, until it
    refuses an entry. Addresses with an entry work, later ones cannot be reached, and after every restart these are
    different ones. The client needs an entry as well, for the answers, so a table for 16 is too small by one. Tables
    are smaller than in the data sheet if other features share them: host routes, IPv6, an ASIC profile that favours
    MACs.

    Each address is tried with TCP, each node's own with an RDMA connection as well. Pods are further addresses of their
    node's interface here, as behind ipvlan: a switch sees no difference.

    On real gear: one log line ("neighbor table overflow" on Linux); SONiC's `crm show resources all` has ipv4_neighbor
    used and available. The missing entries are not in `show ip arp`, or they are in it but not in the hardware. New
    pods fail, old ones work.

    The fixes: a table that holds all entries, here found by trials; or fewer addresses in it (a route for each node's
    pods instead of an entry for each pod). If the switch evicts the oldest entry instead of refusing the new one, all
    addresses stay reachable, but each eviction costs a resolution by its CPU.
    """

    tags = ("arp", "kubernetes", "switch")
    variants = (
        Variant("as-is", "fault", "12 entries for 17 addresses, what does not fit is refused"),
        Variant("one-too-small", "fault", "16 entries: as many as there are behind it", {"capacity": 16}),
        Variant("evict", "healthy", "12 entries, SONiC evicts the oldest one", {"profile": "sonic"}),
        Variant("knee", "healthy", "the smallest table that holds all is found", {"sweep": (8, 12, 15, 16, 17, 18)}),
    )

    def run(self, run: Run, p: Settings) -> None:
        leaf, (client, *nodes) = run.lab.switch("leaf"), run.nics("client", *NODES)
        addresses = [ip for number, nic in enumerate(nodes, 1) for ip in start_pods(nic, 10 * number)]
        capacity = p.capacity

        if p.sweep:
            with run.step("tables of several sizes are tried"):
                found = {size: reached(run, size, addresses) for size in p.sweep}
                run.note(reached_by_capacity=", ".join(f"{size}: {count}" for size, count in found.items()))
                capacity = min((size for size, count in found.items() if count == ADDRESSES), default=p.capacity)
                run.note(knee=capacity)
                run.expect("the smallest table with which all are reached", capacity, NEEDED)
                run.expect("what a table holds but for the client", found, {s: min(s - 1, ADDRESSES) for s in p.sweep})

        with run.step("all addresses are used"):
            count = reached(run, capacity, addresses)
        with run.step("the client connects to each node"), run.fault(ArpCapacity(switch="leaf", arp_cap=capacity)):
            statuses = [run.write(client, nic) for nic in nodes]
            used = len(leaf.arp_table())

        worked = [name for name, status in zip(NODES, statuses, strict=True) if status == "SUCCESS"]
        refused, evicted = len(run.events("arp.refused")), len(run.events("arp.evicted"))
        run.note(reached=f"{count} of {ADDRESSES}", connections=f"{len(worked)} of {len(nodes)}")
        run.note(entries=f"{used} of {capacity}", refused=refused, evicted=evicted)
        run.expect("entries that the table holds", used, lambda entries: entries <= capacity)
        if len(worked) == len(nodes) and count == ADDRESSES:
            run.observe("healthy", "all addresses are reached")
            run.expect("whether entries were evicted", evicted > 0, capacity < NEEDED)
        else:
            run.observe("fault", f"{ADDRESSES - count} addresses of {ADDRESSES} are not reached")
            run.expect("addresses that are reached: those that fit beside the client", count, capacity - 1)
            fitting = [name for number, name in enumerate(NODES, 1) if number * (PODS + 1) < capacity]
            run.expect("nodes that are reached: those that came first", worked, fitting)
            died = set(statuses) - {"SUCCESS"}
            run.expect("the others' work requests die of unanswered retries", died, {"RETRY_EXC_ERR"})
            run.expect("entries were refused", refused, lambda times: times > 0)


def start_pods(nic: HostInterface, first: int) -> list[IPAddress]:
    """Gives a node its pods' addresses, from the `first` of the subnet on. Returns them, and its own last."""
    own = nic.address()
    pods = [own.network[first + number] for number in range(PODS)]
    for ip in pods:
        nic.node.run("ip", "address", "add", f"{ip}/{own.network.prefixlen}", "dev", nic.name)
    return [*pods, own.ip]


def reached(run: Run, capacity: int, addresses: list[IPAddress]) -> int:
    """How many addresses answer the client when the switch starts with an empty table of that size: with a refusal, as
    nobody listens there."""
    client = run.lab.host("client")
    run.lab.switch("leaf").clear_arp()
    with run.fault(ArpCapacity(switch="leaf", arp_cap=capacity)), ExitStack() as stack:
        run.expect("the client has its entry first", client["eth1"].ping_gateway(), True)
        with client.entered():
            tcp = [stack.enter_context(socket.socket()) for _ in addresses]
        for connection, ip in zip(tcp, addresses, strict=True):
            connection.setblocking(False)
            connection.connect_ex((str(ip), 9))  # discard (RFC 863)
        # A SYN is sent again after 1 s and 3 s (RFC 6298).
        run.sleep(3.5, f"{len(addresses)} connections are tried over a table of {capacity}")
        answers = [connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) for connection in tcp]
        return answers.count(errno.ECONNREFUSED)
