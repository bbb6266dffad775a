"""The counters of a device tell of traffic at once, wherever the device is to be seen."""

import pytest
from wire_lab import Wire

from testbed.errors import InputError
from testbed.kernel.rxe_devices import counters, counters_of
from testbed.workload.attributes import Attributes
from testbed.workload.verbs import connect_pair


@pytest.mark.parametrize("wire", ["shared", "exclusive"], indirect=True)
def test_counters_follow_at_once(wire: Wire) -> None:
    def both() -> list[dict[str, int]]:
        return [counters(host.device, host.namespace) for host in (wire.left, wire.right)]

    with wire.left.endpoint() as left, wire.right.endpoint() as right:
        connect_pair(left, right, Attributes(retry_cnt=2))
        before = both()
        assert left.write(4096, within=1).ok
        after = both()
        wire.block(wire.right)
        assert left.write(64, within=1).status == "RETRY_EXC_ERR"
        lost = both()

    assert after[0]["sent_pkts"] - before[0]["sent_pkts"] == 4
    assert after[1]["rcvd_pkts"] - before[1]["rcvd_pkts"] == 4
    assert after[1]["sent_pkts"] - before[1]["sent_pkts"] == 1
    assert lost[0]["retry_exceeded_err"] - after[0]["retry_exceeded_err"] == 1
    assert lost[0]["completer_retry_err"] - after[0]["completer_retry_err"] == 2
    assert lost[1] == after[1]


@pytest.mark.parametrize("wire", ["shared", "exclusive"], indirect=True)
def test_those_of_several_namespaces_are_read_together(wire: Wire) -> None:
    hosts = wire.left, wire.right
    found = counters_of({host.namespace: [host.device, "nothing"] for host in hosts})
    assert found == {host.device: counters(host.device, host.namespace) for host in hosts}


def test_no_such_device(wire: Wire) -> None:
    with pytest.raises(InputError, match="no RDMA device nothing in left"):
        counters("nothing", "left")
