"""Runs inside a machine: goodput when one packet of 256 is dropped (Guo et al., SIGCOMM 2016, section 4.1)."""

import pytest

from testbed.workload import Attributes, connect_pair, open_endpoint

ONE_OF = 256
DROP = f"""
table bridge every {{
    chain one {{
        type filter hook forward priority 0;
        udp dport 4791 udp length > 1000 numgen inc mod {ONE_OF} {ONE_OF - 1} drop
    }}
}}
"""
TOPOLOGY = """
name: go-back-n
topology:
  lossless: {dscp: 26, priority: 3}
  kinds: {host: {nic: hardware, congestion_control: none}}
  nodes:
    w: {kind: switch, vlans: {10: 10.0.10.1/24}}
    a: {kind: host}
    b: {kind: host}
  links:
    - {endpoints: ["w:e1", "a:eth1"], vlan: 10, rate: 40mbit}
    - {endpoints: ["w:e2", "b:eth1"], vlan: 10, rate: 40mbit}
"""


MESSAGE = 4 << 20


@pytest.mark.topology(TOPOLOGY)
def test_go_back_n(lab, figures):
    """A message of 4 MB, as in the paper; packets have 1024 bytes of payload there and here."""
    nics = [lab.host(name)["eth1"] for name in "ab"]
    here, there = (open_endpoint(nic, memory=MESSAGE) for nic in nics)
    connect_pair(here, there, Attributes(timeout=16, retry_cnt=6, traffic_class=26 << 2))
    for name in "without", "with":
        if name == "with":
            lab.switch("w").run("nft", "-f", "-", text=DROP)
        before = nics[0].lossless.queue(3).sent_packets
        completion = here.write(MESSAGE, within=60)
        assert completion.ok
        sent = nics[0].lossless.queue(3).sent_packets - before
        figures[name] = {"seconds": completion.elapsed_s, "sent": sent, "needed": MESSAGE // 1024}
    figures["timeouts"] = nics[0].rdma_counters()["retry_exceeded_err"]
    figures["one_of"] = ONE_OF
