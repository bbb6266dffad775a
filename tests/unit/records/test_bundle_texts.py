"""What switches print of their tables, in the formats of their vendors' documents."""

import pytest

from testbed.records.bundle import nodes
from testbed.records.bundle.model import Entry

EOS = """\
leaf1#show clock
Mon Nov 30 03:14:15 2026
Timezone: UTC
leaf1#show ip arp
Address         Age (sec)  Hardware Addr   Interface
10.1.1.2        0:03:12    0200.0200.0001  Vlan10, Ethernet1
10.1.1.3        N/A        0200.0300.0001  Vlan10, Ethernet2
leaf1#show mac address-table
          Mac Address Table
------------------------------------------------------------------

Vlan    Mac Address       Type        Ports      Moves   Last Move
----    -----------       ----        -----      -----   ---------
  10    0200.0200.0001    DYNAMIC     Et1        1       0:03:12 ago
Total Mac Addresses for this criterion: 1
leaf1#show lldp neighbors
Last table change time   : 0:03:12 ago
Number of table inserts  : 2
Number of table deletes  : 0
Number of table drops    : 0
Number of table age-outs : 0

Port          Neighbor Device ID       Neighbor Port ID    TTL
---------- ------------------------ ---------------------- ---
Et1           gpu1.example.com         eth1                120
Et49/1        spine1.example.com       Ethernet1/1         120
leaf1#
"""
NXOS = """\
leaf1# show clock
03:14:15.125 UTC Mon Nov 30 2026
leaf1# show ip arp vrf all

Flags: * - Adjacencies learnt on non-active FHRP router

IP ARP Table for all contexts
Total number of entries: 2
Address         Age       MAC Address     Interface       Flags
10.1.1.2        00:03:12  0200.0200.0001  Vlan10
10.1.1.3        1d02h     0200.0300.0001  Vlan10
leaf1# show mac address-table
Legend:
        * - primary entry, G - Gateway MAC, (R) - Routed MAC, O - Overlay MAC
        age - seconds since last seen,+ - primary entry using vPC Peer-Link,
        (T) - True, (F) - False, C - ControlPlane MAC, ~ - vsan
   VLAN     MAC Address      Type      age     Secure NTFY Ports
---------+-----------------+--------+---------+------+----+------------------
*   10     0200.0200.0001   dynamic  0         F      F    Eth1/1
leaf1# show lldp neighbors
Capability codes:
  (R) Router, (B) Bridge, (T) Telephone, (C) DOCSIS Cable Device
  (W) WLAN Access Point, (P) Repeater, (S) Station, (O) Other
Device ID            Local Intf      Hold-time  Capability  Port ID
gpu1.example.com     Eth1/1          120                    eth1
Total entries displayed: 1
leaf1#
"""
SONIC = """\
admin@leaf1:~$ show arp
Address    MacAddress         Iface            Vlan
---------  -----------------  ---------------  ------
10.1.1.2   02:00:02:00:00:01  Ethernet0        10
10.0.0.57  02:00:03:00:00:01  PortChannel0101  -
Total number of entries 2
admin@leaf1:~$ show mac
  No.    Vlan  MacAddress         Port       Type
-----  ------  -----------------  ---------  -------
    1      10  02:00:02:00:00:01  Ethernet0  Dynamic
Total number of entries 1
admin@leaf1:~$ show lldp table
Capability codes: (R) Router, (B) Bridge, (O) Other
LocalPort    RemoteDevice      RemotePortID       Capability    RemotePortDescr
-----------  ----------------  -----------------  ------------  -----------------
Ethernet0    gpu1              02:00:02:00:00:01  O             eth1
Ethernet48   spine1            Ethernet0          BR            to leaf1
--------------------------------------------------
Total entries displayed:  2
"""


@pytest.mark.parametrize(
    ("text", "system", "first", "port"),
    [
        (EOS, "EOS", Entry("02:00:02:00:00:01", "Ethernet1", 192.0), "Ethernet1"),
        (NXOS, "NX-OS", Entry("02:00:02:00:00:01", "", 192.0), "Ethernet1/1"),
        (SONIC, "SONiC", Entry("02:00:02:00:00:01", "Ethernet0", None), "Ethernet0"),
    ],
    ids=["EOS", "NX-OS", "SONiC"],
)
def test_tables_of_a_switch(text: str, system: str, first: Entry, port: str) -> None:
    node = nodes.read("leaf1", text, switch=True)
    assert node.remarks == []
    assert node.system == system
    assert node.neighbours[10, "10.1.1.2"] == first
    assert node.macs == {(10, "02:00:02:00:00:01"): port}
    assert node.cables[port] == ("gpu1", "eth1")
    assert node.interfaces[port].vlan == 10
    if system != "SONiC":
        assert node.collected
        assert node.collected // 10**9 == 1796008455


def test_ports_have_their_long_names() -> None:
    node = nodes.read("leaf1", EOS, switch=True)
    assert node.cables["Ethernet49/1"] == ("spine1", "Ethernet1/1")
    node = nodes.read("leaf1", SONIC, switch=True)
    assert node.cables["Ethernet48"] == ("spine1", "Ethernet0")
    assert node.neighbours[0, "10.0.0.57"].port == "PortChannel0101"


@pytest.mark.parametrize(
    ("output", "zone"),
    [
        ("Mon Nov 30 11:14:15 2026\nTimezone: Asia/Shanghai\nClock source: local", 8),
        ("Mon Nov 30 03:14:15 2026\nTimezone: UTC\nClock source: NTP server (10.0.0.9)", 0),
        ("04:14:15.125 CET Mon Nov 30 2026\nTime source is NTP", 1),
        ("Mon Nov 30 03:14:15 UTC 2026", 0),
        ("Mon 30 Nov 2026 03:14:15 AM UTC", 0),
        ("Sun 29 Nov 2026 07:14:15 PM PST", -8),
    ],
)
def test_clocks_in_zones(output: str, zone: int) -> None:
    node = nodes.read("leaf1", f"leaf1# show clock\n{output}\n", switch=True)
    assert node.collected
    assert (node.collected // 10**9, node.zone, node.remarks) == (1796008455, zone * 3600, [])


def test_a_clock_in_an_unknown_zone_is_not_known() -> None:
    node = nodes.read("leaf1", "leaf1# show clock\n03:14:15.125 CST Mon Nov 30 2026\n", switch=True)
    assert node.collected is None
    assert "the time zone of its clock is not known" in node.remarks[0]


def test_the_zone_of_a_host() -> None:
    assert nodes.read("gpu1", "### date +%z\n+0530\n\n### date +%s.%N\n1796008455.5\n", switch=False).zone == 19800


@pytest.mark.parametrize(
    "text",
    [
        "### ip -j address\n[{]\n",
        '### ip -j address\n{"a": 1}\n',
        '### ip -j address\n[{"ifname": 3}]\n',
        "### ip -j address\n" + "[" * 100_000,
        '### bridge -j fdb\n[{"mac": "x", "ifname": "e1", "vlan": "a"}]\n',
        "### date +%s.%N\nyesterday\n",
        "### ethtool -S eth1\n rx: 5\n",
        "### lldpctl -f json\n{}\n",
        "leaf1# show ip arp\nMAC Address of nobody\n",
    ],
)
def test_what_is_not_understood_is_a_remark(text: str) -> None:
    node = nodes.read("leaf1", text, switch=True)
    [remark] = node.remarks
    assert remark.startswith("leaf1: what `")


@pytest.mark.parametrize(("name", "said"), [("storage", True), ("management", False), ("MGMT", False)])
def test_tables_of_another_vrf_are_left_out_and_it_is_said(name: str, said: bool) -> None:
    node = nodes.read("leaf1", EOS.replace("show ip arp", f"show ip arp vrf {name}"), switch=True)
    assert node.neighbours == {}
    left_out = [f"leaf1: `show ip arp vrf {name}` is left out: whose VRF that is is not known"]
    assert node.remarks == (left_out if said else [])
