"""A lossless class through EVPN's tunnels, to a host with a bond to two leaves."""

import pytest

from testbed.errors import InputError
from testbed.workload import Attributes, Streams

MARKED, LOSSLESS = "SAI_QUEUE_STAT_WRED_ECN_MARKED_PACKETS:3", "SAI_QUEUE_STAT_BYTES:3"
pytestmark = pytest.mark.topology("""
name: tunnels
topology:
  routing: evpn
  lossless: {dscp: 26, priority: 3}
  groups:
    leaf: {kind: switch, svi_mac: "00:00:5e:00:01:fe", vlans: {10: 10.0.10.1/24}, vnis: {10: 10010}}
  kinds:
    host: {nic: hardware, congestion_values: {scale: 100}}
    switch: {profile_values: {buffer: 250000, pfc_headroom: 10000, ecn_min: 5000, ecn_max: 30000, ecn_probability: 10}}
  nodes:
    spine: {kind: switch}
    leaf1: {group: leaf}
    leaf2: {group: leaf, bonds: {po1: {members: [e1], system: "44:38:39:be:ef:aa", es_id: 1, lacp_rate: fast}}}
    leaf3: {group: leaf, bonds: {po1: {members: [e1], system: "44:38:39:be:ef:aa", es_id: 1, lacp_rate: fast}}}
    a: {kind: host}
    b: {kind: host}
    c: {kind: host, bonds: {bond0: {members: [eth1, eth2], lacp_rate: fast}}}
  links:
    - {endpoints: ["leaf1:u1", "spine:d1"], rate: 100mbit}
    - {endpoints: ["leaf2:u1", "spine:d2"], rate: 100mbit}
    - {endpoints: ["leaf3:u1", "spine:d3"], rate: 100mbit}
    - {endpoints: ["leaf1:e1", "a:eth1"], vlan: 10, rate: 100mbit}
    - {endpoints: ["leaf1:e2", "b:eth1"], vlan: 10, rate: 100mbit}
    - {endpoints: ["leaf2:e1", "c:eth1"], vlan: 10, rate: 100mbit}
    - {endpoints: ["leaf3:e1", "c:eth2"], vlan: 10, rate: 100mbit}
""")


def test_class_and_marks_cross_the_tunnels_and_slow_down_those_who_send(lab):
    """Two hosts of one leaf share its uplink. The marks are on the outer header there (RFC 6040)."""
    hosts = [lab["a"]["eth1"], lab["b"]["eth1"]]
    to = lab["c"]["bond0"]
    with Streams([(host, to) for host in hosts], Attributes(timeout=16, traffic_class=26 << 2 | 2)) as streams:
        streams.run(0.3)
        rates = streams.run(0.3)
    uplink = lab["leaf1"]["u1"].lossless.counters()
    assert uplink[MARKED] > 0
    members = [lab["c"][name].lossless.counters() for name in ("eth1", "eth2")]
    assert sum(counted["np_ecn_marked_roce_packets"] for counted in members) == uplink[MARKED]
    assert all(host.lossless.counters()["rp_cnp_handled"] > 0 for host in hosts)
    assert 40e6 < sum(rates) < 100e6
    delivered = [lab[leaf]["e1"].lossless.counters()[LOSSLESS] for leaf in ("leaf2", "leaf3")]
    assert sum(delivered) > 0.9 * uplink[LOSSLESS]
    drops = {
        name: count
        for leaf in ("leaf1", "leaf2", "leaf3", "spine")
        for port in lab[leaf].interfaces.values()
        if port.port
        for name, count in port.lossless.counters().items()
        if "DROPPED" in name and name.endswith(":3") and count
    }
    assert drops == {}


def test_a_bond_has_no_queues_its_members_have(lab):
    with pytest.raises(InputError, match="c:bond0 is a bond") as raised:
        _ = lab["c"]["bond0"].lossless
    assert raised.value.hint == "Its links: eth1, eth2."


SPINES = """
name: tunnels
topology:
  routing: evpn
  lossless: {dscp: 26, priority: 3}
  groups:
    leaf: {kind: switch, svi_mac: "00:00:5e:00:01:fe", vlans: {10: 10.0.10.1/24}, vnis: {10: 10010}}
  kinds:
    host: {nic: hardware, congestion_control: hpcc, reorder: 128}
    switch: {profile_values: {buffer: 250000, pfc_headroom: 10000}}
  nodes:
    spine1: {kind: switch}
    spine2: {kind: switch}
    leaf1: {group: leaf, load_balancing: spray}
    leaf2: {group: leaf, load_balancing: spray}
    a: {kind: host}
    c: {kind: host}
  links:
    - {endpoints: ["leaf1:u1", "spine1:d1"], rate: 50mbit}
    - {endpoints: ["leaf1:u2", "spine2:d1"], rate: 50mbit}
    - {endpoints: ["leaf2:u1", "spine1:d2"], rate: 50mbit}
    - {endpoints: ["leaf2:u2", "spine2:d2"], rate: 50mbit}
    - {endpoints: ["leaf1:e1", "a:eth1"], vlan: 10, rate: 100mbit}
    - {endpoints: ["leaf2:e1", "c:eth1"], vlan: 10, rate: 100mbit}
"""


@pytest.mark.topology(SPINES)
def test_packets_in_tunnels_are_sprayed_and_their_telemetry_is_unknown(lab):
    """The hash that is set is the outer source port's. Ports see the tunnel's packets, so rates stay those of links."""
    with Streams(
        [(lab["a"]["eth1"], lab["c"]["eth1"])], Attributes(timeout=18, traffic_class=26 << 2), ahead=16
    ) as streams:
        streams.run(0.3)
        [rate] = streams.run(0.3)
    sent = [lab["leaf1"][name].lossless.counters()[LOSSLESS] for name in ("u1", "u2")]
    assert max(sent) / min(sent) < 1.1
    assert rate > 60e6
    assert lab["c"]["eth1"].rdma_counters()["out_of_sequence"] == 0
    assert lab["c"]["eth1"].lossless.counters()["rx_reordered_packets"] > 0
