"""Nothing in the lab of an incident tells what is wrong in it before its answer: it is looked for, and it is attacked.

What everybody can read, such as the documentation and the list of faults that there are, is no leak: it is the same
for all incidents.
"""

import asyncio
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from live import Live, wait_for
from mcp import Client
from test_mcp import over_stdio

from testbed.faults.catalogue import KINDS
from testbed.scenario.incident.drawing import Incident, draw
from testbed.scenario.incident.trouble import Broken, Trouble

PROGRAMS = Path(__file__).parent / "programs"
ATTACKS, QDISCS = PROGRAMS / "attacks.py", PROGRAMS / "qdiscs.py"
NODES = "gpu2", "launcher", "leaf1", "spine1", "store1"
"""Of each kind of node some."""
NUMBERS = range(200)
COMMANDS = (
    "tc -s qdisc show", "tc filter show", "tc class show", "tc -s -d qdisc show dev eth1", "tc action show",
    "ip -d -s -s link", "ip -d address", "ip route show table all", "ip rule", "ip -s neigh", "ip -d maddress",
    "ip nexthop", "ip netconf", "ip monitor all & sleep 1; kill $!", "ip netns", "ip -d tunnel", "ip xfrm policy",
    "bridge -d -s link", "bridge -s fdb", "bridge -d vlan", "bridge mdb", "nft list ruleset", "nft list hooks",
    "ss -aniep", "ss -xap", "rdma -d link", "rdma -d resource", "rdma statistic", "rdma -d dev", "ibv_devinfo -v",
    "for i in /sys/class/net/*; do ethtool -S ${i##*/}; ethtool -i ${i##*/}; ethtool -k ${i##*/}; done",
    "ps axfwwe", "ps axo pid,wchan,stat,cmd", "cat /proc/*/cmdline", "cat /proc/*/environ", "cat /proc/*/status",
    "cat /proc/*/mountinfo", "cat /proc/*/cgroup", "ls -la /proc/*/fd /proc/*/cwd", "env", "set", "mount", "df", "lsns",
    "sysctl -a", "dmesg", "lsmod", "bpftool -p net", "bpftool prog", "bpftool map dump name ends", "ls -laR /run /tmp",
    "ls -laR /root /home /var /mnt /dev /opt /srv", "ipcs -a", "hostname", "cat /proc/cmdline /proc/keys /proc/locks",
    "nstat -as", "cat /proc/net/*", "cat /proc/net/stat/*", "lsof", "fuser -v /run", "history", "crontab -l",
)  # fmt: skip
READ = """
import os
IMAGE, KERNEL = ("/usr", "/proc"), ("/sys/class/net", "/sys/devices/virtual", "/sys/module", "/sys/kernel/mm")
def files(top):
    for place, directories, names in os.walk(top):
        inside = [os.path.join(place, one) for one in directories]
        directories[:] = [one for one, path in zip(directories, inside) if one != "sys" and path not in IMAGE]
        yield from (os.path.join(place, name) for name in names)
for top in ("/", *KERNEL):
    for file in files(top):
        if os.path.isfile(file) and os.path.getsize(file) < 1 << 18:
            try:
                print("==", file, open(file, "rb").read(1 << 16))
            except OSError:
                pass
"""
"""A walk through all files of a node but those of the image, which are the same everywhere."""
READING = (
    ("inspect",), ("inspect", "-f", "json"), ("events",), ("events", "-f", "json"), ("logs",), ("top", "-n", "20"),
    ("tables", "leaf1"), ("tables", "leaf2"), ("metrics",), ("fault", "ps"), ("incident", "show"), ("ps", "-f", "json"),
    ("incident", "list"), ("save",), ("counters",), ("probe",), ("wait",), ("steps",), ("session",),
)  # fmt: skip
TOOLS: dict[str, dict[str, Any]] = {
    "labs": {}, "inspect": {}, "events": {}, "logs": {}, "counters": {}, "metrics": {}, "get": {},
    "topology": {}, "tables": {"switch": "leaf1"},
}  # fmt: skip
"""Without `diagnose`, which finds causes by what a cluster shows."""


def number_of(area: str, fits: Callable[[Trouble], bool]) -> Incident:
    """The first incident of an area and of the first level whose trouble is of a kind."""
    return next(found for one in NUMBERS if fits((found := draw(one, area, 1)).troubles[0]))  # type: ignore[arg-type]


def broken_by(fault: str) -> Callable[[Trouble], bool]:
    return lambda trouble: any(isinstance(act, Broken) and act.fault == fault for act in trouble.acts)


WAYS = {
    "a lossy link": number_of("fabric", broken_by("link-loss")),
    "a damaging link": number_of("fabric", broken_by("link-corrupt")),
    "a fault of addresses": number_of("arp", broken_by("arp-poison")),
    "a fault of a NIC": number_of("lossless", broken_by("pause-storm")),
    "a command": number_of("training", lambda trouble: "rank-hangs" in trouble.causes),
}
"""An incident of each way to break a lab."""
REFUSED = "ends with status 2"
"""In the log of events: an attempt of a test, which may have run before."""
OFTEN = "a damaging link"
"""The way that each test run tries."""


def secrets(incident: Incident) -> re.Pattern[str]:
    """The words of its solution: the story, the faults, the causes that are words of testbed's own, and how netem says
    it. Words that a cluster has itself, such as "blackhole", are none."""
    trouble = incident.troubles[0]
    words = {trouble.story, *KINDS, *(cause for cause in trouble.causes if "-" in cause), "SecretInjection", "Broken("}
    words |= {f"draw({incident.number}", *(hint for hint in trouble.hints)}
    for act in trouble.acts:
        if isinstance(act, Broken):
            words |= {f"{name} {value}%" for name, value in act.parameters.items() if isinstance(value, int)}
    return re.compile("|".join(map(re.escape, sorted(words))))


class Sealed:
    """An incident, and the commands of who works on it."""

    def __init__(self, user: Live, incident: Incident) -> None:
        self.user = user
        self.incident = incident
        self.secrets = secrets(incident)
        words = ["--seed", f"{incident.number}", "--area", incident.area, "--level", f"{incident.level}"]
        done = user("incident", "new", *words, "--name", "sealed")
        assert done.status == 0, done.err

    def run(self, node: str, command: str, given: str | None = None) -> str:
        words = ["exec", *(["-i"] if given else []), node, "--", "sh", "-c", command]
        done = self.user(*words, given=given.encode() if given else None)
        return done.out + done.err

    def leaks(self, text: str) -> list[str]:
        return [text[max(0, found.start() - 80) : found.end() + 40] for found in self.secrets.finditer(text)]


@pytest.fixture(
    scope="module", params=[pytest.param(way, marks=() if way == OFTEN else pytest.mark.slow) for way in WAYS]
)
def sealed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sealed]:
    user = Live(tmp_path_factory.mktemp("sealed"))
    try:
        yield Sealed(user, WAYS[request.param])
    finally:
        user.end()


def test_no_command_on_a_node_tells_it(sealed: Sealed) -> None:
    script = "\n".join(f"echo '# {place}'; timeout 20 sh -c '{text}' 2>&1" for place, text in enumerate(COMMANDS))
    for node in NODES:
        shown = sealed.run(node, script)
        assert f"# {len(COMMANDS) - 1}" in shown
        assert not sealed.leaks(shown)


def test_no_file_on_a_node_tells_it(sealed: Sealed) -> None:
    for node in NODES:
        found = sealed.run(node, "python3 -", given=READ)
        assert "== /run/" in found
        assert "Traceback" not in found
        assert not sealed.leaks(found)


def test_no_dump_of_netlink_tells_it(sealed: Sealed) -> None:
    """A lossless port shapes without netem."""
    nothing = {"netem loss 0 corrupt 0 duplicate 0 jitter 0"}
    for node in "leaf1", "leaf2", "spine1", "spine2":
        found = sealed.run(node, "python3 -", given=QDISCS.read_text()).splitlines()
        assert set(found) == (set() if sealed.incident.area == "lossless" else nothing)


def test_all_ports_look_alike(sealed: Sealed) -> None:
    """The qdiscs of a switch's ports differ in their seeds and counters alone."""
    for node in "leaf1", "leaf2", "spine1", "spine2":
        shown = sealed.run(node, "tc qdisc show")
        texts = {re.sub(r"dev \S+|seed \d+", "", line) for line in shown.splitlines() if "netem" in line}
        assert len(texts) <= 1, texts


def test_no_command_of_testbed_tells_it(sealed: Sealed) -> None:
    for words in READING:
        done = sealed.user(*words)
        told = [line for line in (done.out + done.err).splitlines() if REFUSED not in line]
        assert not sealed.leaks("\n".join(told)), words


def test_no_file_on_this_machine_tells_it(sealed: Sealed) -> None:
    """What the files of the scenario say of all incidents alike is no leak: they are testbed's own."""
    for file in sealed.user.directory.rglob("*"):
        if file.is_file() and "scenario" not in file.parts:
            assert not sealed.leaks(file.read_text(errors="replace")), file


def test_no_tool_of_an_assistant_tells_it(sealed: Sealed) -> None:
    async def read() -> list[str]:
        texts = []
        async with Client(over_stdio(sealed.user)) as client:
            for tool, given in TOOLS.items():
                texts.append(f"{tool}: {(await client.call_tool(tool, given)).content}")
            faults = await client.call_tool("faults", {})
            texts.append(str((faults.structured_content or {}).get("active")))
            texts.append(str((await client.read_resource("testbed://labs/sealed/topology")).contents))
        return texts

    for text in asyncio.run(asyncio.wait_for(read(), 600)):
        assert not sealed.leaks(text)


def test_what_nobody_can_do_on_a_cluster_is_refused(sealed: Sealed) -> None:
    ends = [str(place) for place in sealed.incident.troubles[0].places if ":" in place and " " not in place]
    for end in ends[:2]:
        for name in ("link-loss", "loss=50"), ("link-corrupt", "corrupt=40"):
            assert "hides what is wrong" in sealed.user("fault", "inject", name[0], f"end={end}", name[1]).error
        assert "hides what is wrong" in sealed.user("link", "set", end, "loss=0").error


@pytest.mark.parametrize("node", ["gpu2", "leaf1"])
def test_every_attack_fails(sealed: Sealed, node: str) -> None:
    tried = [json.loads(line) for line in sealed.run(node, "python3 -", ATTACKS.read_text()).splitlines()]
    assert tried[-1]["name"] == "reboot", "the last one"
    assert {one["name"]: one["got"] for one in tried if one["got"]} == {}


def test_the_work_of_an_operator_goes_on(sealed: Sealed) -> None:
    user = sealed.user
    works = {
        "gpu2": [
            "ip link set eth1 mtu 1400 && ip link set eth1 mtu 9000", "ip neigh flush dev eth1", "ip route",
            "ip addr add 192.0.2.1/32 dev lo && ip addr del 192.0.2.1/32 dev lo", "ping -c1 -W1 127.0.0.1", "rdma link",
            "ss -tn", "nft add table inet x && nft delete table inet x", "sysctl -w net.ipv4.ip_forward=0",
            "arping -c 1 -w 1 -I eth1 10.0.10.1 || true", "timeout -s INT 2 tcpdump -c1 -ni lo & ping -c2 ::1; wait",
            "python3 -c 'import pyverbs.device as d; assert d.get_device_list()'", "ethtool -S eth1", "ibv_devinfo",
            "ps ax | grep -q '[j]ob.py'", "grep -q step /run/testbed/out/job/rank-0.log", "echo x > /tmp/x",
            "pgrep -f job.py", "tc qdisc show", "ib_write_bw --help > /dev/null || test $? -lt 127", "ip -s link",
        ],
        "leaf1": [
            "ip link set u1 down && ip link set u1 up", "bridge fdb", "bridge vlan", "ps ax | grep -q [z]ebra",
            "vtysh -c 'show ip bgp summary'", "vtysh -N $(basename /run/frr/*/) -c 'show ip route'",
            "ip route add blackhole 198.51.100.0/24 && ip route del blackhole 198.51.100.0/24", "ethtool -S u1",
        ],
    }  # fmt: skip
    for node, commands in works.items():
        script = "\n".join(f"({command}) || echo 'fails: {place}'" for place, command in enumerate(commands))
        shown = sealed.run(node, f"exec 2>&1\n{script}\necho the end")
        assert shown.splitlines()[-1] == "the end"
        assert [commands[int(place)] for place in re.findall(r"^fails: (\d+)$", shown, re.MULTILINE)] == [], shown
    with user.started("capture", "leaf1:e3", "icmp", "-c", "1", "-w", "-") as capture:
        pinged = lambda: sealed.run("store1", "ping -c 5 10.0.10.1") and capture.poll() is not None  # noqa: E731
        assert wait_for(pinged), "a capture that begins sees the next pings"
        assert capture.stdout
        assert capture.stdout.read()


def test_processes_are_those_of_the_node(sealed: Sealed) -> None:
    """A rank of another node goes on, whatever is killed here; so does the lab."""
    for _ in range(60):
        here = re.findall(r"job\.py", sealed.run("gpu2", "ps ax -o args="))
        if here:
            break
        sealed.user("advance", "1s")  # a job that died is started again
    assert len(here) == 1
    state = "ps -o stat= -p $(pgrep -f '[j]ob.py')"
    before = sealed.run("gpu3", state)
    for signal, stopped in ("-CONT", False), ("-STOP", True):
        sealed.run("gpu2", f"pkill {signal} -f '[j]ob.py'")
        assert ("T" in sealed.run("gpu2", state)) == stopped
    assert ("T" in sealed.run("gpu3", state)) == ("T" in before)
    for node in "gpu1", "spine2":
        sealed.run(node, "bash -c 'kill -9 -1'")
        assert sealed.run(node, "echo there").strip() == "there"
    assert sealed.user("inspect").status == 0
    assert sealed.user("incident", "show").status == 0
