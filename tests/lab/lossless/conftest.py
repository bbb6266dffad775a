"""After every test of lossless links the bytes add up."""

from collections.abc import Iterator

import pytest

from testbed.lab import Lab


@pytest.fixture(autouse=True)
def _bytes_add_up(lab: Lab) -> Iterator[None]:
    """Each queue has sent, dropped or kept what came to it, and the buffer of an idle switch is empty."""
    yield
    ports = [end.port for node in lab.nodes.values() for end in node.interfaces.values() if end.port]
    lab.scheduler.wait(lambda: not any(port.queue(priority).packets for port in ports for priority in range(8)), 10)
    assert all(port.adds_up() for port in ports)
    assert lab.lossless
    assert [lab.lossless.buffered(switch) for switch in lab.switches()] == [0] * len(lab.switches())
    groups = [port.group(priority) for port in ports for priority in range(8)]
    assert {(group.reserve, group.shared, group.headroom) for group in groups} == {(0, 0, 0)}
