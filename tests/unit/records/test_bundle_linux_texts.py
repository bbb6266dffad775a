"""What tools of Linux print for people, in terminals with prompts of all kinds."""

import pytest

from testbed.records.bundle import nodes
from testbed.records.bundle.model import Entry, Node

MAC, OTHER = "02:00:02:00:00:01", "02:00:03:00:00:01"
IP_ADDR = f"""\
1: lo: <LOOPBACK,UP,LOWER_UP> mtu 65536 qdisc noqueue state UNKNOWN group default qlen 1000
    link/loopback 00:00:00:00:00:00 brd 00:00:00:00:00:00
    inet 127.0.0.1/8 scope host lo
2: ens1f0np0: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 4200 qdisc mq state UP group default qlen 1000
    link/ether {MAC} brd ff:ff:ff:ff:ff:ff
    altname enp51s0f0
    inet 10.1.1.2/24 brd 10.1.1.255 scope global dynamic ens1f0np0
       valid_lft forever preferred_lft forever
    inet6 fd00:1::2/120 scope global{" "}
    inet6 fe80::2/64 scope link{" "}
7: net1@if57: <NO-CARRIER,BROADCAST,MULTICAST,UP,M-DOWN> mtu 1500 qdisc noqueue state DOWN
    link/ether {OTHER} brd ff:ff:ff:ff:ff:ff
    vlan protocol 802.1Q id 100 <REORDER_HDR>
"""
IFCONFIG = f"""\
ens1f0np0: flags=4163<UP,BROADCAST,RUNNING,MULTICAST>  mtu 4200
        inet 10.1.1.2  netmask 255.255.255.0  broadcast 10.1.1.255
        ether {MAC}  txqueuelen 1000  (Ethernet)
        RX packets 8  bytes 668 (668.0 B)

lo: flags=73<UP,LOOPBACK,RUNNING>  mtu 65536
        inet 127.0.0.1  netmask 255.0.0.0
"""
OLD_IFCONFIG = f"""\
ens1f0np0 Link encap:Ethernet  HWaddr {MAC}
          inet addr:10.1.1.2  Bcast:10.1.1.255  Mask:255.255.255.0
          UP BROADCAST RUNNING MULTICAST  MTU:4200  Metric:1
          RX packets:8 errors:0 dropped:0 overruns:0 frame:0

lo        Link encap:Local Loopback
          inet addr:127.0.0.1  Mask:255.0.0.0
"""


def read(text: str, *, switch: bool = False) -> Node:
    node = nodes.read("gpu1", text, switch=switch)
    assert node.remarks == []
    return node


@pytest.mark.parametrize(
    "prompt",
    ["$ ", "# ", "root@gpu1:/# ", "[root@gpu1 ~]# ", "user@gpu1:~$ ", "bash-4.2# ", "(venv) user@gpu1:~$ sudo ",
     "root@k8s:/home/user# kubectl exec -it train-0 -c main -- ", "$ docker exec -it train ", "# ip netns exec pod1 "],
)  # fmt: skip
@pytest.mark.parametrize("command", ["ip a", "ip addr show", "ip -d address"])
def test_addresses(prompt: str, command: str) -> None:
    node = read(f"{prompt}{command}\n{IP_ADDR}{prompt.partition('kubectl')[0]}\n")
    one, net1 = node.interfaces["ens1f0np0"], node.interfaces["net1"]
    assert (one.mac, one.addresses, one.mtu) == (MAC, ["10.1.1.2/24", "fd00:1::2/120"], 4200)
    assert (one.enabled, one.carrier) == (True, True)
    assert (net1.mac, net1.addresses, net1.vlan, net1.enabled, net1.carrier) == (OTHER, [], 100, True, False)
    assert "lo" not in node.interfaces


@pytest.mark.parametrize("text", [IFCONFIG, OLD_IFCONFIG], ids=["new", "old"])
def test_ifconfig(text: str) -> None:
    node = read(f"$ ifconfig\n{text}")
    [one] = node.interfaces.values()
    assert (one.name, one.mac, one.addresses, one.mtu) == ("ens1f0np0", MAC, ["10.1.1.2/24"], 4200)
    assert (one.enabled, one.carrier) == (True, True)


@pytest.mark.parametrize(
    ("command", "line", "entry"),
    [
        ("ip neigh", f"10.1.1.3 dev eth1 lladdr {MAC} REACHABLE", Entry(MAC, "", None)),
        ("ip n", f"10.1.1.3 dev eth1 lladdr {MAC} router STALE", Entry(MAC, "", None, stale=True)),
        ("ip neigh", "10.1.1.3 dev eth1  FAILED", Entry("", "", None, failed=True)),
        ("ip neigh", "10.1.1.3 dev eth1  INCOMPLETE", Entry("", "", None, failed=True)),
        ("ip -s neigh show 10.1.1.3", f"10.1.1.3 dev eth1 lladdr {MAC} ref 1 used 19/1/192 probes 4 REACHABLE",
         Entry(MAC, "", 192.0)),
        ("arp -n", f"10.1.1.3                 ether   {MAC}   C                     eth1", Entry(MAC, "", None)),
        ("arp -n", "10.1.1.3                         (incomplete)                              eth1",
         Entry("", "", None, failed=True)),
        ("arp -an", f"? (10.1.1.3) at {MAC} [ether] on eth1", Entry(MAC, "", None)),
        ("arp -a", "gpu2 (10.1.1.3) at <incomplete> on eth1", Entry("", "", None, failed=True)),
    ],
)  # fmt: skip
def test_neighbours(command: str, line: str, entry: Entry) -> None:
    assert read(f"$ {command}\n{line}\n").neighbours == {(0, "10.1.1.3"): entry}


def test_tables_of_a_switch_with_linux() -> None:
    text = (
        f"root@leaf1:/# ip neigh\n10.1.1.3 dev Vlan10 lladdr {MAC} REACHABLE\n10.0.0.1 dev swp9 lladdr {OTHER} STALE\n"
        f"root@leaf1:/# bridge fdb show\n{MAC} dev swp1 vlan 10 master bridge\n"
        f"{OTHER} dev swp1 vlan 10 master bridge permanent\n{OTHER} dev vxlan10 dst 10.0.0.9 self\n"
    )
    node = read(text, switch=True)
    assert node.neighbours[10, "10.1.1.3"].mac == MAC
    assert node.neighbours[0, "10.0.0.1"].port == "swp9"
    assert node.macs == {(10, MAC): "swp1"}


SONIC_ARP = f"""\
Command: /usr/sbin/arp -n
Address                  HWtype  HWaddress           Flags Mask            Iface
10.1.1.3                 ether   {MAC}   C                     Vlan10
10.1.1.4                         (incomplete)                              Vlan10
"""
SONIC_NEIGHBOURS = f"10.1.1.3 dev Vlan10 lladdr {MAC} used 1/2/3 probes 0 STALE\n10.1.1.4 dev Vlan10  FAILED\n"


@pytest.mark.parametrize("output", [SONIC_ARP, SONIC_NEIGHBOURS], ids=["arp", "ip neighbor"])
def test_show_arp_of_old_versions_of_sonic(output: str) -> None:
    node = read(f"admin@leaf1:~$ show arp\n{output}admin@leaf1:~$\n", switch=True)
    assert node.system == "SONiC"
    assert (node.neighbours[10, "10.1.1.3"].mac, node.neighbours[10, "10.1.1.4"].failed) == (MAC, True)


def test_show_ndp_of_old_and_new_versions_of_sonic() -> None:
    old = read(f"admin@leaf1:~$ show ndp\nfd00:1::2 dev Ethernet4 lladdr {MAC} REACHABLE\n", switch=True)
    table = (
        "Address    MacAddress         Iface      Vlan    Status\n"
        "---------  -----------------  ---------  ------  ---------\n"
        f"fd00:1::2  {MAC}  Ethernet4  -       REACHABLE\n"
    )
    new = read(f"admin@leaf1:~$ show ndp\n{table}", switch=True)
    assert old.neighbours == new.neighbours == {(0, "fd00:1::2"): Entry(MAC, "Ethernet4", None)}


def test_devices() -> None:
    text = (
        "$ rdma link\nlink mlx5_0/1 state ACTIVE physical_state LINK_UP netdev ens1\n"
        "link mlx5_9/1 subnet_prefix fe80 lid 3 state ACTIVE\n"
        "$ ibdev2netdev\nmlx5_1 port 1 ==> ens2 (Up)\n"
        "$ /usr/sbin/show_gids\nDEV\tPORT\tINDEX\tGID\t\t\t\tIPv4\t\tVER\tDEV\n---\t----\t-----\t---\t---\t---\t---\n"
        "mlx5_2\t1\t4\tfe80:0000:0000:0000:0000:00ff:fe00:0002\t\t\tv1\tnet1\n"
        "mlx5_2\t1\t7\t0000:0000:0000:0000:0000:ffff:0a01:0102\t10.1.1.2  \tv2\tnet1\nn_gids_found=2\n"
    )
    node = read(text)
    assert {name: one.rdma for name, one in node.interfaces.items()} == {
        "ens1": "mlx5_0", "ens2": "mlx5_1", "net1": "mlx5_2",
    }  # fmt: skip
    assert node.interfaces["net1"].addresses == ["10.1.1.2/32"]


@pytest.mark.parametrize(
    ("text", "carrier"),
    [
        ("$ rdma link\nlink mlx5_0/1 state DOWN physical_state DISABLED netdev ens1\n", False),
        ("$ rdma link\nlink mlx5_0/1 state ACTIVE physical_state LINK_UP netdev ens1\n", True),
        ("$ ibdev2netdev\nmlx5_0 port 1 ==> ens1 (Down)\n", False),
        ('### rdma -j link\n[{"ifname":"mlx5_0","state":"DOWN","physical_state":"POLLING","netdev":"ens1"}]\n', False),
        ("$ ip a\n2: ens1: <UP,LOWER_UP> mtu 1500 qdisc mq\n$ ibdev2netdev\nmlx5_0 port 1 ==> ens1 (Down)\n", True),
    ],
)
def test_a_device_that_is_down_has_no_carrier_where_nothing_else_says_it(text: str, carrier: bool) -> None:
    assert read(text).interfaces["ens1"].carrier is carrier


LLDP = """\
-------------------------------------------------------------------------------
LLDP neighbors:
-------------------------------------------------------------------------------
Interface:    ens1, via: LLDP, RID: 1, Time: 0 day, 00:03:12
  Chassis:
    ChassisID:    mac 02:00:01:00:00:01
    SysName:      leaf1.example.com
    SysDescr:     SONiC Software Version: 202305
    MgmtIP:       10.9.9.1
  Port:
    PortID:       local Eth1/4
    PortDescr:    Ethernet12
-------------------------------------------------------------------------------
Interface:    ens2, via: LLDP, RID: 2, Time: 0 day, 00:03:12
  Chassis:
    SysName:      gpu7
  Port:
    PortID:       mac 02:00:02:00:00:01
    PortDescr:    eth1
-------------------------------------------------------------------------------
"""


@pytest.mark.parametrize("command", ["lldpctl", "lldpcli show neighbors", "show lldp neighbors"])
def test_neighbours_of_lldpd(command: str) -> None:
    assert read(f"$ {command}\n{LLDP}").cables == {"ens1": ("leaf1", "Eth1/4"), "ens2": ("gpu7", "eth1")}


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("link mlx5_0/1 rx_write_requests 3 out_of_sequence 9 lifespan 10", "out_of_seq_request"),
        ("link mlx5_0/1 req_transport_retries_exceeded 9", "retry_exceeded_err"),
        ("link bnxt_re0/1 active_qps 4 to_retransmits 9 dup_req 0", "completer_retry_err"),
        ("link bnxt_re0/1 seq_err_naks_rcvd 9", "rcvd_seq_err"),
        ("link irdma0/1 ip4InOctets 3 RNR sent 1 Nak Sequence Error 9", "rcvd_seq_err"),
        ("link irdma0/1 cnpIgnored 9", "rp_cnp_ignored"),
    ],
)
def test_counters_of_devices(line: str, name: str) -> None:
    node = read(f"$ date +%s.%N\n1796008455.0\n$ rdma statistic\n{line}\n")
    [(_, found)] = node.readings
    assert found[line.split()[1].partition("/")[0], name] == 9


def test_counters_in_files() -> None:
    directory = "/sys/class/infiniband/mlx5_0/ports/1/hw_counters"
    text = f'bash-4.2# grep "" {directory}/*\n{directory}/packet_seq_err:9\n{directory}/lifespan:10\n'
    node = read(f"$ date +%s.%N\n1796008455.0\n{text}")
    assert node.readings[0][1]["mlx5_0", "rcvd_seq_err"] == 9
    untimed = nodes.read("gpu1", text, switch=False)
    assert "counters have no time" in untimed.remarks[0]


@pytest.mark.parametrize(
    "text",
    [
        "$ ip a\n2: eth0: <UP> mtu x\n    inet 10.1.1.2/99 scope global eth0\n",
        "$ ip neigh\n999.1.1.1 dev eth0 lladdr 02:00:02:00:00:01 REACHABLE\n",
        "$ ifconfig\neth0: flags=1<UP>  mtu 1500\n        inet 10.1.1.2  netmask 255.0.255.0\n",
        "$ show_gids\nmlx5_0 1 3 0000:0000 10.1.1. v2 eth0\n",
        "$ arp -n\n999.1.1.1   ether   02:00:02:00:00:01   C    eth0\n",
    ],
)
def test_what_makes_no_sense_is_a_remark_or_left_out(text: str) -> None:
    node = nodes.read("gpu1", text, switch=False)
    assert node.neighbours == {}
    assert all(not one.addresses for one in node.interfaces.values())


@pytest.mark.parametrize(
    "text",
    [
        "$ ip route\ndefault via 10.1.1.1 dev eth1 proto static\n10.1.1.0/24 dev eth1 scope link\n",
        "$ route -n\nKernel IP routing table\n0.0.0.0  10.1.1.1   0.0.0.0   UG    0      0        0 eth1\n",
    ],
)
def test_gateways(text: str) -> None:
    assert read(text).gateways == ["10.1.1.1"]
