"""Labs in which something goes wrong, drawn by a seed: what, where, in which job, and when. What is right is known."""

import json
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

BLIND = Path(__file__).with_name("blind")
HEALTHY = "healthy"
HOSTS = ["h1", "h2", "h3", "h4"]
PORTS = {"h1": "leaf1:e1", "h2": "leaf1:e2", "h3": "leaf2:e1", "h4": "leaf2:e2"}
IPS = {"h1": "10.0.10.2", "h2": "10.0.10.3", "h3": "10.0.20.2", "h4": "10.0.20.3"}
SPARES = {"leaf1": "spare1", "leaf2": "spare2"}
UPLINKS = {leaf: [f"{leaf}:u1", f"{leaf}:u2"] for leaf in SPARES}


class Blind(NamedTuple):
    """A lab. `causes` are those that are right, `places` the links, ranks or switches of which one has to be named; no
    places where nothing is wrong."""

    name: str
    topology: str
    case: dict[str, Any]
    causes: frozenset[str]
    places: frozenset[str] = frozenset()

    def write(self, directory: Path) -> Path:
        """Make the scenario of the lab in a directory."""
        directory.mkdir(parents=True)
        for name in "scenario.py", "job.py":
            shutil.copy(BLIND / name, directory / name)
        shutil.copy(BLIND / self.topology, directory / "topology.clab.yml")
        (directory / "case.json").write_text(json.dumps(self.case))
        return directory

    def has(self, found: dict[str, Any]) -> bool:
        """Return whether a finding of `testbed diagnose --json` is right."""
        named = {found["link"], *(f"rank {one['rank']}" for one in found["ranks"])}
        in_words = any(place in found["text"] for place in self.places if place in SPARES)
        return found["cause"] in self.causes and (not self.places or in_words or not named.isdisjoint(self.places))


class Draw:
    """What is drawn for a lab."""

    def __init__(self, seed: str) -> None:
        self._random = random.Random(seed)  # noqa: S311
        self.host = self.one(HOSTS)
        self.rank = HOSTS.index(self.host)
        self.port = PORTS[self.host]
        self.leaf = self.port.partition(":")[0]
        self.after = self.one([2, 3, 5])

    def one(self, of: list[Any]) -> Any:
        return self._random.choice(of)

    def lab(self, name: str, causes: str, places: list[str], *faults: dict[str, Any], **more: Any) -> Blind:
        """Return a lab with a job in which something happens after some steps."""
        topology = more.pop("topology", "lossless.clab.yml" if more.get("lossless") else "topology.clab.yml")
        pattern = more.pop("pattern", None) or self.one(["allreduce", "alltoall", "uneven", "checkpoint"])
        case = {"after": self.after, "faults": list(faults), "pattern": pattern, **more}
        return Blind(name, topology, case, frozenset(causes.split()), frozenset(places))

    @property
    def link(self) -> str:
        return f"{self.port} - {self.host}:eth1"

    @property
    def here(self) -> list[str]:
        """The link of the host, and its rank."""
        return [self.link, f"rank {self.rank}"]


def fault(name: str, **parameters: Any) -> dict[str, Any]:
    return {"fault": name, **parameters}


def uplinks(leaf: str) -> list[str]:
    return [f"{port} - spine{number}:d{leaf[-1]}" for number, port in enumerate(UPLINKS[leaf], 1)]


def link_down(d: Draw) -> Blind:
    return d.lab("a port goes down", "link-down", d.here, fault("link-down", end=d.port))


def nic_down(d: Draw) -> Blind:
    return d.lab("a NIC goes down", "nic-down", d.here, fault("nic-down", end=f"{d.host}:eth1"))


def link_flap(d: Draw) -> Blind:
    return d.lab(
        "a port is down for too long", "link-flap link-down", d.here, fault("link-down", end=d.port, lasting=8.0)
    )


def loss_to_a_host(d: Draw) -> Blind:
    loss = d.one([3, 5, 8])
    return d.lab("loss towards a host", "lossy-link silent-drop", d.here, fault("link-loss", end=d.port, loss=loss))


def loss_from_a_host(d: Draw) -> Blind:
    lost = fault("link-loss", end=f"{d.host}:eth1", loss=d.one([3, 5, 8]))
    return d.lab("loss from a host", "lossy-link silent-drop", [*d.here, d.leaf], lost)


def loss_of_all(d: Draw) -> Blind:
    lost = fault("link-loss", end=d.port, loss=100)
    return d.lab("nothing reaches a host", "lossy-link silent-drop", d.here, lost)


def loss_on_uplinks(d: Draw) -> Blind:
    lost = [fault("link-loss", end=end, loss=d.one([4, 8])) for end in UPLINKS[d.leaf]]
    places = [d.leaf, *uplinks(d.leaf)]
    return d.lab("loss between switches", "lossy-link silent-drop", places, *lost)


def corruption(d: Draw) -> Blind:
    bad = fault("link-corrupt", end=d.port, corrupt=d.one([1, 2, 4]))
    return d.lab("damaged packets", "corruption", d.here, bad)


def slow_link(d: Draw) -> Blind:
    rate = d.one([8_000_000, 12_000_000, 20_000_000])
    end = d.one([d.port, f"{d.host}:eth1"])
    return d.lab("a slow link", "slow-link", d.here, fault("link-rate", end=end, rate=rate))


def short_queue(d: Draw) -> Blind:
    cut = fault("queue-too-small", end="leaf1:e1", queue=d.one([2, 3, 4]))
    places = ["rank 0", "leaf1:e1 - h1:eth1"]
    return d.lab("a short queue", "lossy-link congested-link", places, cut, pattern="gather", after=1)


def mtu_of_a_port(d: Draw) -> Blind:
    return d.lab("the MTU of a port", "mtu-mismatch", d.here, fault("link-mtu", end=d.port, mtu=1000))


def mtu_of_uplinks(d: Draw) -> Blind:
    cut = [fault("link-mtu", end=end, mtu=1000) for end in UPLINKS[d.leaf]]
    return d.lab("the MTU of uplinks", "mtu-mismatch", uplinks(d.leaf), *cut)


def narrow_uplinks(d: Draw) -> Blind:
    ends = [end.split(":") for link in uplinks(d.leaf) for end in link.split(" - ")]
    cut = [[node, "ip", "link", "set", port, "mtu", "1000"] for node, port in ends]
    return d.lab("the MTU of uplinks, at both ends", "mtu-mismatch", uplinks(d.leaf), commands=cut)


def duplicate_ip(d: Draw) -> Blind:
    spare = SPARES[d.leaf]
    twice = fault("duplicate-ip", host=spare, ip=IPS[d.host])
    announced = [[spare, "arping", "-A", "-c", "1", "-I", "eth1", IPS[d.host]]]
    return d.lab("an address on two hosts", "duplicate-ip", d.here, twice, commands=announced)


def poisoned(d: Draw) -> Blind:
    bad = fault("arp-poison", host=SPARES[d.leaf], ip=IPS[d.host], switch=d.leaf)
    return d.lab("another host's MAC for an address", "stale-neighbour", d.here, bad)


def asic(d: Draw) -> Blind:
    bad = fault("arp-entry-corrupt", switch=d.leaf, ip=IPS[d.host])
    return d.lab("the ASIC has another MAC", "asic-differs", d.here, bad)


def wrong_port(d: Draw) -> Blind:
    bad = fault("fdb-wrong-port", switch=d.leaf, host=d.host, port="e3")
    return d.lab("a MAC on another port", "wrong-port", d.here, bad)


def pause_storm(d: Draw) -> Blind:
    bad = fault("pause-storm", end=f"{d.host}:eth1", priority=3)
    return d.lab("a pause storm", "pause-storm", d.here, bad, lossless=True)


def slow_receiver(d: Draw) -> Blind:
    bad = fault("slow-receiver", end=f"{d.host}:eth1", rate=d.one([4_000_000, 8_000_000]))
    return d.lab("a slow receiver", "paused", d.here, bad, lossless=True, pattern=d.one(["allreduce", "uneven"]))


def lossless_drop(d: Draw) -> Blind:
    bad = [fault("pause-not-sent", end=end) for end in UPLINKS["leaf1"]]
    places = ["rank 0", "leaf1:e1 - h1:eth1"]
    return d.lab("PFC is off at a switch", "lossless-drop", places, *bad, lossless=True, pattern="gather", after=1)


def wrong_gid(d: Draw) -> Blind:
    address = [[d.host, "ip", "addr", "add", "192.168.77.3/24", "dev", "eth1"]]
    index = ["--variable", f"{d.rank}:UCX_IB_GID_INDEX=2"]
    d.after = 0
    return d.lab("a wrong GID", "wrong-gid", d.here, commands=address, options=index)


def management(d: Draw) -> Blind:
    rules = "add table inet x; add chain inet x i { type filter hook input priority 0; }"
    drop = "add rule inet x i iifname mgmt0 meta l4proto tcp drop"
    commands = [[d.host, "nft", f"{rules}; {drop}"]]
    return d.lab("the management network", "metadata-network", [f"rank {d.rank}"], commands=commands, limit=1200)


def no_path(d: Draw) -> Blind:
    places = [f"{host}:eth{number}" for host, number in zip(HOSTS, d.one([[1, 1, 2, 2], [1, 2, 1, 2]]), strict=True)]
    ranks = [f"rank {rank}" for rank in range(4)]
    return d.lab("two rails without a path", "no-route", ranks, hosts=places, topology="rails.clab.yml", after=0)


def host_route_gone(d: Draw) -> Blind:
    commands = [[d.host, "ip", "route", "del", "default"]]
    return d.lab("a host loses its route", "no-route", d.here, commands=commands)


def wrong_gateway(d: Draw) -> Blind:
    nobody = IPS[d.host].rpartition(".")[0] + ".99"
    commands = [[d.host, "ip", "route", "replace", "default", "via", nobody]]
    return d.lab("a host gets a wrong gateway", "no-route", d.here, commands=commands)


def blackhole(d: Draw) -> Blind:
    other = next(leaf for leaf in SPARES if leaf != d.leaf)
    commands = [[other, "ip", "route", "add", "blackhole", f"{IPS[d.host]}/32"]]
    return d.lab("a switch drops what is for a host", "no-route", [other, *d.here], commands=commands)


def spine_drops(d: Draw) -> Blind:
    spine, network = d.one(["spine1", "spine2"]), IPS[d.host].rpartition(".")[0] + ".0/24"
    commands = [[spine, "ip", "route", "add", "unreachable", network]]
    leaf_ports = [f"rank {rank}" for rank, host in enumerate(HOSTS) if PORTS[host].startswith(d.leaf)]
    return d.lab("a spine drops what is for a leaf", "no-route", [*leaf_ports], commands=commands)


def host_mtu(d: Draw) -> Blind:
    commands = [[d.host, "ip", "link", "set", "eth1", "mtu", "1000"]]
    return d.lab("the MTU of a host", "mtu-mismatch", d.here, commands=commands)


def svi_down(d: Draw) -> Blind:
    commands = [[d.leaf, "ip", "link", "set", f"vlan{IPS[d.host].split('.')[2]}", "down"]]
    return d.lab("a gateway goes down", "no-route", [d.leaf, *d.here], commands=commands)


def mistake(d: Draw, name: str, what: str, causes: str, **more: Any) -> Blind:
    options = ["--mistake", f"{d.rank}:{d.after}:{what}"]
    return d.lab(name, causes, [f"rank {d.rank}"], options=options, **more)


def rank_dies(d: Draw) -> Blind:
    return mistake(d, "a rank is killed", "die", "rank-died")


def rank_hangs(d: Draw) -> Blind:
    return mistake(d, "a rank hangs", "hang", "rank-hangs")


def rank_is_slow(d: Draw) -> Blind:
    return mistake(d, "a rank computes slowly", "slow", "slow-rank", pattern=d.one(["allreduce", "alltoall"]))


def other_collective(d: Draw) -> Blind:
    return mistake(d, "another collective", "other-collective", "collective-mismatch", pattern="allreduce")


def waits_in_a_circle(d: Draw) -> Blind:
    return mistake(d, "a receive that nobody sends to", "receive", "deadlock")


KINDS: list[Callable[[Draw], Blind]] = [
    link_down, nic_down, link_flap, loss_to_a_host, loss_from_a_host, loss_of_all, loss_on_uplinks, corruption,
    slow_link, short_queue, mtu_of_a_port, mtu_of_uplinks, narrow_uplinks, duplicate_ip, poisoned, asic, wrong_port,
    pause_storm, slow_receiver, lossless_drop, wrong_gid, management, no_path, host_route_gone, wrong_gateway,
    blackhole, spine_drops, host_mtu, svi_down, rank_dies, rank_hangs, rank_is_slow, other_collective,
    waits_in_a_circle,
]  # fmt: skip


def broken(seed: int, count: int) -> Iterator[Blind]:
    """Yield labs with a fault: each kind once, in a drawn order, then again with other draws."""
    order = random.Random(seed)  # noqa: S311
    for round_ in range(count):
        kinds = order.sample(KINDS, len(KINDS))
        for kind in kinds[: count - round_ * len(KINDS)]:
            yield kind(Draw(f"{seed} {round_} {kind.__name__}"))
        if (round_ + 1) * len(KINDS) >= count:
            return


def sound(seed: int, count: int) -> Iterator[Blind]:
    """Yield labs without a fault: jobs that compute unevenly, save checkpoints, wait, and use a lossless class."""
    for number in range(count):
        d = Draw(f"{seed} sound {number}")
        pattern = ["allreduce", "alltoall", "pipeline", "uneven", "checkpoint"][number % 5]
        options = ["--bytes", str(d.one([20_000, 100_000, 200_000])), "--computes", str(d.one([0.02, 0.05, 0.2]))]
        faults = [fault("link-down", end=d.one(UPLINKS[d.leaf]), lasting=1.0)] if number % 7 == 6 else []
        yield d.lab(
            f"sound: {pattern}", HEALTHY, [], *faults, pattern=pattern, options=options, lossless=number % 3 == 2
        )
