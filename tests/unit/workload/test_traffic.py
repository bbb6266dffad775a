"""Bytes of messages on the wire, and of links."""

import pytest

from testbed.workload import LinkTraffic, link_bytes, wire_bytes


@pytest.mark.parametrize(("payload", "packets"), [(0, 1), (1, 1), (1024, 1), (1025, 2), (64 << 10, 64)])
def test_each_packet_of_a_message_has_headers(payload: int, packets: int) -> None:
    assert wire_bytes(payload) == payload + 58 * packets
    assert link_bytes(payload) == payload + 82 * packets


def test_a_larger_path_mtu_makes_fewer_headers() -> None:
    assert wire_bytes(4096, path_mtu=4096) == 4096 + 58


class Uplink:
    tx_bytes = 100

    def __str__(self) -> str:
        return "leaf1:e3"

    def counters(self) -> dict[str, int]:
        return {"tx_bytes": self.tx_bytes}


def test_links_count_what_they_send_from_then_on() -> None:
    uplink = Uplink()
    traffic = LinkTraffic([uplink])  # type: ignore[list-item]
    uplink.tx_bytes = 350
    assert traffic.sent() == {"leaf1:e3": 250}
