"""Whatever a Topo of Mininet says of its nodes and links, it becomes a topology file or one InputError."""

from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from testbed.errors import InputError
from testbed.topology import Topology
from testbed.topology.mininet import convert
from testbed.topology.mininet.network import Mininet
from testbed.topology.mininet.recording import Topo

NAMES = st.one_of(
    st.sampled_from(["h1", "h2", "s1", "s2", "h_3"]),
    st.text(max_size=6),
    st.sampled_from([7, None, ("t",), "h²", "a\nb"]),
)
KEYS = st.sampled_from(
    [
        "ip",
        "mac",
        "defaultRoute",
        "inNamespace",
        "cls",
        "cpu",
        "dpid",
        "batch",
        "bw",
        "delay",
        "jitter",
        "loss",
        "max_queue_size",
        "use_htb",
        "intfName1",
        "intfName2",
        "addr1",
        "addr2",
        "params1",
        "params2",
        "port1",
        "port2",
        "x\ny",
    ]
)
VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(
        [
            "10.0.0.1",
            "10.0.0.1/8",
            "via 10.0.0.1",
            "dev eth0 via x",
            "5ms",
            "00:00:00:00:00:01",
            "h1-eth0",
            "eth9" * 9,
            "x: {\ny",
            [],
            ["a"],
            {},
            {"ip": 5},
            {"ip": "10.0.0.9/8", "x": 1},
            {1: 2},
            b"x",
            object(),
            3j,
        ]
    ),
)
OPTIONS = st.dictionaries(KEYS, VALUES, max_size=3)
Node = tuple[bool, Any, dict[str, Any]]
Link = tuple[Any, Any, dict[str, Any]]


@settings(derandomize=True, deadline=None, database=None, max_examples=80)
@given(
    st.lists(st.tuples(st.booleans(), NAMES, OPTIONS), min_size=1, max_size=4),
    st.lists(st.tuples(NAMES, NAMES, OPTIONS), max_size=3),
    st.text(max_size=10),
)
@example([(True, "h1", {"ip": 5}), (False, "s1", {})], [("h1", "s1", {"intfName1": 7, "params1": "x"})], "pair")
@example([(True, "h1", {}), (False, "s1", {})], [("h1", "s1", {"loss": object(), "port2": "x"})], "pair")
@example([(True, "h²", {"defaultRoute": 1.5})], [("h²", "nobody", {})], "a\nb")
def test_any_topo(nodes: list[Node], links: list[Link], name: str) -> None:
    class Made(Topo):
        def build(self) -> None:
            for is_host, node, options in nodes:
                (self.addHost if is_host else self.addSwitch)(node, **options)
            for one, other, options in links:
                self.addLink(one, other, **options)

    Mininet.made = []
    try:
        net = Mininet(Made())
    except Exception:
        return  # `read` reports any, with its line
    try:
        text = convert(name, net, source="topo.py")
        Topology.parse(text, source="converted").plan()
    except InputError:
        return
    head = text.partition("name:")[0]
    assert all(line.startswith("# ") for line in head.splitlines())
