from pathlib import Path

from report_samples import CLIENT_IP, EPOCH_NS, EVENTS, FRAMES, IP, MS, RETH, ROWS, A, B, arp, pcap, roce

from testbed.report import packet_rows
from testbed.report.owners import Owners
from testbed.report.packet_rows import Captured, captured


def read(tmp_path: Path, *given: tuple[int, bytes]) -> Captured:
    file = tmp_path / "leaf-e2.pcap"
    file.write_bytes(pcap(*given))
    found = captured(file, file.name, EPOCH_NS, Owners(ROWS, EVENTS))  # type: ignore[arg-type]
    assert found
    return found


def test_a_row_is_a_message_and_a_try_of_it(tmp_path: Path) -> None:
    _, first, again = read(tmp_path, *FRAMES).rows
    assert (first.t, first.last, first.number, first.last_number, first.count) == (150 * MS, 151 * MS, 2, 3, 2)
    assert first.text == "RC RDMA WRITE First … Last, QP 17, PSN 100 … 101, 4096 bytes to write"
    assert (first.level, first.why) == ("bad", f"goes to pod-a's MAC; {IP} is pod-b's")
    assert again.why.endswith("; sent again")
    assert dict(first.layers)["RETH"]


def test_packets_to_the_owner_are_nothing_remarkable(tmp_path: Path) -> None:
    [only] = read(tmp_path, (150 * MS, roce(B, 0x0A, 7, RETH, 64))).rows
    assert (only.level, only.why) == ("plain", "")


def test_an_answer_for_an_address_of_another_is_remarkable(tmp_path: Path) -> None:
    [only] = read(tmp_path, (150 * MS, arp(A, IP, CLIENT_IP, 2))).rows
    assert only.why == f"says {IP} is at pod-a's MAC; it is pod-b's"


def test_a_nak_and_a_mark_are_remarkable(tmp_path: Path) -> None:
    nak, mark = (150 * MS, roce(B, 0x11, 7, b"\x60\0\0\1")), (151 * MS, roce(B, 0x0A, 8, RETH, 64, ecn=3))
    assert [row.why for row in read(tmp_path, nak, mark).rows] == ["NAK: PSN sequence error", "marked CE"]


def test_each_category_has_the_times_of_its_packets(tmp_path: Path) -> None:
    assert read(tmp_path, *FRAMES).times == {
        "RDMA requests": [150_000, 1_000],
        "sent again": [217_000, 1_000],
        "ARP and ND": [20_000],
    }


def test_of_many_rows_the_remarkable_stay(tmp_path: Path) -> None:
    plain = [(150 * MS + n, arp(B, IP, f"10.0.20.{n % 200 + 20}")) for n in range(packet_rows.MOST_ROWS + 50)]
    found = read(tmp_path, *plain, (200 * MS, arp(A, IP, IP)))
    assert len(found.rows) == packet_rows.MOST_ROWS
    assert found.left_out == 51
    assert found.rows[-1].level == "bad"
    assert found.frames == packet_rows.MOST_ROWS + 51


def test_a_long_capture_is_read_up_to_a_bound(tmp_path: Path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(packet_rows, "MOST_FRAMES", 3)
    found = read(tmp_path, *FRAMES)
    assert (found.frames, found.complete) == (3, False)


def test_a_capture_that_was_cut_off_is_read_up_to_there(tmp_path: Path) -> None:
    file = tmp_path / "x.pcap"
    file.write_bytes(pcap(*FRAMES)[:-10])
    found = captured(file, "x", 0, Owners(ROWS, EVENTS))  # type: ignore[arg-type]
    assert found is not None
    assert found.frames == 4
    file.write_bytes(b"no capture at all, but longer than its header")
    assert captured(file, "x", 0, Owners(ROWS, EVENTS)) is None  # type: ignore[arg-type]
