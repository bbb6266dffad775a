"""ip-reuse wholly by hand: addresses are those that the kernel has, whoever moved them."""

import json

import pytest

FILE = """
name: moved
topology:
  rdma_mode: exclusive
  kinds: {host: {nic: hardware}}
  nodes:
    leaf: {kind: switch, profile: sonic, vlans: {10: 10.0.10.1/24, 20: 10.0.20.1/24}}
    c: {kind: host}
    s: {kind: host}
    t: {kind: host}
  links:
    - {endpoints: ["leaf:e1", "c:eth1"], vlan: 10}
    - {endpoints: ["leaf:e2", "s:eth1"], vlan: 20}
    - {endpoints: ["leaf:e3", "t:eth1"], vlan: 20}
"""
MOVED = "10.0.20.2"


@pytest.fixture
def lab(own):
    own.file.write_text(FILE)
    return own.up("moved", "--clock", "virtual")


def addresses(own, lab):
    nodes = own("inspect", "-f", "json", lab=lab).json["nodes"]
    return {node["name"]: node["interfaces"][0]["addresses"] for node in nodes if node["kind"] == "host"}


def test_an_address_that_commands_move_is_where_the_kernel_has_it(own, lab):
    heard = own("rdma", "write", "c", "s", lab=lab)
    assert heard.status == 0
    assert f"s:eth1 asked for its gateway: leaf learned that {MOVED} is at 02:" in heard.out
    own("exec", "s", "--", "ip", "address", "del", f"{MOVED}/24", "dev", "eth1", lab=lab)
    own("exec", "t", "--", "ip", "address", "add", f"{MOVED}/24", "dev", "eth1", lab=lab)
    own("exec", "t", "--", "ip", "link", "set", "eth1", "mtu", "1400", lab=lab)
    assert addresses(own, lab) == {"c": ["10.0.10.2/24"], "s": [], "t": ["10.0.20.3/24", f"{MOVED}/24"]}

    stale = own("rdma", "write", "c", MOVED, "-f", "json", lab=lab)
    assert (stale.status, stale.json["status"]) == (1, "RETRY_EXC_ERR")
    assert own("rdma", "write", "c", "t", "--silent", "-f", "json", lab=lab).json["learned"] == []
    assert own("announce", "t", "--ip", MOVED, lab=lab).status == 0
    assert own("rdma", "write", "c", MOVED, lab=lab).status == 0

    saved = own.directory / "saved.clab.yml"
    assert own("save", "-o", saved, lab=lab).status == 0
    told = map(json.loads, own("events", "-f", "json", lab=lab).out.splitlines())
    texts = [event["text"] for event in told if event["kind"] in ("address", "link")]
    assert texts == [f"eth1 no longer has {MOVED}/24", f"eth1 has {MOVED}/24", "eth1 has MTU 1400"]
    own("down", lab, lab=lab)

    own.file.write_text(saved.read_text())
    again = own.up("again", "--clock", "virtual")
    assert addresses(own, again)["t"] == ["10.0.20.3/24", f"{MOVED}/24"]
    assert own("rdma", "write", "c", MOVED, lab=again).status == 0


def test_an_address_is_added_deleted_and_moved(own, lab):
    assert own("address", "add", "t:eth1", "10.0.20.9/24", lab=lab).status == 0
    both = own("rdma", "write", "c", "10.0.20.8", lab=lab)
    assert (both.status, "no interface of the lab has the address 10.0.20.8" in both.error) == (2, True)
    assert own("address", "move", "10.0.20.9", "s", lab=lab).status == 0
    assert addresses(own, lab)["s"] == [f"{MOVED}/24", "10.0.20.9/24"]
    assert own("address", "add", "t", "10.0.20.9/24", lab=lab).status == 0
    both = own("rdma", "write", "c", "10.0.20.9", lab=lab)
    assert (both.status, "s:eth1, t:eth1 have the address 10.0.20.9" in both.error) == (2, True)
    assert "one must have it to be moved" in own("address", "move", "10.0.20.9", "c", lab=lab).error
    assert own("address", "del", "t", "10.0.20.9", lab=lab).status == 0
    assert "has no address 10.0.20.9" in own("address", "del", "t", "10.0.20.9", lab=lab).error
    assert "is not an address with its prefix length" in own("address", "add", "t", "10.0.20.9", lab=lab).error


def test_time_stands_still_while_a_capture_is_watched(own, lab):
    watched = own.terminal("capture", "leaf:e1", "arp", lab=lab)
    watched.expect("listening on e1")
    before = own.now(lab)
    assert own("announce", "c", lab=lab).status == 0
    watched.expect("who-has 10.0.10.2")
    assert own.now(lab) - before < 1
    watched.send("\x03")
    assert watched.status() == 0
