"""What a lab shows, saves and reports is what its kernel has, whatever commands did to it; and it never vanishes."""

import json

import pytest

FILE = """
name: truth
topology:
  rdma_mode: exclusive
  nodes:
    leaf: {kind: switch, vlans: {10: 10.0.10.1/24, 20: 10.0.20.1/24}}
    a: {kind: host}
    b: {kind: host}
    c: {kind: host}
  links:
    - {endpoints: ["leaf:e1", "a:eth1"], vlan: 10}
    - {endpoints: ["leaf:e2", "b:eth1"], vlan: 20}
    - {endpoints: ["leaf:e3", "c:eth1"], vlan: 20}
"""


@pytest.fixture
def lab(own):
    own.file.write_text(FILE)
    return own.up("truth", "--clock", "virtual")


def out(own, lab):
    return own.directory / "runs" / lab / "latest"


def rows(own, lab):
    nodes = own("inspect", "-f", "json", lab=lab).json["nodes"]
    return {row["interface"]: row for node in nodes for row in node["interfaces"]}


def test_what_commands_did_is_shown_saved_and_reported(own, lab):
    found = rows(own, lab)
    assert {found[f"leaf:vlan{vlan}"]["addresses"][0] for vlan in (10, 20)} == {"10.0.10.1/24", "10.0.20.1/24"}

    by_hand = "ip link add eth1.5 link eth1 type vlan id 5; ip addr add 10.5.0.1/24 dev eth1.5; ip link set eth1.5 up"
    own("exec", "c", "--", "sh", "-c", by_hand, lab=lab)
    own("exec", "c", "--", "ip", "addr", "add", "169.254.7.7/16", "dev", "eth1", lab=lab)
    found = rows(own, lab)
    assert found["c:eth1.5"]["addresses"] == ["10.5.0.1/24"]
    assert found["c:eth1"]["addresses"] == ["10.0.20.3/24", "169.254.7.7/16"]
    assert "c:eth1.5 has no RDMA device" in own("rdma", "write", "a", "10.5.0.1", lab=lab).err
    assert "leaf:vlan20 has the address 10.0.20.1" in own("rdma", "write", "a", "10.0.20.1", lab=lab).err

    silent = own("rdma", "write", "--silent", "a", "b", lab=lab)
    assert silent.status == 0
    assert "asked for its gateway" not in silent.out
    assert "leaf asked, and b:eth1 answered: leaf learned that 10.0.20.2 is at " in silent.out

    own("address", "add", "b", "10.0.20.50/25", lab=lab)
    own("address", "add", "b", "10.0.20.50/24", lab=lab)
    own("address", "del", "b", "10.0.20.50/25", lab=lab)
    assert rows(own, lab)["b:eth1"]["addresses"] == ["10.0.20.2/24", "10.0.20.50/24"]

    own("link", "set", "leaf:e3", "loss=5", lab=lab)
    own("exec", "leaf", "--", "tc", "qdisc", "del", "dev", "e3", "root", lab=lab)
    assert rows(own, lab)["leaf:e3"]["quality"] == {}

    for loss in "1", "2":
        own("fault", "inject", "link-loss", "end=leaf:e2", f"loss={loss}", lab=lab)
        own("advance", "1s", lab=lab)
    first, second = own("fault", "ps", "-f", "json", lab=lab).json
    assert second["since_s"] - first["since_s"] >= 1
    saved = own.directory / "saved.clab.yml"
    assert own("save", "-o", saved, lab=lab).status == 0
    assert own("topology", "check", saved).status == 0

    assert own("announce", "b", lab=lab).out.startswith("b has announced its address 10.0.20.50\n")
    with own.started("capture", "leaf:e1", "-c", "1", "arp", lab=lab) as printed:
        assert any(b"listening on e1" in line for line in printed.stdout)
        own("exec", "a", "--", "arping", "-c1", "-w1", "-I", "eth1", "10.0.10.1", lab=lab)
        own("announce", "a", lab=lab)
        assert any(b"ARP" in line for line in printed.stdout)  # not a terminal: lines, no pcap

    own("exec", "b", "--", "ip", "link", "del", "eth1", lab=lab)
    assert rows(own, lab)["b:eth1"]["gone"]
    assert "b:eth1 is gone" in own("link", "set", "b:eth1", "down", lab=lab).err
    assert own("top", "--once", lab=lab).status == 0
    assert "b has no interface" in own("address", "add", "b", "10.0.20.9/24", lab=lab).err
    assert own("ps", "-f", "json").json[0]["state"] == "up"

    own("exec", "a", "--", "ls", "/nowhere", lab=lab)
    own("down", lab, lab=lab)
    events = map(json.loads, (out(own, lab) / "events.jsonl").read_text().splitlines())
    typed = [event["data"] for event in events if event["kind"] == "typed"]
    (failed,) = [data for data in typed if data["command"].endswith("ls /nowhere")]
    assert failed["status"] == 2
    assert "No such file or directory" in failed["back"]


def test_a_lab_whose_process_is_killed_within_is_dead_with_its_reason(own, lab):
    assert own("exec", "a", "--", "pkill", "-9", "python3", lab=lab).status == 1
    (dead,) = own("ps", "-f", "json").json
    assert (dead["state"], dead["why"]) == ("dead", "ended by signal 9")
    assert own("down", lab, lab=lab).status == 0
    assert (out(own, lab) / "result.json").is_file()
    assert (out(own, lab) / "report.html").is_file()


def test_a_lab_full_of_programs_that_make_others_ends_when_it_is_told_to(own, lab):
    assert own("exec", "a", "--", "bash", "-c", ":(){ :|:& };:", lab=lab).status == 0
    own("advance", "1s", lab=lab)
    done = own("down", lab, lab=lab)
    assert done.status == 0, done.err
    assert [line for line in done.err.splitlines() if not line.startswith("…")] == []  # on a slow host it tells that
    assert (out(own, lab) / "report.html").is_file()
