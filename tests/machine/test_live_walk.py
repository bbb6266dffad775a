"""A person's walk through a lab, under pseudo-terminals: a pod moves, the leaf's entry is stale, one frame fixes it."""

import json
import re
import shlex
from collections.abc import Iterator

import pytest
from conftest import COMMAND
from live import Live, wait_for
from terminal import Terminal

VF = {
    "cniVersion": "1.0.0",
    "name": "roce",
    "plugins": [
        {
            "type": "host-device",
            "device": "vf0",
            "ipam": {
                "type": "static",
                "addresses": [{"address": "10.1.1.100/24", "gateway": "10.1.1.1"}],
                "routes": [{"dst": "0.0.0.0/0"}],
            },
        },
        {"type": "rxe"},
    ],
}
PING = "testbed exec host3 -- ping -c 2 -W 1 10.1.1.100"


class Person:
    """A shell in a terminal in which `testbed` is typed."""

    def __init__(self, own: Live, size: tuple[int, int] = (40, 200)) -> None:
        self.terminal: Terminal = own.terminal_of(["bash", "--norc", "--noprofile"], size=size)
        command = shlex.join(map(str, COMMAND))
        self.terminal.send(f"PS1='ready''> '; testbed() {{ {command} \"$@\"; }}\n")
        self.terminal.expect("ready> ")

    def types(self, line: str, *shown: str) -> str:
        """A command up to the next prompt; what it showed, in which each of `shown` is."""
        before = len(self.terminal.text)
        self.starts(line)
        for pattern in shown:
            self.terminal.expect(pattern)
        self.terminal.expect("ready> ")
        return self.terminal.text[before:]

    def starts(self, line: str) -> None:
        """A command that goes on."""
        self.terminal.send(f"{line}\n")
        self.terminal.expect(re.escape(line) + "\n")


@pytest.fixture
def person(own: Live) -> Iterator[Person]:
    made = Person(own)
    yield made
    made.terminal.end()


@pytest.fixture
def friend(own: Live) -> Iterator[Person]:
    made = Person(own)
    yield made
    made.terminal.end()


def test_from_up_to_down(own: Live, person: Person, friend: Person) -> None:
    (own.directory / "vf.conflist").write_text(json.dumps(VF))
    person.types("testbed topology new leaf-spine --leaves 2 --spines 2 --hosts 2 -o fabric.clab.yml")
    person.types("testbed up fabric.clab.yml --clock virtual", "testbed shell host1")
    person.types("testbed profile set leaf1 arp_age=60", "arp_age")
    person.types("testbed exec host1 host2 -- ip link add vf0 link eth1 type macvlan mode bridge")
    person.types("testbed pod add host1 p1 vf.conflist", "p1")
    person.types("testbed rdma write host3 p1", "SUCCESS")
    friend.starts("testbed tables leaf1 --follow")
    old = friend.terminal.expect(r"10\.1\.1\.100 +(\S+) ")[1]

    person.types("testbed pod del p1")
    person.types("testbed pod add host2 p2 vf.conflist", "p2")
    person.types(PING, "0 received")
    stale = person.types("testbed tables leaf1")
    assert old in stale, "the leaf has the entry of the pod that has gone"

    person.types("testbed announce p2", "announced")
    new = friend.terminal.expect(r"10\.1\.1\.100 +(\S+) ")[1]
    assert new != old
    friend.terminal.send("\x03")
    friend.terminal.expect("ready> ")
    friend.starts("testbed capture leaf1:e2 -w e2.pcap")
    friend.terminal.expect("e2.pcap")
    person.types(PING, "2 received")
    friend.terminal.send("\x03")
    friend.terminal.expect("ready> ")
    assert (own.directory / "e2.pcap").stat().st_size > 100

    person.types("testbed save -o mine.clab.yml", "mine.clab.yml")
    person.types("testbed down", "report.html")
    assert wait_for(lambda: not any("testbed" in command for command in own.processes().values()), 30)
    assert not list(own.labs.iterdir())
    assert "arp_age: 60" in (own.directory / "mine.clab.yml").read_text()
    person.types("testbed up mine.clab.yml --clock virtual --name again", "testbed shell host1")
    person.types("testbed down", "report.html")
