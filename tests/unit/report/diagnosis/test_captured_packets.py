"""Captures of a real cluster: its hosts are n1 to n4, n4 is behind another switch, which a mirror port shows."""

import json
import shutil
import struct
from ipaddress import ip_address
from pathlib import Path

import pytest

from testbed.records.bundle import Bundle
from testbed.report.diagnosis import diagnose_bundle
from testbed.report.diagnosis.rules import Diagnosis

BUNDLE = Path(__file__).parents[2] / "records/bundles/ip-reuse"
BEGAN = 1_767_225_650 * 10**9
MS = 10**6
N1, N2, N4, OTHER = "02:00:03:00:00:01", "02:00:04:00:00:01", "02:00:06:00:00:01", "02:00:07:00:00:01"
LEAF1, LEAF2 = "02:00:01:01:00:00", "02:00:02:01:00:00"
IP1, IP2, IP4 = "10.1.1.2", "10.1.1.3", "10.1.2.44"
ALL = "ff:ff:ff:ff:ff:ff"
SEND, WRITE_MIDDLE, ACKNOWLEDGE, CNP = 0x04, 0x07, 0x11, 0x81
SEQUENCE_ERROR = 0x60


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    """A cluster with a job that stands, and nothing in a table that says why."""
    made = shutil.copytree(BUNDLE, tmp_path / "bundle")
    text = (made / "switches/leaf2.txt").read_text()
    lines = [line for line in text.split("\n") if not line.startswith(IP4)]
    (made / "switches/leaf2.txt").write_text("\n".join(lines))
    return made


def ethernet(src: str, dst: str, kind: int, body: bytes) -> bytes:
    return bytes.fromhex((dst + src).replace(":", "")) + struct.pack("!H", kind) + body


def arp(src: str, ip: str, target: str, *, dst: str = ALL, op: int = 1) -> bytes:
    macs = [bytes.fromhex(one.replace(":", "")) for one in (src, dst if op == 2 else "00" * 6)]
    head = struct.pack("!HHBBH", 1, 0x0800, 6, 4, op)
    return ethernet(src, dst, 0x0806, head + macs[0] + ip_address(ip).packed + macs[1] + ip_address(target).packed)


def ipv4(source: str, target: str, protocol: int, body: bytes, ecn: int = 0) -> bytes:
    head = struct.pack("!BBHHHBBH", 0x45, ecn, 20 + len(body), 0, 0, 64, protocol, 0)
    return head + ip_address(source).packed + ip_address(target).packed + body


def roce(
    macs: tuple[str, str], ips: tuple[str, str], *, psn: int = 1, opcode: int = SEND, ecn: int = 0, syndrome: int = 0
) -> bytes:
    bth = struct.pack("!BBHII", opcode, 0, 0xFFFF, 17, psn) + struct.pack("!I", syndrome << 24) + bytes(4)
    udp = struct.pack("!HHHH", 50000, 4791, 8 + len(bth), 0) + bth
    return ethernet(*macs, 0x0800, ipv4(*ips, 17, udp, ecn))


def icmp(code: int, mtu: int) -> bytes:
    quoted = ipv4(IP1, IP4, 17, struct.pack("!HHHH", 50000, 4791, 1080, 0))
    body = struct.pack("!BBHHH", 3, code, 0, 0, mtu) + quoted
    return ethernet(LEAF1, N1, 0x0800, ipv4("10.1.1.1", IP1, 1, body))


def pfc(src: str, quanta: int) -> bytes:
    times = [0, 0, 0, quanta, 0, 0, 0, 0]
    return ethernet(src, "01:80:c2:00:00:01", 0x8808, struct.pack("!HH8H", 0x0101, 1 << 3, *times))


def capture(path: Path, *packets: bytes, apart: int = MS) -> None:
    data = struct.pack("<IHHIIII", 0xA1B23C4D, 2, 4, 0, 0, 262144, 1)
    for number, frame in enumerate(packets):
        seconds, nanoseconds = divmod(BEGAN + number * apart, 10**9)
        data += struct.pack("<IIII", seconds, nanoseconds, len(frame), len(frame)) + frame
    path.write_bytes(data)


def diagnosis(bundle: Path) -> Diagnosis:
    [job] = diagnose_bundle(Bundle.read(bundle))
    return job


def test_without_captures_the_cause_is_not_known(bundle: Path) -> None:
    assert diagnosis(bundle).finding.cause == "unknown"


@pytest.mark.parametrize(("mac", "name"), [(OTHER, "unknown host"), (N2, "n2")])
def test_an_address_that_two_macs_answer_for(bundle: Path, mac: str, name: str) -> None:
    answers = [arp(of, IP4, "10.1.2.1", dst=LEAF2, op=2) for of in (N4, mac)]
    capture(bundle / "hosts/n4.eth1.pcap", arp(LEAF2, "10.1.2.1", IP4), *answers)
    found = diagnosis(bundle).finding
    assert (found.cause, found.ranks, found.address) == ("duplicate-ip", [3], IP4)
    assert name in found.text
    assert mac in found.text
    job = diagnosis(bundle)
    assert job.case.seen.epoch
    assert job.case.seen.epoch + found.since == BEGAN + 2 * MS - job_ahead(bundle)
    assert any("it claims 10.1.2.44 with" in text for _, text in found.evidence)


def job_ahead(bundle: Path) -> int:
    return Bundle.read(bundle).ahead["n4"]


def test_a_proxy_or_the_gateway_that_answers_is_no_duplicate(bundle: Path) -> None:
    asked = [arp(LEAF2, "10.1.2.1", IP4), arp(N4, IP4, IP1)]
    proxy = [
        arp(N4, IP4, "10.1.2.1", dst=LEAF2, op=2),
        arp(OTHER, IP4, "10.1.2.1", dst=LEAF2, op=2),
        arp(OTHER, IP1, IP4, dst=N4, op=2),
    ]
    capture(bundle / "hosts/n4.pcap", *asked, *proxy)
    assert diagnosis(bundle).finding.cause == "unknown"
    gateway = [arp(LEAF2, IP4, IP1, dst=N4, op=2), arp(N4, IP4, IP1, dst=N4, op=2)]
    capture(bundle / "hosts/n4.pcap", arp(N4, IP1, IP4), *gateway)
    assert diagnosis(bundle).finding.cause == "unknown"


def test_packets_that_a_gateway_sends_to_another_mac(bundle: Path) -> None:
    capture(bundle / "switches/leaf2.Ethernet1_3.pcap", *[roce((LEAF2, OTHER), (IP1, IP4), psn=n) for n in range(5)])
    found = diagnosis(bundle).finding
    assert (found.cause, found.ranks, found.address) == ("stale-neighbour", [3], IP4)
    assert "the gateway 10.1.2.1 sends to 02:00:07:00:00:01" in found.text
    [(_, text), *_] = found.evidence
    assert text.endswith("5 RoCE packets to 10.1.2.44 go to 02:00:07:00:00:01, in switches/leaf2.Ethernet1_3.pcap")


def test_packets_that_a_host_sends_to_another_mac_of_its_network(bundle: Path) -> None:
    capture(bundle / "hosts/n1.pcap", roce((N1, OTHER), (IP1, IP2)))
    found = diagnosis(bundle).finding
    assert (found.cause, found.ranks) == ("stale-neighbour", [1])
    assert "n1 sends to 02:00:07:00:00:01" in found.text


def test_packets_to_routers_go_their_way(bundle: Path) -> None:
    to_gateway = roce((N1, LEAF1), (IP1, IP4))
    between = roce((LEAF1, OTHER), (IP1, IP4))
    owners = roce((LEAF2, N4), (IP1, IP4))
    capture(bundle / "hosts/n1.pcap", to_gateway, between, owners)
    assert diagnosis(bundle).finding.cause == "unknown"
    for host in ("n2", "n3"):
        path = bundle / f"hosts/{host}.txt"
        path.write_text(path.read_text().replace(LEAF1, ""))
    capture(bundle / "hosts/n1.pcap", roce((N1, LEAF1), (IP1, IP2)))
    assert diagnosis(bundle).finding.cause == "unknown"


def test_a_switch_whose_table_is_right_and_whose_packets_are_not(bundle: Path) -> None:
    path = bundle / "switches/leaf2.txt"
    head = "Address         Age       MAC Address     Interface       Flags\n"
    assert head in path.read_text()
    entry = f"{IP4}       01:00:00  0200.0600.0001  Vlan20\n10.1.2.1        01:00:00  0200.0201.0000  Vlan20\n"
    path.write_text(path.read_text().replace(head, head + entry))
    address = {"local": "10.1.2.1", "prefixlen": 24, "scope": "global"}
    svi = {"ifname": "Vlan20", "flags": ["UP", "LOWER_UP"], "mtu": 1500, "address": LEAF2, "addr_info": [address]}
    path.write_text(f"{path.read_text()}\n### ip -j -d address\n{json.dumps([svi])}\n")
    capture(bundle / "switches/leaf2.pcap", *[roce((LEAF2, OTHER), (IP1, IP4), psn=n) for n in range(5)])
    found = diagnosis(bundle).finding
    assert (found.cause, found.ranks) == ("asic-differs", [3])
    assert "leaf2 has the right MAC in its table, and sends to 02:00:07:00:00:01" in found.text
    path.write_text(path.read_text().replace(f"{IP4}       01:00:00", f"{IP4}       00:00:01"))
    assert diagnosis(bundle).finding.cause == "stale-neighbour"


def test_what_was_sent_again_is_counted_as_by_the_hosts(bundle: Path) -> None:
    sent = [roce((N1, LEAF1), (IP1, IP4), psn=psn) for psn in (1, 2, 3, 1, 2, 3, 4, 2, 3, 4, 5, 3)]
    naks = [roce((LEAF1, N1), (IP4, IP1), opcode=ACKNOWLEDGE, syndrome=SEQUENCE_ERROR, psn=n) for n in range(3)]
    capture(bundle / "hosts/n1.pcap", *sent, *naks, apart=5 * MS)
    capture(bundle / "switches/leaf1.pcap", *sent[:6], apart=5 * MS)
    job = diagnosis(bundle)
    assert job.case.growth["n1", "n1-eth1", "completer_retry_err"] == 3
    assert job.case.growth["n1", "n1-eth1", "rcvd_seq_err"] == 3
    assert job.case.growth["n4", "n4-eth1", "out_of_seq_request"] == 3
    assert job.finding.cause == "silent-drop"
    assert job.finding.ranks == [0]


def test_what_a_nic_counted_itself_stands_before_a_capture(bundle: Path) -> None:
    path = bundle / "hosts/n1.txt"
    head, at, tail = path.read_text().rpartition("### rdma -j statistic")
    assert '"completer_retry_err":0' in tail
    path.write_text(head + at + tail.replace('"completer_retry_err":0', '"completer_retry_err":7'))
    capture(bundle / "hosts/n1.pcap", *[roce((N1, LEAF1), (IP1, IP4)) for _ in range(2)], apart=5 * MS)
    assert diagnosis(bundle).case.growth["n1", "n1-eth1", "completer_retry_err"] == 7


@pytest.mark.parametrize(
    ("answers", "said"),
    [([ACKNOWLEDGE], True), ([ACKNOWLEDGE, CNP], False), ([], False)],
    ids=["no CNP", "a CNP", "only one direction"],
)
def test_marks_without_a_cnp(bundle: Path, answers: list[int], said: bool) -> None:
    (bundle / "jobs/train/status").write_text("0")
    for log in (bundle / "jobs/train").glob("*.log"):
        log.unlink()
    marked = [roce((LEAF1, N1), (IP4, IP1), psn=n, ecn=3) for n in range(30)]
    capture(bundle / "hosts/n1.pcap", *marked, *(roce((N1, LEAF1), (IP1, IP4), opcode=one) for one in answers))
    job = diagnosis(bundle)
    assert job.healthy
    assert any("gets 30 marked packets, and its NIC sends no CNP" in text for _, text in job.remarks) == said


def test_a_nic_that_pauses_its_switch(bundle: Path) -> None:
    capture(bundle / "switches/leaf2.Ethernet1-2.pcap", *[pfc(N4, 0xFFFF) for _ in range(2000)], apart=MS)
    job = diagnosis(bundle)
    found = job.finding
    assert (found.cause, found.ranks, found.link) == ("pause-storm", [3], "leaf2:Ethernet1/2 - n4:eth1")
    # 65535 quanta of 512 bit times at 10 Gbit/s are 3.36 ms.
    microseconds = job.case.growth["leaf2", "Ethernet1/2", "SAI_PORT_STAT_PFC_3_RX_PAUSE_DURATION_US"]
    assert microseconds == 1999_000 + 3355


def test_pauses_that_end_are_no_storm(bundle: Path) -> None:
    frames = [pfc(N4, 0xFFFF if n % 2 else 0) for n in range(2000)]
    capture(bundle / "hosts/n4.pcap", *frames)
    job = diagnosis(bundle)
    assert job.finding.cause == "paused"
    assert job.case.growth["leaf2", "Ethernet1/2", "SAI_PORT_STAT_PFC_3_ON2OFF_RX_PKTS"] == 1000


@pytest.mark.parametrize("name", ["eth1", "n4-eth1"])
def test_a_switch_that_pauses_a_host(bundle: Path, name: str) -> None:
    capture(bundle / f"hosts/n4.{name}.pcap", *[pfc(LEAF2, 0xFFFF) for _ in range(2000)])
    found = diagnosis(bundle).finding
    assert (found.cause, found.link) == ("paused", "leaf2:Ethernet1/2 - n4:eth1")
    assert "leaf2 pauses first: it stops n4:eth1" in found.text


def test_pauses_by_somebody_are_not_known(bundle: Path) -> None:
    capture(bundle / "switches/leaf2.Ethernet1_2.pcap", *[pfc(OTHER, 0xFFFF) for _ in range(2000)])
    job = diagnosis(bundle)
    assert job.finding.cause == "unknown"
    assert any("and the port that it pauses is not known" in text for text in job.case.seen.remarks)


@pytest.mark.parametrize(
    ("code", "mtu", "cause", "words"),
    [
        (4, 1400, "mtu-mismatch", "larger than the MTU 1400 of a link behind router 10.1.1.1"),
        (0, 0, "no-route", "router 10.1.1.1: ICMP: 10.1.2.44 is unreachable (no route), 1 times"),
        (1, 0, "unresolved", "router 10.1.1.1 finds no MAC for its address 10.1.2.44"),
        (3, 0, "unknown", "no known cause"),
    ],
)
def test_what_icmp_says(bundle: Path, code: int, mtu: int, cause: str, words: str) -> None:
    capture(bundle / "hosts/n1.pcap", icmp(code, mtu))
    found = diagnosis(bundle).finding
    assert found.cause == cause
    assert words in found.text
    assert any("ICMP: 10.1.2.44 is unreachable" in text for _, text in found.evidence)


def test_captures_that_cannot_be_read_are_remarks(bundle: Path) -> None:
    (bundle / "hosts/n1.pcap").write_bytes(b"no capture")
    (bundle / "hosts/n9.pcapng").write_bytes(b"")
    job = diagnosis(bundle)
    assert "hosts/n1.pcap is no capture: neither pcap nor pcapng" in job.case.seen.remarks
    assert "hosts/n9.pcapng is no capture: neither pcap nor pcapng" in job.case.seen.remarks
    assert job.finding.cause == "unknown"
