"""The diagnosis of jobs: each cause from a small run directory, and nothing from what names the fault."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from testbed.cli.main import invoke
from testbed.errors import InputError
from testbed.report.diagnosis import diagnose
from testbed.report.diagnosis.jobs import members
from testbed.report.diagnosis.observations import Observations
from testbed.report.diagnosis.rules import Diagnosis

S = 10**9
HOSTS = ["n0", "n1", "n2", "n3"]
MACS = {"n0": "02:00:00:00:00:10", "n1": "02:00:00:00:00:11", "n2": "02:00:00:00:00:12", "n3": "02:00:00:00:00:13"}
IPS = {host: f"10.0.0.{number + 1}" for number, host in enumerate(HOSTS)}
OLD = "02:00:00:00:00:99"
DIED = {"rank": 1, "host": "n1", "status": "RETRY_EXC_ERR", "failure": "transport retry counter exceeded"}
SILENT = {"rank": 1, "host": "n1", "status": "", "failure": "UD endpoint to <no debug data>: unhandled timeout error"}


def interface(node: str, kind: str, name: str, peer: str, mac: str, **more: Any) -> dict[str, Any]:
    empty = {"address": "", "address6": "", "gateway": "", "gateway6": "", "vlan": None, "trunk": [], "routed": False}
    return {"node": node, "kind": kind, "interface": name, "peer": peer, "mac": mac, "rdma": None, **empty, **more}


def topology() -> dict[str, Any]:
    """Two leaves with two hosts each, and a host `old` beside them."""
    rows = []
    for number, host in enumerate([*HOSTS, "old"]):
        leaf, port = f"leaf{number // 2 % 2 + 1}", f"e{number}"
        mac = MACS.get(host, OLD)
        rows.append(interface(leaf, "switch", port, f"{host}:eth1", f"02:00:00:01:00:0{number}"))
        address = f"{IPS.get(host, '10.0.0.9')}/24"
        rows.append(interface(host, "host", "eth1", f"{leaf}:{port}", mac, address=address, rdma=f"{host}-eth1"))
    for leaf, other in ("leaf1", "leaf2"), ("leaf2", "leaf1"):
        rows.append(interface(leaf, "switch", "up", f"{other}:up", f"02:00:00:02:00:0{leaf[-1]}"))
    return {"name": "lab", "interfaces": rows}


class Builder:
    """A variant's directory: what is added is in it when `write` was called."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.events: list[dict[str, Any]] = []
        self.counted: list[dict[str, Any]] = []
        self.calls: list[dict[str, Any]] = []

    def event(self, t: float, kind: str, node: str = "", text: str = "", **data: Any) -> "Builder":
        self.events.append({"t": round(t * S), "kind": kind, "node": node, "text": text, "data": data})
        return self

    def starts(self, t: float = 1.0) -> "Builder":
        devices = [f"{host}-eth1" for host in HOSTS]
        return self.event(t, "job", "", "job starts", name="job", ranks=4, hosts=HOSTS, devices=devices)

    def ends(self, t: float, *, ok: bool = False, late: bool = False, **how: Any) -> "Builder":
        return self.event(t, "job", "", "job ends", name="job", ok=ok, late=late, **how)

    def link(self, t: float, node: str, name: str, state: str) -> "Builder":
        return self.event(t, "link", node, f"{name} {state}", interface=name, state=state)

    def counters(self, t: float, **nodes: dict[str, dict[str, int]]) -> "Builder":
        self.counted.append({"t": round(t * S), "after": "something", "counters": nodes})
        return self

    def collective(self, sequence: int, *ranks: tuple[float, float | None]) -> "Builder":
        """The times at which each rank enters and leaves it; a rank without does not enter it."""
        for rank, (began, ended) in enumerate(ranks):
            self.calls.append({
                "rank": rank, "host": HOSTS[rank], "call": sequence, "operation": "Allreduce", "communicator": "0-3",
                "sequence": sequence, "bytes": 33_000, "peer": None,
                "began": round(began * S), "ended": None if ended is None else round(ended * S),
            })  # fmt: skip
        return self

    def paces(self, count: int = 10, slow: float = 0.01) -> "Builder":
        """Collectives before which rank 2 takes `slow` seconds and the others 10 ms."""
        left = 1.0
        for number in range(1, count + 1):
            enter = [left + (slow if rank == 2 else 0.01) for rank in range(4)]
            left = max(enter) + 0.002
            self.collective(number, *((began, left) for began in enter))
        return self

    def log(self, rank: int, text: str) -> "Builder":
        (self.directory / "job").mkdir(parents=True, exist_ok=True)
        (self.directory / "job" / f"rank-{rank}.log").write_text(text)
        return self

    def write(self) -> Path:
        self.directory.mkdir(parents=True, exist_ok=True)
        lines = {"events.jsonl": self.events, "counters.jsonl": self.counted}
        for name, rows in lines.items():
            ordered = sorted(rows, key=lambda row: row["t"])
            (self.directory / name).write_text("".join(json.dumps(row) + "\n" for row in ordered))
        (self.directory / "topology.json").write_text(json.dumps(topology()))
        if self.calls:
            (self.directory / "job").mkdir(exist_ok=True)
            (self.directory / "job/flight.jsonl").write_text("".join(json.dumps(row) + "\n" for row in self.calls))
        return self.directory

    def diagnosis(self) -> Diagnosis:
        (found,) = diagnose(self.write())
        return found


@pytest.fixture
def run(tmp_path: Path) -> Builder:
    return Builder(tmp_path / "run" / "variant")


def learned(run: Builder, t: float, ip: str, mac: str, switch: str = "leaf1") -> Builder:
    return run.event(t, "arp.learned", switch, f"ARP {ip} is at {mac}", vlan=10, ip=ip, mac=mac, port="up")


def found(one: Diagnosis) -> tuple[str, list[int], str]:
    return one.finding.cause, list(one.finding.ranks), one.finding.link


def test_a_job_that_ends_well_is_healthy(run: Builder) -> None:
    one = run.starts().paces().ends(3, ok=True).diagnosis()
    assert one.healthy
    assert one.finding.text == "all 4 ranks end well; 10 collectives"
    assert not one.remarks


def test_a_link_that_came_back_is_a_remark_with_the_pause_that_it_made(run: Builder) -> None:
    run.starts().paces().collective(11, *((2.0, 5.0),) * 4)
    one = run.link(2.1, "leaf2", "e3", "down").link(4.0, "leaf2", "e3", "up").ends(6, ok=True).diagnosis()
    assert one.healthy
    assert [text for _, text in one.remarks] == [
        "collective 11 (Allreduce of 33000 bytes) of ranks 0-3 took 3.0 s",
        "the link leaf2:e3 - n3:eth1, that of rank 3 on n3, was down for 1.9 s",
    ]


def test_a_switch_port_that_is_down(run: Builder) -> None:
    run.starts().collective(7, *((2.0, None),) * 4).link(2.1, "leaf2", "e3", "down")
    run.log(1, "send completion with error: transport retry counter exceeded\n[rqpn 0x17 dgid=::ffff:10.0.0.4 x=1]")
    run.counters(1.01).counters(9, n1={"n1-eth1": {"completer_retry_err": 6}})
    one = run.ends(9, **DIED).diagnosis()
    assert found(one) == ("link-down", [3], "leaf2:e3 - n3:eth1")
    assert one.finding.since == 2.1 * S
    assert one.finding.text == "rank 3 on n3 stalled first: its link leaf2:e3 - n3:eth1 is down"
    assert [text for _, text in one.finding.evidence] == [
        "leaf2: e3 down",
        "10.0.0.4, rank 3 on n3, does not answer rank 1 on n1",
        "n1-eth1: completer_retry_err 6",
    ]


def test_the_link_of_a_rank_comes_before_one_that_no_rank_uses(run: Builder) -> None:
    run.starts().link(0.5, "leaf1", "e4", "down").link(2.1, "leaf2", "e3", "down")
    assert found(run.ends(9, **DIED).diagnosis()) == ("link-down", [3], "leaf2:e3 - n3:eth1")


def test_a_switch_all_of_whose_links_are_down(run: Builder) -> None:
    run.starts().link(2, "leaf2", "e2", "down").link(2.1, "leaf2", "e3", "down").link(2.2, "leaf1", "up", "down")
    one = run.ends(9, **DIED).diagnosis()
    assert found(one) == ("switch-down", [2, 3], "")
    assert one.finding.text == "rank 2 on n2 and rank 3 on n3 stalled first: all links of leaf2 are down"
    assert one.finding.since == 2 * S


def test_a_switch_with_a_link_that_came_back_is_not_down(run: Builder) -> None:
    run.starts().link(2, "leaf2", "e2", "down").link(2, "leaf2", "e3", "down").link(2, "leaf2", "up", "down")
    assert found(run.link(3, "leaf2", "up", "up").ends(9, **DIED).diagnosis())[0] == "link-down"


def test_a_link_between_switches_that_is_down(run: Builder) -> None:
    one = run.starts().link(2, "leaf2", "up", "down").ends(9, **DIED).diagnosis()
    assert found(one) == ("link-down", [], "leaf1:up - leaf2:up")


def test_the_link_of_a_node_without_a_rank_is_not_why(run: Builder) -> None:
    run.starts().link(2, "leaf1", "e4", "down")
    assert run.ends(9, **DIED).diagnosis().finding.cause == "unknown"


def test_what_the_launcher_says_last_is_no_death_of_a_rank(run: Builder) -> None:
    how = {"rank": 0, "host": "n0", "status": "", "failure": "PRTE has lost communication with a remote daemon."}
    one = run.starts().link(2, "leaf2", "e3", "down").ends(9, **how).diagnosis()
    assert found(one) == ("link-down", [3], "leaf2:e3 - n3:eth1")


def test_the_states_of_queue_pairs_are_evidence(run: Builder) -> None:
    pairs = {"n0": {"RC RTS": 2, "UD RTS": 1}, "n3": {"RC ERR": 1, "RC RTS": 1}}
    run.starts().event(5, "job.stalled", "", "", name="job", since_ns=2 * S, waiting=[], queue_pairs=pairs)
    one = run.link(2, "leaf2", "e3", "down").ends(9, **DIED).diagnosis()
    assert one.finding.evidence[1] == (5 * S, "no rank goes on; RC queue pairs: 1 in ERR, 3 in RTS")


def test_a_port_that_the_switch_disabled(run: Builder) -> None:
    run.starts().event(2, "port.disabled", "leaf2", "e3 is disabled", port="e3")
    assert found(run.ends(9, **DIED).diagnosis()) == ("link-down", [3], "leaf2:e3 - n3:eth1")


def test_a_link_that_was_up_again_when_the_job_died_is_not_why(run: Builder) -> None:
    run.starts().link(2, "leaf2", "e3", "down").link(3, "leaf2", "e3", "up")
    assert run.ends(9, **DIED).diagnosis().finding.cause == "unknown"


def test_a_link_that_came_back_after_the_last_retry(run: Builder) -> None:
    run.starts().collective(7, *((2.1, None),) * 4).link(2, "leaf2", "e3", "down").link(6, "leaf2", "e3", "up")
    one = run.ends(7, **DIED).diagnosis()
    assert found(one) == ("link-flap", [3], "leaf2:e3 - n3:eth1")
    assert "was down for 4.0 s" in one.finding.text


def test_a_link_that_came_back_before_the_job_stopped_is_not_why(run: Builder) -> None:
    run.starts().collective(7, *((4.0, None),) * 4).link(2, "leaf2", "e3", "down").link(3, "leaf2", "e3", "up")
    assert run.ends(9, **DIED).diagnosis().finding.cause == "unknown"


def in_turn(run: Builder, waiting: dict[str, int], sent: dict[str, int]) -> Builder:
    """Ten collectives that take most of the job's time, in which so many packets wait at ports, which send bytes."""
    run.starts()
    for number in range(1, 11):
        run.collective(number, *((float(number), number + 0.8),) * 4)
        leaves: dict[str, dict[str, dict[str, int]]] = {"leaf1": {}, "leaf2": {}}
        for port in range(4):
            values = {"queue_waiting": waiting.get(f"e{port}", 0), "tx_bytes": number * sent.get(f"e{port}", 1000)}
            leaves[f"leaf{port // 2 + 1}"][f"e{port}"] = values
        run.counters(number + 0.5, **leaves)
    return run.ends(12, ok=True)


def test_a_link_that_is_slow_without_a_drop(run: Builder) -> None:
    one = in_turn(run, {"e2": 12}, {}).diagnosis()
    assert found(one) == ("slow-link", [2], "leaf2:e2 - n2:eth1")
    assert [text for _, text in one.finding.evidence] == [
        "leaf2:e2: 12.0 packets wait on average, at the others 0.0",
        "leaf2:e2 sends 10000 bytes, the others 10000",
        "73% of the time is spent in 9 collectives",
    ]


def test_queues_that_are_alike_are_no_slow_link(run: Builder) -> None:
    assert in_turn(run, {f"e{port}": 12 for port in range(4)}, {}).diagnosis().healthy


def test_the_target_of_an_incast_has_no_slow_link(run: Builder) -> None:
    assert in_turn(run, {"e2": 12}, {"e2": 3000}).diagnosis().healthy


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("UCX WARN network device 'n2-eth1:1' is not available, please use", "there is none at the index it was given"),
        (
            "ERROR ibv_create_ah(dlid=1 dgid=fe80::4 sgid_index=0) for UD failed: Network is unreachable",
            "the GID fe80::4 is link-local",
        ),
    ],
)
def test_a_rank_with_a_wrong_gid_index(run: Builder, said: str, why: str) -> None:
    one = run.starts().log(2, said).ends(3, rank=2, host="n2", status="", failure="Unknown error").diagnosis()
    assert found(one) == ("wrong-gid", [2], "leaf2:e2 - n2:eth1")
    assert one.finding.text == f"rank 2 on n2 has a wrong GID index for n2-eth1: {why}"


def after_small_ones(run: Builder, sizes: dict[str, int]) -> Builder:
    """Ten collectives of 33000 bytes are done, one of a megabyte is not; hosts have received packets of these sizes."""
    run.starts().paces().collective(11, *((2.0, None),) * 4)
    for call in run.calls[-4:]:
        call["bytes"] = 1_000_000
    run.counters(1.01)
    got = {
        host: {"eth1": {"rx_packets": 100, "rx_bytes": 100 * sizes.get(host, 800)}, f"{host}-eth1": {}}
        for host in HOSTS
    }
    return run.counters(9, **got).ends(9, **DIED)


def test_a_rank_that_gets_small_packets_only(run: Builder) -> None:
    one = after_small_ones(run, {"n3": 120}).diagnosis()
    assert found(one) == ("mtu-mismatch", [3], "leaf2:e3 - n3:eth1")
    assert [text for _, text in one.finding.evidence] == [
        "collectives of 33000 bytes are done, none of 1000000",
        "n3:eth1 receives 120 bytes a packet, the others 800",
    ]


def test_packets_of_one_size_are_no_mismatch(run: Builder) -> None:
    assert after_small_ones(run, {}).diagnosis().finding.cause == "unknown"


def test_a_rank_in_a_pod_has_the_link_of_its_node(run: Builder) -> None:
    pod = {
        "interfaces": [{"name": "net1", "mac": "02:00:00:00:00:77", "rdma-device": "0123-net1"}],
        "ips": [{"address": "10.0.0.100/24"}],
    }
    run.event(0.5, "cni", "worker", "ADD", command="ADD", interface="net1", host="n3", result=pod)
    hosts, devices = ["n0", "worker"], ["n0-eth1", "0123-net1"]
    run.event(1, "job", "", "job starts", name="job", ranks=2, hosts=hosts, devices=devices)
    one = run.link(2, "leaf2", "e3", "down").ends(9, rank=0, host="n0", status="RETRY_EXC_ERR").diagnosis()
    assert found(one) == ("link-down", [1], "leaf2:e3 - n3:eth1")


def test_a_host_s_own_nic_that_is_down(run: Builder) -> None:
    run.starts().link(2, "n2", "eth1", "down")
    how = {"rank": 2, "host": "n2", "status": "WR_FLUSH_ERR", "failure": "Work Request Flushed Error"}
    assert found(run.ends(2.2, **how).diagnosis()) == ("nic-down", [2], "leaf2:e2 - n2:eth1")


def test_a_switch_that_has_the_mac_of_the_node_that_had_the_address(run: Builder) -> None:
    learned(run, 0.4, "10.0.0.9", OLD)
    run.event(0.5, "address", "old", "", interface="eth1", ip="10.0.0.9", has=False)
    run.event(0.6, "address", "n3", "", interface="eth1", ip="10.0.0.4", has=False)
    run.event(0.7, "address", "n3", "", interface="eth1", ip="10.0.0.9", has=True)
    learned(run, 1.2, "10.0.0.1", MACS["n0"])
    one = run.starts().ends(31, **SILENT).diagnosis()
    assert found(one) == ("stale-neighbour", [3], "leaf2:e3 - n3:eth1")
    assert (one.finding.address, one.finding.since) == ("10.0.0.9", 0.7 * S)
    assert f"leaf1 has {OLD}, the MAC of old, for its address 10.0.0.9" in one.finding.text


def test_a_switch_that_learned_the_new_mac_is_not_why(run: Builder) -> None:
    learned(run, 0.4, IPS["n3"], OLD)
    learned(run, 0.8, IPS["n3"], MACS["n3"])
    assert run.starts().ends(31, **SILENT).diagnosis().finding.cause == "unknown"


def test_a_switch_that_has_a_mac_on_another_port(run: Builder) -> None:
    run.event(2, "fdb.moved", "leaf2", "", vlan=10, mac=MACS["n3"], port="e2", old_port="e3")
    one = run.starts().ends(9, **DIED).diagnosis()
    assert (one.finding.cause, one.finding.ranks) == ("wrong-port", [3])
    assert "on e2; it is at e3" in one.finding.text


def test_an_address_that_nobody_answers_for(run: Builder) -> None:
    run.event(1.5, "arp.failed", "leaf1", "no answer", vlan=10, ip=IPS["n2"])
    one = run.starts().ends(31, **SILENT).diagnosis()
    assert found(one) == ("unresolved", [2], "leaf2:e2 - n2:eth1")
    assert one.finding.address == IPS["n2"]


def test_ends_of_a_link_with_two_mtus(run: Builder) -> None:
    run.event(0.5, "link", "leaf1", "e1 has MTU 9000", interface="e1", mtu=9000)
    run.event(0.5, "link", "n1", "eth1 has MTU 9000", interface="eth1", mtu=9000)
    run.event(0.6, "link", "leaf2", "e3 has MTU 1500", interface="e3", mtu=1500)
    one = run.starts().ends(9, **DIED).diagnosis()
    assert found(one) == ("mtu-mismatch", [3], "leaf2:e3 - n3:eth1")
    assert "leaf2:e3 has 1500" in one.finding.text


@pytest.mark.parametrize(
    "failure", ["ended by signal 9", "ended with status 3", "ValueError: the user's mistake", "called MPI_Abort"]
)
def test_a_rank_that_died(run: Builder, failure: str) -> None:
    run.starts().paces().collective(11, (2.0, None), (2.0, None), (2.0, None))
    run.link(2.5, "leaf2", "e3", "down")  # afterwards
    one = run.ends(3, rank=3, host="n3", status="", failure=failure).diagnosis()
    assert found(one) == ("rank-died", [3], "")
    assert one.finding.text == f"rank 3 on n3 died: {failure}"
    assert one.json()["stopped"]["absent"] == [3]


def test_a_rank_that_hangs_outside_of_mpi(run: Builder) -> None:
    run.starts().paces().collective(11, (2.0, None), (2.0, None), (2.0, None))
    one = run.ends(60, late=True).diagnosis()
    assert found(one) == ("rank-hangs", [3], "")
    assert "did not enter collective 11" in one.finding.text


def test_a_job_that_never_ended_is_diagnosed_too(run: Builder) -> None:
    run.starts().collective(7, *((2.0, None),) * 4).link(2.1, "leaf2", "e3", "down")
    one = run.event(50, "arp.aged", "leaf1", "", vlan=10, ip=IPS["n0"]).diagnosis()
    assert found(one) == ("link-down", [3], "leaf2:e3 - n3:eth1")
    assert one.json()["end"] == "still runs when it is ended"


def test_a_rank_that_sets_everybody_s_pace(run: Builder) -> None:
    one = run.starts().paces(slow=0.08).ends(3, ok=True).diagnosis()
    assert found(one) == ("slow-rank", [2], "leaf2:e2 - n2:eth1")
    assert "it takes 720 ms, the others 90 ms" in one.finding.text.replace("ranks ", "")


def test_a_rank_that_is_a_little_slower_is_no_finding(run: Builder) -> None:
    assert run.starts().paces(slow=0.025).ends(3, ok=True).diagnosis().healthy


@pytest.mark.parametrize("ok", [True, False])
def test_a_link_that_loses_packets(run: Builder, ok: bool) -> None:
    sent = {"leaf2": {"e2": {"tx_packets": 1000, "queue_dropped": 40}}, "n2": {"eth1": {"rx_packets": 1000}}}
    run.starts().counters(1.01).counters(9, n1={"n1-eth1": {"completer_retry_err": 3}}, **sent)
    one = run.ends(9, ok=ok, **({} if ok else DIED)).diagnosis()
    assert found(one) == ("lossy-link", [2], "leaf2:e2 - n2:eth1")
    assert one.finding.evidence[0][1] == "leaf2:e2: queue_dropped 40"


def test_packets_that_do_not_arrive_are_a_loss_without_any_counter_of_it(run: Builder) -> None:
    sent = {"leaf2": {"e2": {"tx_packets": 1000}}, "n2": {"eth1": {"rx_packets": 950}}}
    run.starts().counters(1.01).counters(9, n1={"n1-eth1": {"completer_retry_err": 3}}, **sent)
    one = run.ends(9, ok=True).diagnosis()
    assert found(one) == ("lossy-link", [2], "leaf2:e2 - n2:eth1")
    assert one.finding.evidence[0][1] == "leaf2:e2 sent 1000, n2:eth1 received 950"


def test_losses_before_the_job_do_not_count(run: Builder) -> None:
    lost = {"leaf2": {"e2": {"queue_dropped": 40}}, "n1": {"n1-eth1": {"completer_retry_err": 3}}}
    assert run.counters(0.5, **lost).starts().counters(1.01).counters(9).ends(9, ok=True).diagnosis().healthy


def test_a_rank_without_a_route(run: Builder) -> None:
    run.event(1.5, "route.lost", "leaf1", "10.0.0.0/24 is gone")
    how = {"rank": 0, "host": "n0", "status": "", "failure": "Destination is unreachable"}
    one = run.starts().ends(2, **how).diagnosis()
    assert found(one) == ("no-route", [0], "")
    assert one.finding.evidence == [(1.5 * S, "leaf1: 10.0.0.0/24 is gone")]


def test_without_a_known_cause_the_nearest_facts_are_given(run: Builder) -> None:
    run.starts().counters(1.01).counters(9, leaf1={"e0": {"rx_errors": 4}})
    one = run.ends(9, **DIED).diagnosis()
    assert found(one) == ("unknown", [1], "")
    assert "RETRY_EXC_ERR" in one.finding.text
    assert "leaf1: e0: rx_errors 4" in [text for _, text in one.finding.evidence]


def test_a_collective_over_queue_pairs_that_failed_is_diagnosed_as_a_job(run: Builder) -> None:
    run.link(2, "leaf2", "e3", "down")
    text = "allreduce (ring) of 4096 bytes: rank 2 on n2 towards rank 3 on n3: SEND ends with RETRY_EXC_ERR"
    devices = [f"{host}-eth1" for host in HOSTS]
    data = {"hosts": HOSTS, "devices": devices, "rank": 2, "peer": 3, "status": "RETRY_EXC_ERR", "late": False}
    one = run.event(4, "collective", "", text, ok=False, elapsed_ns=3 * S, **data).diagnosis()
    assert found(one) == ("link-down", [3], "leaf2:e3 - n3:eth1")
    assert one.case.job.name == "allreduce (ring) of 4096 bytes"


def test_what_names_the_fault_is_not_observed(run: Builder, tmp_path: Path) -> None:
    """All that a run directory says of its scenario, its expectations and its faults, and what it is called."""
    run.starts().collective(7, *((2.0, None),) * 4).link(2.1, "leaf2", "e3", "down").counters(1.01).ends(9, **DIED)
    before = run.diagnosis().json()
    names = ("step", "expect", "observed", "evidence", "note", "verdict", "sleep", "lab", "fault.injected")
    for number, kind in enumerate(names):
        run.event(2 + number / 100, kind, "n0", "SECRET", interface="eth1", state="down", fault="SECRET")
    for line in run.counted:
        line["after"] = "SECRET"
    run.directory = tmp_path / "SECRET" / "SECRET"
    run.write()
    (run.directory.parent / "result.json").write_text('"SECRET"')
    (run.directory / "topology.json").write_text(json.dumps(topology() | {"name": "SECRET"}))
    row = {"t": S, "after": "SECRET", "switch": "leaf1", "arp": [], "nd": [], "fdb": []}
    (run.directory / "tables.jsonl").write_text(json.dumps(row) + "\n")
    seen = Observations.read(run.directory)
    shown = seen.events, seen.interfaces, seen.counted, seen.flights, seen.logs, seen.tables_at(9 * S)
    assert "SECRET" not in repr(shown)
    assert {event["kind"] for event in seen.events} == {"job", "link"}
    (after,) = diagnose(run.directory)
    assert after.json() == before


@pytest.mark.parametrize(
    ("file", "text", "where"),
    [
        ("events.jsonl", "x\n", "events.jsonl:1: is not an event"),
        ("topology.json", "{", "topology.json: is damaged: it is not JSON"),
        ("topology.json", "[]", "topology.json: is damaged: it is no topology"),
        ("counters.jsonl", "{}\n", "counters.jsonl:1: is not a line of counters"),
        ("job/flight.jsonl", '{"rank": 0}\n', "flight.jsonl:1: is not a line of a flight record"),
    ],
)
def test_a_damaged_file_is_named(run: Builder, file: str, text: str, where: str) -> None:
    directory = run.starts().paces().ends(3, ok=True).write()
    (directory / file).write_text(text)
    with pytest.raises(InputError) as caught:
        diagnose(directory)
    assert where in str(caught.value)


@pytest.mark.parametrize("name", ["topology.json", "events.jsonl"])
def test_a_missing_file_is_named(run: Builder, name: str) -> None:
    directory = run.starts().ends(3, ok=True).write()
    (directory / name).unlink()
    with pytest.raises(InputError, match=f"{name}: cannot be read"):
        diagnose(directory)


def test_flight_records_and_counters_may_be_missing(run: Builder) -> None:
    directory = run.starts().link(2, "leaf2", "e3", "down").ends(9, **DIED).write()
    (directory / "counters.jsonl").unlink()
    assert found(diagnose(directory)[0]) == ("link-down", [3], "leaf2:e3 - n3:eth1")


def test_a_job_s_name_leads_nowhere_else(run: Builder) -> None:
    run.event(1, "job", "", "", name="../job", hosts=HOSTS, devices=[])
    (run.directory.parent / "job").mkdir(parents=True)
    (run.directory.parent / "job/flight.jsonl").write_text("damaged\n")
    assert run.diagnosis().case.job.name == "../job"


@pytest.mark.parametrize(
    ("name", "ranks"), [("0-3", [0, 1, 2, 3]), ("0,2-3#2", [0, 2, 3]), ("0-1 of 100", [0, 1]), ("", []), ("x-3", [])]
)
def test_the_name_of_a_communicator_has_its_ranks(name: str, ranks: list[int]) -> None:
    assert members(name) == ranks


# The command


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[int, str, str]]:
    monkeypatch.setenv("COLUMNS", "80")

    def call(*arguments: object) -> tuple[int, str, str]:
        status = invoke(["diagnose", *map(str, arguments)])
        return status, *capsys.readouterr()

    return call


def test_the_command_says_what_stalled_where_and_why(run: Builder, command) -> None:
    run.starts().collective(7, *((2.0, None),) * 4).link(2.1, "leaf2", "e3", "down").ends(9, **DIED).write()
    status, out, _ = command(run.directory.parent)
    assert status == 1
    assert out.splitlines() == [
        "✗ variant: link-down",
        "            rank 3 on n3 stalled first: its link leaf2:e3 - n3:eth1 is down",
        "  since     2.100 s",
        "  link      leaf2:e3 - n3:eth1",
        "  stopped   2.000 s  collective 7, Allreduce of 33 kB: ranks 0, 1, 2, 3 wait in",
        "            it",
        "  job       job, 1.000 s to 9.000 s: rank 1 on n1 ends first: RETRY_EXC_ERR:",
        "            transport retry counter exceeded",
        "  evidence  2.100 s  leaf2: e3 down",
    ]


def test_a_healthy_run_has_status_0_and_json_has_all_of_it(run: Builder, command) -> None:
    run.starts().paces().ends(3, ok=True).write()
    status, out, _ = command(run.directory, "--json")
    assert status == 0
    (variant,) = json.loads(out)["variants"]
    assert variant["variant"] == "variant"
    assert [(job["job"], job["healthy"], job["cause"], job["ranks"]) for job in variant["jobs"]] == [
        ("job", True, "healthy", [])
    ]


def test_a_directory_without_a_job_is_an_error_that_says_so(run: Builder, command) -> None:
    run.event(1, "lab", "", "up").write()
    status, _, said = command(run.directory)
    assert status == 2
    assert "no job ran here" in said


def test_a_directory_that_is_none_is_an_error(tmp_path: Path, command) -> None:
    status, _, said = command(tmp_path / "nowhere")
    assert status == 2
    assert "no such directory" in said
