"""`testbed apply`: a lab that lives becomes its edited file, and what the file does not change is not touched."""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conftest import Done
from test_live_cli import run_in

Run = Callable[..., Done]
LAB = Path(__file__).parents[1] / "lab"
BEFORE = """\
name: edited
topology:
  nodes:
    leaf: {kind: switch, vlans: {10: 10.0.10.1/24}}
    h1: {kind: host}
    h2: {kind: host}
  links:
    - {endpoints: ["leaf:e1", "h1:eth1"], vlan: 10}
    - {endpoints: ["leaf:e2", "h2:eth1"], vlan: 10}
"""
AFTER = """\
name: edited
topology:
  nodes:
    h0: {kind: host}
    leaf: {kind: switch, vlans: {10: 10.0.10.1/24, 20: 10.0.20.1/24}, profile_values: {arp_age: 300}}
    h1: {kind: host}
    h2: {kind: host, exec: ["ip link add dummy0 type dummy"]}
    h3: {kind: host}
    leaf2: {kind: switch, vlans: {30: 10.0.30.1/24}}
    h4: {kind: host}
    h5: {kind: host}
  links:
    - {endpoints: ["leaf:e0", "h0:eth1"], vlan: 10}
    - {endpoints: ["leaf:e1", "h1:eth1"], vlan: 10, rate: 1gbit}
    - {endpoints: ["leaf:e2", "h2:eth1"], vlan: 20}
    - {endpoints: ["leaf:e3", "h3:eth1"], vlan: 20, mtu: 4200}
    - {endpoints: ["leaf2:e1", "h4:eth1"], vlan: 30}
    - {endpoints: ["leaf2:e2", "h5:eth1"], vlan: 30}
  faults:
    - {fault: link-loss, end: "leaf:e1", loss: 5}
"""


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Run]:
    def run(*arguments: str) -> Done:
        return run_in(tmp_path, *arguments)

    (tmp_path / "before.clab.yml").write_text(BEFORE)
    (tmp_path / "after.clab.yml").write_text(AFTER)
    try:
        assert run("up", "before.clab.yml", "--clock", "virtual").status == 0
        yield run
    finally:
        run("down", "--all")


def ends(lab: Run) -> dict[str, tuple[str, ...]]:
    """The MAC and the addresses of each interface, as the kernel has them."""
    state = json.loads(lab("inspect", "-f", "json").out)
    rows = [row for node in state["nodes"] for row in node["interfaces"]]
    return {row["interface"]: (row["mac"], *row["addresses"]) for row in rows}


def writes(lab: Run, *pairs: tuple[str, str]) -> list[int]:
    return [lab("rdma", "write", *pair).status for pair in pairs]


def test_a_lab_becomes_its_edited_file_and_goes_back(lab: Run, tmp_path: Path) -> None:
    before = ends(lab)
    assert lab("exec", "h1", "-d", "--", "ping", "-i", "0.2", "10.0.10.1").status == 0
    assert writes(lab, ("h1", "h2")) == [0]
    dry = lab("apply", "--dry-run", "after.clab.yml").out
    assert ends(lab) == before

    done = lab("apply", "-f", "after.clab.yml")
    assert (done.status, done.out) == (0, dry), done.err
    lines = done.out.splitlines()
    assert "+ node h0" in lines
    assert "~ link h1:eth1 – leaf:e1  rate none → 1000000000" in lines
    assert "~ link leaf:e2  vlan 10 → 20" in lines
    now = ends(lab)
    assert now["h1:eth1"] == before["h1:eth1"]
    assert now["leaf:vlan10"] == before["leaf:vlan10"]
    assert now["h0:eth1"] == ("02:00:04:00:00:01", "10.0.10.3/24")
    assert now["h2:eth1"] == (before["h2:eth1"][0], "10.0.20.2/24")
    assert "dummy0" in lab("exec", "h2", "--", "ip", "-br", "link").out
    faults = json.loads(lab("fault", "ps", "-f", "json").out)
    assert [(row["fault"], row["parameters"]["end"]) for row in faults] == [("link-loss", "leaf:e1")]
    assert "rate 1Gbit" in lab("exec", "leaf", "--", "tc", "qdisc", "show", "dev", "e1").out
    assert writes(lab, ("h0", "h3"), ("h2", "h3"), ("h4", "h5")) == [0, 0, 0]
    assert {row["ip"] for row in json.loads(lab("tables", "leaf2", "-f", "json").out) if row["ip"]} <= {
        "10.0.30.2",
        "10.0.30.3",
    }
    assert "arp_age: 300" in lab("save").out
    assert "nothing changes" in lab("apply", "after.clab.yml").out

    assert lab("apply", "before.clab.yml").status == 0
    back = ends(lab)
    assert back.pop("h2:dummy0")  # what a command has done is not undone
    assert back == before
    assert json.loads(lab("fault", "ps", "-f", "json").out) == []
    assert writes(lab, ("h1", "h2"), ("h2", "h1")) == [0, 0]
    assert "ping -i 0.2" in lab("exec", "h1", "--", "ps", "ax").out
    assert "noqueue" in lab("exec", "leaf", "--", "tc", "qdisc", "show", "dev", "e1").out

    changes = [line for line in lab("events").out.splitlines() if "lab.changed" in line]
    assert len(changes) == 2 * len(lines)
    done = lab("down")
    page = Path(tmp_path, re.findall(r"\S+report\.html", done.out)[0])
    topology = json.loads(page.with_name("topology.json").read_text())
    assert {row["node"] for row in topology["interfaces"]} == {"leaf", "h1", "h2"}


def test_an_svi_has_the_mtu_of_its_vlan_after_an_edit(lab: Run, tmp_path: Path) -> None:
    def reaches() -> list[bool]:
        sizes = (1500, 9000)
        words = [("exec", "leaf", "--", *f"ping -c1 -W1 -Mdo -s{size - 28} 10.0.10.2".split()) for size in sizes]
        return [lab(*one).status == 0 for one in words]

    assert reaches() == [True, False]
    (tmp_path / "jumbo.clab.yml").write_text(BEFORE.replace("vlan: 10}", "vlan: 10, mtu: 9000}"))
    assert lab("apply", "jumbo.clab.yml").status == 0
    assert reaches() == [True, True]
    assert lab("apply", "before.clab.yml").status == 0
    assert reaches() == [True, False]


def test_what_cannot_be_applied_changes_nothing(lab: Run, tmp_path: Path) -> None:
    before = ends(lab)
    assert lab("exec", "h1", "-d", "--", "ib_write_lat").status == 0
    for old, new, message in (
        ("h2: {kind: host}", "h2: {kind: hst}", "edited.yml:6:16: kind 'hst' is not supported"),
        ("name: edited", "name: other", "no lab other is up"),
        ("  nodes:\n", "  rdma_mode: exclusive\n  nodes:\n", "'rdma_mode' of a lab cannot change while it lives"),
        ("h2: {kind: host}", "h2: {kind: linux, image: 'nope:1'}", "does not have the image nope:1"),
    ):
        assert old in BEFORE
        (tmp_path / "edited.yml").write_text(BEFORE.replace(old, new))
        done = lab("apply", "edited.yml")
        assert done.status == 2
        assert message in done.err
    assert ends(lab) == before
    assert lab("apply", "missing.yml").status == 2
    assert lab("exec", "h1", "--", "ip", "link", "add", "eth2", "type", "dummy").status == 0
    (tmp_path / "edited.yml").write_text(BEFORE + '    - {endpoints: ["h1:eth2", "h2:eth2"]}\n')
    done = lab("apply", "edited.yml")
    assert (done.status, "h1:eth2 is to come, and a command has made" in done.err) == (2, True)
    assert lab("exec", "h1", "--", "ip", "link", "del", "eth2").status == 0
    assert lab("apply", "edited.yml").status == 0
    assert writes(lab, ("h1:eth2", "h2:eth2")) == [0]


def test_hosts_keep_their_routes_when_their_switch_is_made_anew(lab: Run, tmp_path: Path) -> None:
    assert lab("exec", "h1", "--", "ip", "route", "add", "192.0.2.0/24", "via", "10.0.10.3").status == 0
    proxy = BEFORE.replace("leaf: {kind: switch,", "leaf: {kind: switch, proxy_arp: [10],")
    (tmp_path / "edited.yml").write_text(proxy)
    done = lab("apply", "edited.yml")
    assert "± node leaf  IPv6, proxy ARP or the VNI of its SVIs changed" in done.out, done.err
    routes = lab("exec", "h1", "--", "ip", "route").out
    assert "default via 10.0.10.1 dev eth1" in routes
    assert "192.0.2.0/24 via 10.0.10.3 dev eth1" in routes
    assert writes(lab, ("h1", "h2")) == [0]
    more = proxy.replace("    h2: {", "    h3: {kind: host}\n    h2: {")
    (tmp_path / "edited.yml").write_text(more + '    - {endpoints: ["leaf:e3", "h3:eth1"], vlan: 10}\n')
    assert lab("apply", "edited.yml").status == 0
    assert 'oifname "e3"' in lab("exec", "leaf", "--", "nft", "list", "table", "bridge", "proxy").out
    assert writes(lab, ("h3", "h1")) == [0]


def test_a_device_in_use_does_not_go_and_a_pod_keeps_its_name(lab: Run, tmp_path: Path) -> None:
    assert lab("exec", "h1", "-d", "--", "ibv_rc_pingpong", "-d", "h1-eth1", "-g", "1").status == 0
    assert lab("advance", "1s").status == 0
    (tmp_path / "edited.yml").write_text(BEFORE.replace('"h1:eth1"]', '"h1:eth2"]'))
    done = lab("apply", "edited.yml")
    assert done.status == 1
    assert "h1:eth1 is to go, and ibv_rc_pingpong has queue pairs on it" in done.err
    assert lab("exec", "h1", "--", "pkill", "ibv_rc_pingpong").status == 0
    assert lab("apply", "edited.yml").status == 0
    assert lab("apply", "before.clab.yml").status == 0

    (tmp_path / "rail.yml").write_text(MANIFEST)
    assert lab("apply", "rail.yml").status == 0
    assert lab("pod", "add", "h1", "p1", "--annotation", "k8s.v1.cni.cncf.io/networks=rail1").status == 0
    (tmp_path / "edited.yml").write_text(BEFORE.replace("    h2: {", "    p1: {kind: host}\n    h2: {"))
    done = lab("apply", "edited.yml")
    assert (done.status, "p1 is to come, and a pod has this name" in done.err) == (2, True)
    (tmp_path / "edited.yml").write_text(BEFORE.replace("h1: {kind: host}", "h1: {kind: host, nic: hardware}"))
    assert lab("apply", "edited.yml").status == 0  # the pod goes with its host
    assert "p1" not in lab("inspect").out


def test_a_fault_and_a_hand_keep_their_values(lab: Run, tmp_path: Path) -> None:
    assert lab("link", "set", "leaf:e2", "rate=100mbit").status == 0
    assert lab("fault", "inject", "link-loss", "end=h1:eth1", "loss=10").status == 0
    (tmp_path / "edited.yml").write_text(BEFORE.replace('"h2:eth1"], vlan: 10', '"h2:eth1"], vlan: 10, rate: 1gbit'))
    done = lab("apply", "edited.yml")
    assert "rate none → 1000000000; by a fault or `link set` leaf:e2 keeps rate 100000000" in done.out
    (tmp_path / "edited.yml").write_text(BEFORE.replace('"h1:eth1"]', '"h1:eth2"]'))
    assert lab("apply", "edited.yml").status == 0
    assert json.loads(lab("fault", "ps", "-f", "json").out) == []  # its end is gone
    assert writes(lab, ("h1", "h2")) == [0]


def test_the_same_edits_give_the_same_events(tmp_path: Path) -> None:
    traces = []
    for name in "one", "two":
        place = tmp_path / name
        place.mkdir()
        (place / "before.clab.yml").write_text(BEFORE)
        (place / "after.clab.yml").write_text(AFTER)
        try:
            for words in (
                ("up", "before.clab.yml", "--clock", "virtual"),
                ("rdma", "write", "h1", "h2"),
                ("apply", "after.clab.yml"),
                ("rdma", "write", "h1", "h3"),
                ("apply", "before.clab.yml"),
            ):
                assert run_in(place, *words).status == 0
            traces.append(run_in(place, "events").out)
        finally:
            run_in(place, "down", "--all")
    assert traces[0] == traces[1]


FABRIC = """\
name: fabric
topology:
  routing: frr
  nodes:
    spine: {kind: switch}
    leaf1: {kind: switch, vlans: {10: 10.0.1.1/24}}
    leaf2: {kind: switch, vlans: {10: 10.0.2.1/24}}
    h1: {kind: host}
    h2: {kind: host}
  links:
    - {endpoints: ["leaf1:e1", "spine:e1"]}
    - {endpoints: ["leaf2:e1", "spine:e2"]}
    - {endpoints: ["leaf1:e3", "h1:eth1"], vlan: 10}
    - {endpoints: ["leaf2:e3", "h2:eth1"], vlan: 10}
"""


def test_a_leaf_is_added_to_a_routed_fabric_and_taken_away(tmp_path: Path) -> None:
    def run(*arguments: str) -> Done:
        return run_in(tmp_path, *arguments)

    more = FABRIC.replace(
        "    h1: {", "    leaf3: {kind: switch, vlans: {10: 10.0.3.1/24}}\n    h3: {kind: host}\n    h1: {", 1
    )
    more += '    - {endpoints: ["leaf3:e1", "spine:e3"]}\n    - {endpoints: ["leaf3:e3", "h3:eth1"], vlan: 10}\n'
    (tmp_path / "fabric.clab.yml").write_text(FABRIC)
    (tmp_path / "more.clab.yml").write_text(more)
    try:
        assert run("up", "fabric.clab.yml", "--clock", "virtual").status == 0
        assert run("apply", "more.clab.yml").status == 0
        assert writes(run, ("h1", "h2"), ("h3", "h1"), ("h2", "h3")) == [0, 0, 0]
        routes = run("exec", "leaf1", "--", "ip", "route").out
        assert "10.0.3.0/24" in routes
        assert run("apply", "fabric.clab.yml").status == 0
        assert writes(run, ("h1", "h2")) == [0]
        assert "10.0.3.0/24" not in run("exec", "leaf1", "--", "ip", "route").out
        assert "no BGP" not in run("events").out
    finally:
        run("down", "--all")


GATEWAYS = """\
name: gateways
topology:
  nodes:
    leaf1: {kind: switch, vlans: {10: 10.0.10.2/24}ONE}
    leaf2: {kind: switch, vlans: {10: 10.0.10.3/24}OTHER}
    h1: {kind: host}
  links:
    - {endpoints: ["leaf1:e1", "h1:eth1"], vlan: 10, ipv4: [null, 10.0.10.9/24]}
    - {endpoints: ["leaf1:up", "leaf2:up"], vlan: 10}
"""


def test_virtual_routers_come_change_and_go_in_a_lab_that_had_no_frr(tmp_path: Path) -> None:
    def run(*arguments: str) -> Done:
        return run_in(tmp_path, *arguments)

    def applied(one: str, other: str) -> tuple[list[str], str]:
        """The states of the leaves' virtual routers, and h1's gateway."""
        (tmp_path / "gateways.clab.yml").write_text(GATEWAYS.replace("ONE", one).replace("OTHER", other))
        done = run("apply", "gateways.clab.yml")
        assert done.status == 0, done.err
        rows = [row for name in ("leaf1", "leaf2") for row in json.loads(run("tables", "-f", "json", name).out)]
        assert run("exec", "h1", "--", "ping", "-c", "1", "-W", "1", "10.0.10.3").status == 0
        gateway = run("exec", "h1", "--", "ip", "route", "show", "default").out.split()[2]
        return [row["state"] for row in rows if row["table"] == "vrrp"], gateway

    router = ", vrrp: {10: {id: 5, address: 10.0.10.1}}"
    preferred = router.replace("}}", ", priority: 200}}")
    (tmp_path / "gateways.clab.yml").write_text(GATEWAYS.replace("ONE", "").replace("OTHER", ""))
    try:
        assert run("up", "gateways.clab.yml", "--clock", "virtual").status == 0
        assert applied(preferred, router) == (["master", "backup"], "10.0.10.1")
        assert run("exec", "h1", "--", "ping", "-c", "1", "-W", "1", "10.0.10.1").status == 0
        assert applied(router, preferred) == (["backup", "master"], "10.0.10.1")
        assert run("exec", "h1", "--", "ping", "-c", "1", "-W", "1", "10.0.10.1").status == 0
        assert applied("", router) == (["master"], "10.0.10.1")
        assert applied("", "") == ([], "10.0.10.2")
        assert "vrrp" not in run("exec", "leaf1", "--", "ip", "-br", "link").out
    finally:
        run("down", "--all")


STRETCHED = """\
name: stretched
topology:
  routing: evpn
  nodes:
    spine: {kind: switch}
    leaf1: {kind: switch, vlans: {10: 10.0.10.1/24}, vnis: {10: 10010}, svi_mac: 02:00:00:00:00:fe}
    leaf2: {kind: switch, vlans: {10: 10.0.10.1/24}, vnis: {10: 10010}, svi_mac: 02:00:00:00:00:fe}
    h1: {kind: host}
    h2: {kind: host}
  links:
    - {endpoints: ["leaf1:e1", "spine:e1"]}
    - {endpoints: ["leaf2:e1", "spine:e2"]}
    - {endpoints: ["leaf1:e3", "h1:eth1"], vlan: 10}
    - {endpoints: ["leaf2:e3", "h2:eth1"], vlan: 10}
"""


@pytest.mark.slow
def test_vlans_leaves_and_ethernet_segments_come_to_an_evpn_fabric_and_go(tmp_path: Path) -> None:
    def run(*arguments: str) -> Done:
        return run_in(tmp_path, *arguments)

    def applied(text: str) -> None:
        (tmp_path / "stretched.clab.yml").write_text(text)
        done = run("apply", "stretched.clab.yml")
        assert done.status == 0, done.err

    (tmp_path / "stretched.clab.yml").write_text(STRETCHED)
    two_vlans = STRETCHED.replace("{10: 10.0.10.1/24}", "{10: 10.0.10.1/24, 20: 10.0.20.1/24}")
    two_vlans = two_vlans.replace("{10: 10010}", "{10: 10010, 20: 10020}, l3vni: 4001")
    two_vlans = two_vlans.replace("    h2: {", "    h3: {kind: host}\n    h2: {")
    two_vlans += '    - {endpoints: ["leaf2:e4", "h3:eth1"], vlan: 20}\n'
    bond = ', bonds: {po1: {members: [e3], system: "44:38:39:be:ef:aa", es_id: 1}}'
    segment = re.sub(r"(leaf[12]: .*)}", rf"\1{bond}}}", STRETCHED)
    segment = segment.replace("h1: {kind: host", "h1: {kind: host, bonds: {bond0: {members: [eth1, eth2]}}")
    segment = segment.replace("leaf2:e3", "leaf2:e4")
    segment += '    - {endpoints: ["leaf2:e3", "h1:eth2"], vlan: 10}\n'
    third = STRETCHED.replace("    h1: {", "    leaf3: {kind: switch, vlans: {10: null}, vnis: {10: 10010}}\n    h1: {")
    third = third.replace("    h2: {", "    h3: {kind: host}\n    h2: {")
    third += '    - {endpoints: ["leaf3:e1", "spine:e3"]}\n    - {endpoints: ["leaf3:e3", "h3:eth1"], vlan: 10}\n'
    try:
        assert run("up", "stretched.clab.yml", "--clock", "virtual").status == 0
        applied(two_vlans)
        assert writes(run, ("h1", "h2"), ("h1", "h3")) == [0, 0]
        applied(segment)
        assert writes(run, ("h1", "h2"), ("h2", "h1")) == [0, 0]
        assert run("exec", "leaf2", "--", "ip", "-br", "link", "show", "po1").status == 0
        applied(third)
        assert writes(run, ("h1", "h3"), ("h3", "h2")) == [0, 0]
        applied(STRETCHED)
        assert writes(run, ("h1", "h2")) == [0]
        assert "10.255.0.4" not in run("exec", "leaf1", "--", "bridge", "fdb").out
    finally:
        run("down", "--all")


MANIFEST = """\
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: {name: rail1, namespace: default}
spec:
  config: |
    {"cniVersion": "1.0.0", "name": "rail1", "plugins": [
      {"type": "macvlan", "master": "eth1", "ipam": {"type": "static", "addresses": [{"address": "10.0.10.77/24"}]}},
      {"type": "rxe"}]}
"""


STATUS = "k8s.v1.cni.cncf.io/network-status"


def test_a_manifest_is_applied_and_a_pod_is_on_its_network(lab: Run, tmp_path: Path) -> None:
    (tmp_path / "rail.yml").write_text(MANIFEST)
    done = lab("apply", "rail.yml")
    assert done.status == 0, done.err
    assert done.out == "NetworkAttachmentDefinition/default/rail1 is applied\n"
    added = lab("pod", "add", "h1", "p1", "--annotation", "k8s.v1.cni.cncf.io/networks=rail1")
    assert added.status == 0, added.err
    assert "10.0.10.77/24" in added.out
    wide = lab("get", "po", "-o", "wide").out.splitlines()[1]
    assert wide.split() == ["default", "p1", "Running", "0", "<none>", "h1", "net1", "10.0.10.77", "<none>"]
    (status,) = json.loads(json.loads(lab("get", "pod/p1", "-o", "json").out)["metadata"]["annotations"][STATUS])
    assert status["ips"] == ["10.0.10.77"]
    assert lab("delete", "pod", "p1").out == "Pod/default/p1 is deleted\n"
    assert lab("get", "pods").err == "No resources found\n"
    assert lab("delete", "pod", "p1").status == 2
    (tmp_path / "rail.yml").write_text(MANIFEST.replace("kind: Net", "kind: Nut"))
    unread = lab("apply", "-f", "rail.yml")
    assert (unread.status, unread.out) == (0, "")
    assert "NutworkAttachmentDefinition is passed over: nothing in a lab reads it; did you mean 'Net" in unread.err
    (tmp_path / "rail.yml").write_text(MANIFEST.replace('"type": "rxe"', '"typ": "rxe"'))
    wrong = lab("apply", "rail.yml")
    assert wrong.status == 2
    assert "rail.yml:" in wrong.err


def test_a_pair_gets_a_port_channel_and_its_hosts_of_both_families_stay(tmp_path: Path) -> None:
    """Both switches are made anew, and with them the links of hosts, whose bonds and RDMA devices stay."""
    before = (LAB / "mlag.clab.yml").read_text()
    pair = "po2: {members: [e2], mlag: 2}"
    after = before.replace(pair, f"{pair}, po3: {{members: [e4], mlag: 3}}")
    host = "    c: {kind: host, bonds: {bond0: {members: [eth1, eth2]}}}\n"
    links = [f'    - {{endpoints: ["tor{n}:e4", "c:eth{n}"], vlan: 10}}\n' for n in (1, 2)]
    (tmp_path / "before.clab.yml").write_text(before)
    (tmp_path / "after.clab.yml").write_text(after.replace("    one:", f"{host}    one:") + "".join(links))

    def run(*arguments: str) -> Done:
        return run_in(tmp_path, *arguments)

    try:
        assert run("up", "before.clab.yml", "--clock", "virtual").status == 0
        device = run("exec", "a", "--", "rdma", "dev", "show", "a-bond0").out  # with its number
        done = run("apply", "after.clab.yml")
        assert done.status == 0, done.err
        assert run("exec", "a", "--", "rdma", "dev", "show", "a-bond0").out == device != ""
        assert writes(run, ("a", "b"), ("a", "c"), ("c", "two"), ("one", "c")) == [0, 0, 0, 0]
        for address in "10.0.10.5", "2001:db8:10::5":
            assert run("exec", "two", "--", "ping", "-c", "1", "-W", "2", address).status == 0
        shown = [run("tables", switch).out for switch in ("tor1", "tor2")]
        states = [re.findall(r"mlag +0 +44:38:39:be:ef:aa po3 +(\w+)", table) for table in shown]
        assert states == [["both"], ["both"]]
    finally:
        run("down", "--all")


PODS = """\
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: {name: rail}
spec:
  config: |
    {"cniVersion": "1.0.0", "plugins": [{"type": "macvlan", "master": "eth1", "ipam": {
      "type": "ippool", "pools": [{"name": "rail", "subnet": "10.0.10.0/24", "ips": ["10.0.10.80-10.0.10.89"]}]}}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}, annotations: {k8s.v1.cni.cncf.io/networks: rail}}
    spec: {containers: [{name: main, image: none}]}
"""


def test_pods_of_a_host_that_leaves_go_elsewhere_and_it_takes_pods_when_it_is_back(lab: Run, tmp_path: Path) -> None:
    (tmp_path / "pods.yaml").write_text(PODS)
    without = "\n".join(line for line in BEFORE.splitlines() if "h2" not in line)
    (tmp_path / "without.clab.yml").write_text(without)

    def nodes() -> list[str]:
        assert lab("apply", "-f", "pods.yaml").status == 0
        return sorted(line.split()[5] for line in lab("get", "pods", "-o", "wide").out.splitlines()[1:])

    assert nodes() == ["h1", "h2"]
    assert lab("apply", "without.clab.yml").status == 0
    assert nodes() == ["h1", "h1"]
    assert lab("apply", "before.clab.yml").status == 0
    (tmp_path / "pods.yaml").write_text(PODS.replace("replicas: 2", "replicas: 3"))
    assert nodes() == ["h1", "h1", "h2"]
    wide = lab("get", "pods", "-o", "wide").out
    assert wide.count("Running") == 3, wide
