"""The MACs of a pair: two switches that tell each other all, each with a bridge that does as it is told."""

from testbed.switch.fdb import Flow
from testbed.switch.mlag.macs import Change, KeepMac, Macs, PlaceMac, RemoveMac

MAC, VLAN = "02:00:00:00:00:07", 10
FLOW = VLAN, MAC
PEER_LINK = "po99"
CHANNELS = {"po1": 1, "po2": 2}


class Bridge:
    """A switch's own entries, and those that were put there: port by VLAN and MAC."""

    def __init__(self) -> None:
        self.macs = Macs(CHANNELS, PEER_LINK)
        self.own: dict[Flow, str] = {}
        self.put: dict[Flow, str] = {}
        self.done: list[Change] = []

    def take(self) -> None:
        changes, self.macs.changes = self.macs.changes, []
        self.done += changes
        for change in changes:
            flow = change.vlan, change.mac
            self.own.pop(flow, None)
            self.put.pop(flow, None)
            match change:
                case PlaceMac(_, _, port):
                    self.put[flow] = port
                    self.macs.seen(*flow, port, comes=False)
                case KeepMac(_, _, port):
                    self.own[flow] = port
                    self.macs.learned(*flow, port)


class Two:
    def __init__(self) -> None:
        self.bridges = [Bridge(), Bridge()]
        self.apart = False
        for at in 0, 1:
            for port in PEER_LINK, *CHANNELS:
                self.port(at, port, up=True)

    def settle(self) -> None:
        for bridge in self.bridges:
            bridge.macs.settle()
        while any(bridge.macs.news or bridge.macs.changes for bridge in self.bridges):
            for at, bridge in enumerate(self.bridges):
                news, bridge.macs.news = bridge.macs.news, []
                for one in news if not self.apart else ():
                    self.bridges[1 - at].macs.told(one)
                bridge.take()

    def learn(self, at: int, port: str) -> None:
        bridge = self.bridges[at]
        if FLOW in bridge.put:
            bridge.macs.seen(*FLOW, port, comes=True)
            if port != bridge.put[FLOW]:
                bridge.take()
        else:
            bridge.own[FLOW] = port
            bridge.macs.learned(*FLOW, port)
        self.settle()

    def age(self, at: int) -> None:
        bridge = self.bridges[at]
        if bridge.own.pop(FLOW, None):
            bridge.macs.lost(*FLOW)
        else:
            bridge.macs.seen(*FLOW, bridge.put[FLOW], comes=False)
        self.settle()

    def port(self, at: int, port: str, *, up: bool) -> None:
        bridge = self.bridges[at]
        if not up and bridge.own.get(FLOW) == port:
            del bridge.own[FLOW]
            bridge.macs.lost(*FLOW)  # as the kernel does it: before it reports the port
        bridge.macs.port_changed(port, up=up)
        if port in CHANNELS and not self.apart:
            self.bridges[1 - at].macs.channel_told(CHANNELS[port], up=up)
        self.settle()

    def split(self) -> None:
        self.apart = True
        for bridge in self.bridges:
            bridge.macs.session_lost()
        self.settle()

    @property
    def ports(self) -> list[str | None]:
        """Where each switch has the MAC."""
        return [bridge.own.get(FLOW) or bridge.put.get(FLOW) for bridge in self.bridges]


def test_a_mac_behind_a_common_port_channel_is_there_on_both() -> None:
    two = Two()
    two.learn(0, "po1")
    assert two.ports == ["po1", "po1"]
    assert two.bridges[1].put == {FLOW: "po1"}


def test_a_mac_on_an_orphan_port_is_behind_the_peer_link_of_the_other_switch() -> None:
    two = Two()
    two.learn(1, "e3")
    assert two.ports == [PEER_LINK, "e3"]


def test_it_lives_while_either_switch_sees_it() -> None:
    two = Two()
    two.learn(0, "po1")
    two.learn(1, "po1")
    two.age(0)
    assert two.ports == ["po1", "po1"]
    two.age(1)
    assert two.ports == [None, None]
    assert not two.bridges[0].macs._known


def test_a_flush_on_one_switch_brings_it_back_from_the_other() -> None:
    two = Two()
    two.learn(0, "po1")
    two.learn(1, "po1")
    two.age(0)
    assert two.bridges[0].put == {FLOW: "po1"}


def test_an_entry_that_a_command_removes_is_put_back() -> None:
    two = Two()
    two.learn(1, "e3")
    two.bridges[0].put.clear()
    two.bridges[0].macs.removed(*FLOW)
    two.settle()
    assert two.ports == [PEER_LINK, "e3"]


def test_it_moves_on_both() -> None:
    two = Two()
    for at, port, expected in [
        (0, "po1", ["po1", "po1"]),
        (1, "po2", ["po2", "po2"]),
        (0, "e3", ["e3", PEER_LINK]),
        (1, "e4", [PEER_LINK, "e4"]),
        (0, "po1", ["po1", "po1"]),
    ]:
        two.learn(at, port)
        assert two.ports == expected
    two.age(0)
    assert two.ports == [None, None]


def test_a_port_channel_that_is_down_is_reached_by_the_peer_link() -> None:
    two = Two()
    two.learn(0, "po1")
    two.port(0, "po1", up=False)
    assert two.ports == [PEER_LINK, "po1"]
    assert two.bridges[1].own == {FLOW: "po1"}, "it is the other switch's own now, and ages there"
    two.port(0, "po1", up=True)
    assert two.ports == ["po1", "po1"]


def test_a_host_whose_links_are_all_down_is_forgotten() -> None:
    two = Two()
    two.learn(0, "po1")
    two.port(0, "po1", up=False)
    two.port(1, "po1", up=False)
    assert two.ports == [None, None]


def test_a_host_that_was_heard_by_the_other_switch_only_stays_there() -> None:
    two = Two()
    two.learn(1, "po1")
    two.port(0, "po1", up=False)
    assert two.ports == [PEER_LINK, "po1"]
    two.age(1)
    assert two.ports == [None, None]


def test_without_the_peer_link_what_is_behind_it_is_gone_until_it_is_back() -> None:
    two = Two()
    two.learn(1, "e3")
    two.port(0, PEER_LINK, up=False)
    assert two.ports == [None, "e3"]
    two.port(0, PEER_LINK, up=True)
    assert two.ports == [PEER_LINK, "e3"]


def test_alone_each_keeps_what_is_behind_common_port_channels() -> None:
    two = Two()
    two.learn(1, "po1")
    two.split()
    assert two.ports == ["po1", "po1"]
    assert two.bridges[0].own == {FLOW: "po1"}, "it ages as any other"
    two.age(0)
    assert two.ports == [None, "po1"]


def test_alone_each_forgets_what_was_behind_the_peer_link() -> None:
    two = Two()
    two.learn(1, "e3")
    two.split()
    assert two.ports == [None, "e3"]


def test_what_it_sees_is_what_it_tells_all_of() -> None:
    two = Two()
    two.learn(1, "po1")
    assert not [*two.bridges[0].macs.all()]
    assert [(mac.mac, mac.channel) for mac in two.bridges[1].macs.all()] == [(MAC, 1)]


def test_frames_on_the_peer_link_teach_nothing() -> None:
    two = Two()
    two.learn(1, "po1")
    two.bridges[0].macs.learned(*FLOW, PEER_LINK)
    two.settle()
    assert two.bridges[0].put == {FLOW: "po1"}
    assert not any(isinstance(change, RemoveMac) for change in two.bridges[0].done)
