"""Files of containerlab without images, running: the commands of `exec`, `env`, and what they leave."""

import json
from ipaddress import IPv4Address
from pathlib import Path

import pytest
from living import alive

from testbed import Lab, Topology
from testbed.errors import InputError
from testbed.workload.verbs import Endpoint, connect_pair

ROUTED = """
name: routed
topology:
  kinds:
    linux: {env: {WHERE: the kind}}
  nodes:
    router:
      kind: linux
      exec:
        - sysctl -w net.ipv4.ip_forward=1
        - ip addr add 192.168.1.1/24 dev eth1
        - ip addr add 192.168.2.1/24 dev eth2
    pc1:
      kind: linux
      exec:
        - ip addr add 192.168.1.10/24 dev eth1
        - ip route add 192.168.2.0/24 via 192.168.1.1
    pc2:
      kind: linux
      env: {WHERE: the node}
      exec:
        - ip addr add 192.168.2.10/24 dev eth1
        - bash -c "ip route add 192.168.1.0/24 via 192.168.2.1 && echo set by $WHERE"
  links:
    - endpoints: ["router:eth1", "pc1:eth1"]
    - endpoints: ["router:eth2", "pc2:eth1"]
"""

ONE = "name: one\ntopology:\n  nodes:\n    a: {{kind: linux, exec: [{}]}}\n"


@pytest.mark.topology(ROUTED)
def test_commands_set_up_a_network_that_carries_rdma(lab):
    pc1, pc2 = lab.host("pc1"), lab.host("pc2")
    assert pc1.ping("192.168.2.10", within=1)
    with (
        Endpoint("pc1-eth1", pc1.namespace, IPv4Address("192.168.1.10")) as near,
        Endpoint("pc2-eth1", pc2.namespace, IPv4Address("192.168.2.10")) as far,
    ):
        connect_pair(near, far)
        assert near.write(5000, within=5).ok


@pytest.mark.topology(ROUTED)
@pytest.mark.fresh
def test_what_commands_write_is_kept_and_every_program_of_a_node_has_its_variables(lab, log):
    assert (lab.directory / "pc2-bash-2.log").read_text() == "set by the node\n"
    assert lab["pc1"].run("printenv", "WHERE").stdout == "the kind\n"
    program = lab["pc2"].spawn("printenv", "WHERE")
    assert (program.wait(5), program.output) == (0, "the node\n")
    ran = [event["data"]["command"] for event in log.find("exec") if event["node"] == "pc1"]
    assert ran == ["ip addr add 192.168.1.10/24 dev eth1", "ip route add 192.168.2.0/24 via 192.168.1.1"]


@pytest.mark.parametrize(
    ("command", "status", "message"),
    [
        ("ls /nowhere", 2, "exec ls /nowhere failed: status 2: ls: cannot access '/nowhere'"),
        ("false", 1, "exec false failed: status 1"),
        ("no-such-program", 127, "exec no-such-program failed: no-such-program cannot be started: No such file"),
        ("sleep 31", 127, "exec sleep 31 failed: sleep 31: still running after 30 s"),
    ],
)
def test_a_command_that_fails_is_a_warning_and_the_next_one_runs(tmp_path: Path, log, command, status, message):
    topology = Topology.parse(ONE.format(f'"echo before", "{command}", "touch {tmp_path}/after"'))
    with Lab(topology, tmp_path, log.emit) as lab:
        (warning,) = lab.scheduler.programs.failed()
    assert warning.startswith(f"a: {message}")
    assert (tmp_path / "a-echo-1.log").read_text() == "before\n"
    assert (tmp_path / "after").exists()
    failed = next(event for event in log.find("exec") if event["data"]["status"])
    assert (failed["data"], failed["text"]) == ({"command": command, "status": status}, warning.removeprefix("a: "))


@pytest.mark.topology(
    """
name: dummies
topology:
  defaults: {kind: linux}
  nodes: {a: {exec: [ip route add 192.0.2.9/32 via 10.0.0.2]}, b: {network-mode: none}}
  links:
    - {endpoints: ["a:eth1", "b:eth1"], ipv4: [10.0.0.1/24, 10.0.0.2/24]}
    - type: dummy
      endpoint: {node: b, interface: lo9, mac: "02:00:00:00:00:99", ipv4: 192.0.2.9/32, ipv6: "2001:db8::9/128"}
"""
)
def test_a_dummy_link_is_an_interface_with_addresses_and_no_peer(lab):
    assert lab["a"].ping("192.0.2.9", within=1)
    (link,) = json.loads(lab["b"].run("ip", "-json", "-details", "addr", "show", "lo9").stdout)
    assert (link["linkinfo"]["info_kind"], link["address"], link["flags"][-1]) == (
        "dummy",
        "02:00:00:00:00:99",
        "LOWER_UP",
    )
    assert {address["local"] for address in link["addr_info"]} >= {"192.0.2.9", "2001:db8::9"}


@pytest.mark.topology(
    """
name: managed
topology:
  defaults: {kind: linux}
  nodes:
    a: {exec: [ip link show eth0]}
    b: {mgmt-ipv4: 172.20.20.2}
    c: {network-mode: none}
  links:
    - endpoints: ["a:eth1", "b:eth1"]
    - endpoints: ["b:eth2", "c:eth1"]
"""
)
def test_the_management_network_is_there_where_a_file_speaks_of_it(lab, log):
    assert [event["data"]["status"] for event in log.find("exec")] == [0]
    addresses = {name: [str(lab[name]["eth0"].addresses[family]) for family in (4, 6)] for name in ("a", "b")}
    assert addresses == {
        "a": ["172.20.20.3/24", "3fff:172:20:20::2/64"],
        "b": ["172.20.20.2/24", "3fff:172:20:20::3/64"],
    }
    assert lab["a"].ping("172.20.20.2", within=1)
    assert lab["a"].ping("3fff:172:20:20::3", within=1)
    assert lab.host("a")["eth0"].plan.rdma is None
    assert list(lab["c"].interfaces) == ["eth1"]


def test_daemons_that_commands_start_end_with_the_lab(tmp_path: Path, log):
    daemon = f"setsid -f bash -c 'echo $$ > {tmp_path}/pid; exec sleep 1000'"
    with Lab(Topology.parse(ONE.format(f'"{daemon}"')), tmp_path, log.emit) as lab:
        assert lab.scheduler.wait((tmp_path / "pid").exists, 5)
        assert lab.scheduler.wait(lambda: (tmp_path / "pid").read_text() != "", 5)
        number = (tmp_path / "pid").read_text().strip()
        assert alive(number)
    assert not alive(number)


CLIENTS_ON_A_BRIDGE = """
# The shape of most files that have hosts only: addresses of both families by commands.
name: lab_of_clients
mgmt: {network: custom, ipv4-subnet: 172.100.100.0/24}
topology:
  kinds:
  defaults:
    kind: linux
  nodes:
    client_1:
      mgmt-ipv4: 172.100.100.11
      exec: [ip address add 192.0.2.1/24 dev eth1, ip -6 address add 2001:db8::1/64 dev eth1]
    client_2:
      exec:
        - ip link set eth1 up
        - ip address add 192.0.2.2/24 dev eth1
        - >
          sh -c 'ip link set dev eth1 down && ip link set dev eth1 up &&
          ip -6 address add 2001:db8::2/64 dev eth1'
    br-clients: {kind: bridge}
  links:
    - endpoints: ["client_1:eth1", "br-clients:client_1-eth1"]
    - endpoints: ["client_2:eth1", "br-clients:client_2-eth1"]
"""


@pytest.mark.topology(CLIENTS_ON_A_BRIDGE)
def test_hosts_on_a_bridge_reach_each_other_over_both_families(lab, log):
    one, two = lab["client_1"], lab["client_2"]
    assert one.ping("192.0.2.2", within=1)
    assert one.ping("2001:db8::2", within=1)
    link_local = link_local_of(lab, "client_2")
    assert one.ping(f"{link_local}%eth1", within=1)
    assert two.read_sysctl("net/ipv6/conf/eth1/disable_ipv6") == "0"


def link_local_of(lab, name: str) -> str:
    found = json.loads(lab[name].run("ip", "-j", "-6", "address", "show", "dev", "eth1").stdout)
    (address,) = (entry["local"] for one in found for entry in one["addr_info"] if entry["scope"] == "link")
    return str(address)


@pytest.mark.topology(CLIENTS_ON_A_BRIDGE)
@pytest.mark.fresh
def test_ipv6_of_such_a_host_is_quiet(lab):
    """No duplicate address detection, no router solicitation and no report goes out."""
    wire = lab["client_1"]["eth1"].capture("ip6")
    lab["client_2"]["eth1"].down()
    lab["client_2"]["eth1"].up()
    lab["client_2"].run("ip", "address", "add", "2001:db8::3/64", "dev", "eth1")
    lab.scheduler.sleep(5)
    wire.stop()
    assert list(wire.frames()) == []
    assert lab["client_1"].ping("2001:db8::3", within=1)


@pytest.mark.topology(CLIENTS_ON_A_BRIDGE, rdma_mode="shared")
def test_the_gid_of_the_ipv4_address_is_the_second_as_on_other_hosts(lab):
    gids = Path("/sys/class/infiniband/client_1-eth1/ports/1/gids")
    assert (gids / "1").read_text().strip() == "0000:0000:0000:0000:0000:ffff:c000:0201"


ROUTER = """
name: sysctls
topology:
  kinds:
    linux: {sysctls: {net.ipv4.ip_forward: 1, net.ipv4.conf.default.log_martians: 1}}
  groups:
    containers: {image: "alpine:3"}  # no node is in it; that there is an image makes `host` containerlab's
  nodes:
    router:
      kind: linux
      sysctls:
        net.ipv6.conf.all.forwarding: 1
        net.ipv4.conf.eth1.rp_filter: 2
        net.ipv4.ip_local_port_range: 4000 5000
    pc:
      kind: linux
      sysctls: {net.ipv6.conf.all.disable_ipv6: 1}
      exec: [ip addr add 192.0.2.1/24 dev eth1, ip route add default via 192.0.2.254]
    host_machine: {kind: host, exec: [ip addr add 198.51.100.1/24 dev veth-router]}
  links:
    - endpoints: ["router:eth1", "pc:eth1"]
      ipv4: [192.0.2.254/24]
    - endpoints: ["router:eth2", "host:veth-router"]
      ipv4: [198.51.100.254/24]
"""


@pytest.mark.topology(ROUTER)
def test_sysctls_are_set_before_interfaces_come_up_and_the_container_host_is_a_node(lab):
    router, pc = lab["router"], lab["pc"]
    assert router.read_sysctl("net/ipv4/conf/eth2/log_martians") == "1"
    assert router.read_sysctl("net/ipv4/conf/eth1/rp_filter") == "2"
    assert router.read_sysctl("net/ipv4/ip_local_port_range") == "4000\t5000"
    assert router.read_sysctl("net/ipv6/conf/eth1/forwarding") == "1"
    assert pc.run("ip", "-6", "address", "show", "dev", "eth1").stdout == ""
    assert pc.ping("198.51.100.254", within=1)
    assert all(interface.rdma is None for interface in lab.host("host_machine").interfaces.values())
    assert lab.host("host_machine").ping("198.51.100.254", within=1)


@pytest.mark.topology("""
name: switch
topology:
  nodes:
    leaf:
      kind: switch
      vlans: {10: 10.0.10.1/24}
      sysctls: {net.ipv4.ip_forward: 0, net/ipv4/conf/vlan10/rp_filter: 2}
    a: {kind: host}
  links: [{endpoints: ["leaf:e1", "a:eth1"], vlan: 10}]
""")
def test_sysctls_of_a_switch_win_over_what_makes_it_one(lab):
    leaf = lab["leaf"]
    assert (leaf.read_sysctl("net/ipv4/ip_forward"), leaf.read_sysctl("net/ipv4/conf/vlan10/rp_filter")) == ("0", "2")


@pytest.mark.parametrize(
    ("sysctl", "message"),
    [
        ("net.ipv4.no_such: 1", "a: sysctl net.ipv4.no_such = 1: a node has no such sysctl"),
        ("net.ipv4.ip_forward: often", "a: sysctl net.ipv4.ip_forward = often: Invalid argument"),
    ],
)
def test_a_sysctl_that_a_node_does_not_have_ends_the_lab(tmp_path: Path, log, sysctl, message):
    topology = Topology.parse(f"{{name: one, topology: {{nodes: {{a: {{kind: linux, sysctls: {{{sysctl}}}}}}}}}}}")
    with pytest.raises(InputError, match=message), Lab(topology, tmp_path, log.emit):
        pass
