"""packets.pcapng: what it holds of the captures."""

import struct
from pathlib import Path

import pytest
from lab_traffic import CLIENT, MS, REQUEST, SWITCH, TO_POD, event, learned, roce
from pcapng_reader import Written, read

from testbed.protocol import Made
from testbed.records import merged_captures
from testbed.records.pcap import LONGEST


def test_all_captures_are_in_one_file_by_the_time_of_the_events(written: Written) -> None:
    frames = [roce(CLIENT, SWITCH, TO_POD, psn=psn) for psn in range(3)]
    found = written(leaf_e1=[(MS, frames[0]), (3 * MS, frames[2])], leaf_e2=[(2 * MS, frames[1])], server_eth1_2=[])
    assert found.names == ["leaf:e1", "leaf:e2", "server:eth1"]
    assert found.resolutions == [9, 9, 9]
    assert [(name, t, data) for name, t, data, _, _ in found.packets] == [
        ("leaf:e1", MS, frames[0]),
        ("leaf:e2", 2 * MS, frames[1]),
        ("leaf:e1", 3 * MS, frames[2]),
    ]


def test_no_capture_is_no_file(tmp_path: Path, made: Made) -> None:
    merged_captures.write(tmp_path, made, [learned(MS)])
    assert not (tmp_path / "packets.pcapng").exists()


def test_an_interface_is_named_only_where_its_name_is_sure(written: Written, made: Made) -> None:
    rows = made["topology"]["interfaces"]
    rows += [{**rows[0], "node": "a-b", "interface": "c"}, {**rows[0], "node": "a", "interface": "b-c"}]
    pod = event(0, "cni", "pod-a", command="ADD", network="net", interface="eth0")
    found = written([pod], a_b_c=[], mine=[], pod_a_eth0_3=[])
    assert found.names == ["a-b-c", "mine", "pod-a:eth0"]


@pytest.mark.parametrize("damage", ["cut", "length", "none"])
def test_a_capture_is_kept_up_to_where_it_is_damaged(written: Written, tmp_path: Path, damage: str, made: Made) -> None:
    written(leaf_e1=[(MS, REQUEST), (2 * MS, REQUEST)])
    file = tmp_path / "leaf-e1.pcap"
    data = file.read_bytes()
    second = 24 + 16 + len(REQUEST)
    wrong = {
        "cut": data[:-1],
        "length": data[: second + 8] + struct.pack("<I", LONGEST + 1) + bytes(LONGEST + 5),
        "none": b"no capture",
    }
    file.write_bytes(wrong[damage])
    (tmp_path / "packets.pcapng").unlink()
    merged_captures.write(tmp_path, made, [])
    if damage == "none":
        assert not (tmp_path / "packets.pcapng").exists()
    else:
        assert [t for _, t, _, _, _ in read(tmp_path / "packets.pcapng").packets] == [MS]


def test_a_full_disk_leaves_no_half_file(
    written: Written, tmp_path: Path, made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(leaf_e1=[(MS, REQUEST)])

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(merged_captures.Writer, "packet", full)
    with pytest.raises(OSError, match="No space") as caught:
        merged_captures.write(tmp_path, made, [])
    assert caught.value.filename == str(tmp_path / "packets.pcapng")
    assert not (tmp_path / "packets.pcapng").exists()


def test_a_packet_of_before_the_events_is_kept_and_says_so(written: Written) -> None:
    found = written(leaf_e1=[(-MS, REQUEST)])
    assert [(t, texts) for _, t, _, _, texts in found.packets] == [
        (0, ["before the events: the clock was changed during the capture"])
    ]
