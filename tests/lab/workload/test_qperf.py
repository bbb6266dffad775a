"""qperf, which needs rdma_cm on RoCE: it addresses peers by LID otherwise."""

import pytest

from testbed import Lab

FILE = """
name: tool
topology:
  nodes:
    leaf: {kind: switch, vlans: {10: 10.0.10.1/24}}
    a: {kind: host}
    b: {kind: host}
  links:
    - {endpoints: ["leaf:e1", "a:eth1"], vlan: 10, rate: 100mbit}
    - {endpoints: ["leaf:e2", "b:eth1"], vlan: 10, rate: 100mbit}
"""


@pytest.mark.fresh
@pytest.mark.topology(FILE, rdma_mode="shared")
def test_qperf_measures_by_rdma_cm(lab: Lab) -> None:
    address = str(lab.host("b")["eth1"].address().ip)
    lab["b"].spawn("qperf")
    command = ("qperf", "-ub", "-cm", "1", "-t", "1", "-ws", "5", address, "rc_rdma_write_bw")
    shown = lab["a"].run(*command, within=30).stdout
    rate, unit = shown.split("bw")[-1].split()[1:3]
    assert unit == "Mb/sec"
    assert 80 < float(rate) < 97
    refused = lab["a"].run("qperf", "-t", "1", address, "rc_bw", within=30, check=False)
    assert "failed to modify QP to RTR" in refused.stdout + refused.stderr
