"""Bonds of hosts, port channels of switches and pairs of switches, as tools of Linux and switches print them."""

import json

import pytest

from testbed.records.bundle import nodes
from testbed.records.bundle.model import Node

MAC, OWN, PARTNER = "02:00:02:00:00:01", "02:00:02:00:00:02", "44:38:39:be:ef:aa"


def member(name: str, master: str = "bond0", kind: str = "bond", **more: object) -> dict[str, object]:
    return {
        "ifname": name, "flags": ["BROADCAST", "UP", "LOWER_UP", *(["SLAVE"] if kind == "bond" else [])], "mtu": 9000,
        "master": master, "address": MAC, "permaddr": OWN, "addr_info": [],
        "linkinfo": {"info_slave_kind": kind, "info_slave_data": {"state": "ACTIVE", "perm_hwaddr": OWN}}, **more,
    }  # fmt: skip


BOND = {
    "ifname": "bond0", "flags": ["BROADCAST", "MASTER", "UP", "LOWER_UP"], "mtu": 9000, "address": MAC,
    "addr_info": [{"family": "inet", "local": "10.1.1.2", "prefixlen": 24, "scope": "global"}],
    "linkinfo": {"info_kind": "bond", "info_data": {"mode": "802.3ad", "ad_info": {"partner_mac": PARTNER}}},
}  # fmt: skip
AS_JSON = f"### ip -j -d address\n{json.dumps([member('eth0'), member('eth1'), BOND])}\n"
AS_TEXT = f"""\
$ ip -d addr
2: eth0: <BROADCAST,MULTICAST,SLAVE,UP,LOWER_UP> mtu 9000 qdisc mq master bond0 state UP group default qlen 1000
    link/ether {MAC} brd ff:ff:ff:ff:ff:ff promiscuity 0 minmtu 68 maxmtu 9978
    bond_slave state ACTIVE mii_status UP link_failure_count 0 perm_hwaddr {OWN} queue_id 0 ad_aggregator_id 1
3: eth1: <BROADCAST,MULTICAST,SLAVE,UP,LOWER_UP> mtu 9000 qdisc mq master bond0 state UP group default qlen 1000
    link/ether {MAC} brd ff:ff:ff:ff:ff:ff promiscuity 0 minmtu 68 maxmtu 9978
    bond_slave state ACTIVE mii_status UP link_failure_count 0 perm_hwaddr {OWN} queue_id 0 ad_aggregator_id 1
4: bond0: <BROADCAST,MULTICAST,MASTER,UP,LOWER_UP> mtu 9000 qdisc noqueue state UP group default qlen 1000
    link/ether {MAC} brd ff:ff:ff:ff:ff:ff promiscuity 0 minmtu 68 maxmtu 65535
    bond mode 802.3ad miimon 100 updelay 0 xmit_hash_policy layer3+4 ad_aggregator 1 ad_partner_mac {PARTNER}
    inet 10.1.1.2/24 brd 10.1.1.255 scope global bond0
5: veth7@if6: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1500 qdisc noqueue master br0 state UP group default
    link/ether 02:00:09:00:00:01 brd ff:ff:ff:ff:ff:ff
"""
PROC = f"""\
### cat /proc/net/bonding/bond0
Ethernet Channel Bonding Driver: v5.15.0-91-generic

Bonding Mode: IEEE 802.3ad Dynamic link aggregation
Transmit Hash Policy: layer3+4 (1)
MII Status: up
MII Polling Interval (ms): 100

802.3ad info
LACP active: on
Active Aggregator Info:
\tAggregator ID: 1
\tPartner Mac Address: {PARTNER}

Slave Interface: eth0
MII Status: up
Speed: 100000 Mbps
Permanent HW addr: {OWN}

Slave Interface: eth1
MII Status: down
Permanent HW addr: {OWN}
details partner lacp pdu:
    system mac address: {PARTNER}
"""


def read(text: str, *, switch: bool = False) -> Node:
    node = nodes.read("one", text, switch=switch)
    assert node.remarks == []
    return node


@pytest.mark.parametrize("text", [AS_JSON, AS_TEXT, PROC, PROC.replace("### ", "root@gpu1:~# ")])
def test_a_bond_of_a_host(text: str) -> None:
    node = read(text)
    bond = node.interfaces["bond0"]
    assert [(one.name, one.permanent) for one in node.bonds()["bond0"]] == [("eth0", OWN), ("eth1", OWN)]
    assert (bond.mode, bond.partner, bond.master) == ("802.3ad", PARTNER, "")
    assert list(node.bonds()) == ["bond0"]


@pytest.mark.parametrize("mac", ["00:00:00:00:00:00", "ff:ff:ff:ff:ff:ff", "01:80:c2:00:00:02", "none"])
def test_a_bond_without_a_partner(mac: str) -> None:
    assert read(PROC.replace(PARTNER, mac)).interfaces["bond0"].partner == ""


def test_links_of_a_bond_that_are_up_and_down() -> None:
    node = read(PROC)
    assert [node.interfaces[name].carrier for name in ("bond0", "eth0", "eth1")] == [True, True, False]
    assert not read(AS_JSON.replace('"LOWER_UP", "SLAVE"', '"SLAVE"', 1) + PROC).interfaces["eth0"].carrier


def test_a_bridge_is_no_bond() -> None:
    node = read(f"### ip -j -d address\n{json.dumps([member('eth0', 'br0', 'bridge')])}\n")
    assert node.interfaces["eth0"].master == ""


@pytest.mark.parametrize(
    ("words", "mode"),
    [
        ("load balancing (xor)", "balance-xor"),
        ("fault-tolerance (active-backup)", "active-backup"),
        ("transmit load balancing", "balance-tlb"),
        ("something new", ""),
    ],
)
def test_modes(words: str, mode: str) -> None:
    assert read(PROC.replace("IEEE 802.3ad Dynamic link aggregation", words)).interfaces["bond0"].mode == mode


def test_links_without_their_addresses_keep_those_that_are_known() -> None:
    link = {key: value for key, value in BOND.items() if key != "addr_info"}
    node = read(f"{AS_JSON}### ip -j -d link\n{json.dumps([link])}\n")
    assert node.interfaces["bond0"].addresses == ["10.1.1.2/24"]


@pytest.mark.parametrize("netdev", ["bond0", "eth1"])
def test_a_device_of_a_nic_with_roce_lag_is_the_bond_s(netdev: str) -> None:
    node = read(f"{AS_JSON}$ rdma link\nlink mlx5_bond_0/1 state ACTIVE physical_state LINK_UP netdev {netdev}\n")
    assert {one.name: one.rdma for one in node.interfaces.values()} == {"eth0": "", "eth1": "", "bond0": "mlx5_bond_0"}


def test_devices_of_the_members_stay_theirs() -> None:
    links = "".join(f"link mlx5_{n}/1 state ACTIVE physical_state LINK_UP netdev eth{n}\n" for n in (0, 1))
    node = read(f"{AS_JSON}$ rdma link\n{links}")
    assert [node.interfaces[name].rdma for name in ("eth0", "eth1", "bond0")] == ["mlx5_0", "mlx5_1", ""]


EOS = """\
leaf1#show port-channel summary
                 Flags
------------------------ ---------------------------- -------------------------
  a - LACP Active        p - LACP Passive           * - static fallback
  U - In Use             D - Down
  P - bundled in Po      s - suspended              G - Aggregable
Number of channels in use: 2
Number of aggregators: 2

   Port-Channel       Protocol    Ports
------------------ -------------- ---------------------
   Po1(U)             LACP(a)     Et1(PG+) PEt1(P)
   Po20(U)            LACP(a)     Et49/1(PG+) Et50/1(PG+)
"""
EOS_LACP = """\
leaf1#show lacp neighbor
State: A = Active, P = Passive; S=ShortTimeout, L=LongTimeout;
                 |                        Partner
 Port    Status  | Sys-id                    Port#   State     OperKey  PortPri
----- ---------- ------------------------- -------- --------- --------- -------
Port Channel Port-Channel1:
 Et1     Bundled | 8000,02-00-02-00-00-01       1   ALGs+CD   0x000f    255
Port Channel Port-Channel20:
 Et49/1  Bundled | 8000,02-00-03-00-00-01       1   ALGs+CD   0x000f    255
 Et50/1  Bundled | 8000,02-00-03-00-00-01       2   ALGs+CD   0x000f    255
"""
NXOS = """\
leaf1# show port-channel summary
Flags:  D - Down        P - Up in port-channel (members)
        I - Individual  H - Hot-standby (LACP only)
        U - Up (port-channel)
--------------------------------------------------------------------------------
Group Port-       Type     Protocol  Member Ports
      Channel
--------------------------------------------------------------------------------
1     Po1(SU)     Eth      LACP      Eth1(P)
10    Po10(SD)    Eth      NONE      --
20    Po20(SU)    Eth      LACP      Eth49/1(P)   Eth50/1(D)
"""
SONIC = """\
admin@leaf1:~$ show interfaces portchannel
Flags: A - active, I - inactive, Up - up, Dw - Down, N/A - not available,
       S - selected, D - deselected, * - not synced
  No.  Team Dev         Protocol     Ports
-----  ---------------  -----------  -----------------------------
 0001  PortChannel0001  LACP(A)(Up)  Ethernet1(S)
 0020  PortChannel0020  LACP(A)(Dw)  Ethernet49/1(S) Ethernet50/1(D)
"""


@pytest.mark.parametrize(
    ("text", "name"),
    [(EOS, "Port-Channel{}"), (EOS_LACP, "Port-Channel{}"), (NXOS, "Port-Channel{}"), (SONIC, "PortChannel00{:02}")],
    ids=["EOS", "EOS, LACP", "NX-OS", "SONiC"],
)
def test_port_channels_of_a_switch(text: str, name: str) -> None:
    node = read(text, switch=True)
    members = [[one.name for one in node.bonds().get(name.format(number), ())] for number in (1, 10, 20)]
    assert members == [["Ethernet1"], [], ["Ethernet49/1", "Ethernet50/1"]]


def test_port_channels_of_linux() -> None:
    rows = [member("Ethernet0", "PortChannel0001", "team"), member("swp1", "bond1")]
    node = read(f"### ip -j -d address\n{json.dumps(rows)}\n", switch=True)
    assert {one.name: one.master for one in node.interfaces.values() if one.master} == {
        "Ethernet0": "PortChannel0001", "swp1": "bond1",
    }  # fmt: skip


def test_a_port_channel_has_one_name_in_all_tables() -> None:
    text = (
        "leaf1#show ip arp\nAddress         Age (sec)  Hardware Addr   Interface\n"
        "10.1.1.2        0:03:12    0200.0200.0001  Vlan10, Port-Channel1\n"
        "leaf1#show mac address-table\n          Mac Address Table\n"
        "------------------------------------------------------------------\n\n"
        "Vlan    Mac Address       Type        Ports      Moves   Last Move\n"
        "----    -----------       ----        -----      -----   ---------\n"
        "  10    0200.0200.0001    DYNAMIC     Po1        1       0:03:12 ago\n"
        "Total Mac Addresses for this criterion: 1\n"
    )
    node = read(text + EOS, switch=True)
    assert node.neighbours[10, "10.1.1.2"].port == node.macs[10, MAC] == node.interfaces["Ethernet1"].master


MLAG = f"""\
leaf1#show mlag
MLAG Configuration:
domain-id                          :               mlag1
local-interface                    :            Vlan4094
peer-address                       :          10.255.255.2
peer-link                          :     Port-Channel20
peer-config                        :          consistent

MLAG Status:
state                              :              Active
system-id                          :   {PARTNER}
"""
VPC = """\
leaf1# show vpc
vPC domain id                     : 1
Peer status                       : peer adjacency formed ok

vPC Peer-link status
---------------------------------------------------------------------
id    Port   Status Active vlans
--    ----   ------ -------------------------------------------------
1     Po20   up     1,10

vPC status
----------------------------------------------------------------------------
Id    Port          Status Consistency Reason                Active vlans
--    ------------  ------ ----------- ------                ---------------
1     Po1           up     success     success               10
"""
MCLAG = f"""\
admin@leaf1:~$ show mclag brief
Domain ID                    : 5
Peer Link                    : Port-Channel20
System Mac                   : {PARTNER}
"""
CLAG = f"""\
### clagctl
The peer is alive
     Our Priority, ID, and Role: 32768 02:00:01:00:00:01 primary
          Peer Interface and IP: peerlink.4094 fe80::1 (linklocal)
                     System MAC: {PARTNER}
"""


@pytest.mark.parametrize(("text", "link", "system"), [
    (MLAG, "Port-Channel20", PARTNER), (VPC, "Port-Channel20", ""), (MCLAG, "Port-Channel20", PARTNER),
    (CLAG, "peerlink", PARTNER),
])  # fmt: skip
def test_two_switches_that_are_a_pair(text: str, link: str, system: str) -> None:
    node = read(text, switch=True)
    assert (node.peer_link, node.pair) == (link, system)


@pytest.mark.parametrize(
    "text",
    [
        "### ip -j -d address\n" + json.dumps([{"ifname": "a", "mtu": 1, "linkinfo": []}]),
        "### ip -j -d address\n" + json.dumps([{"ifname": "a", "mtu": 1, "linkinfo": {"info_data": 3}}]),
        "### cat /proc/net/bonding/bond0\n" + "Slave Interface: " * 10_000 + "\nMII Status\n: \n",
        "### show mlag\npeer-link :\n: x\nsystem-id : nobody\n",
        "leaf1# show port-channel summary\nPo1(SU) Eth LACP Eth1/1(P\n",
        "admin@leaf1:~$ show interfaces portchannel\n No.  Ports\n---- ----\n",
        "### show lacp neighbor\n Et1 Bundled\nPort Channel\n",
    ],
)
def test_what_makes_no_sense_gives_no_members(text: str) -> None:
    node = nodes.read("one", text + "\n", switch=True)
    assert {one.master for one in node.interfaces.values()} <= {""}
    assert (node.peer_link, node.pair) == ("", "")


VLAN_JSON = {
    "ifname": "bond0.100", "link": "bond0", "flags": ["UP", "LOWER_UP"], "mtu": 9000, "address": MAC,
    "addr_info": [{"family": "inet", "local": "10.9.9.2", "prefixlen": 24, "scope": "global"}],
    "linkinfo": {"info_kind": "vlan", "info_data": {"id": 100}},
}  # fmt: skip
VLAN_TEXT = f"""\
6: bond0.100@bond0: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 9000 qdisc noqueue state UP group default qlen 1000
    link/ether {MAC} brd ff:ff:ff:ff:ff:ff promiscuity 0 minmtu 0 maxmtu 65535
    vlan protocol 802.1Q id 100 <REORDER_HDR>
    inet 10.9.9.2/24 brd 10.9.9.255 scope global bond0.100
"""


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("as_json", [False, True])
def test_an_address_of_a_vlan_on_a_bond_is_one_of_its_rdma_device(own: bool, as_json: bool) -> None:
    bond = BOND if own else BOND | {"addr_info": []}
    lines = AS_TEXT.splitlines(keepends=True)
    text = "".join(line for line in lines if own or "10.1.1.2" not in line) + VLAN_TEXT
    if as_json:
        text = f"### ip -j -d address\n{json.dumps([member('eth0'), member('eth1'), bond, VLAN_JSON])}\n"
    node = read(f"{text}$ rdma link\nlink mlx5_bond_0/1 state ACTIVE physical_state LINK_UP netdev bond0\n")
    assert node.interfaces["bond0"].addresses == (["10.1.1.2/24"] if own else ["10.9.9.2/24"])
    assert node.interfaces["bond0.100"].addresses == (["10.9.9.2/24"] if own else [])
