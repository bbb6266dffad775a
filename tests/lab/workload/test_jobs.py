"""Distributed jobs: ranks meet over RoCE, and whatever goes wrong is one error that names the rank."""

import json
import os
import subprocess
import sysconfig
from ipaddress import IPv4Interface
from pathlib import Path

import pytest

from testbed.errors import DeadlineError, InputError, TestbedError, UnsupportedError
from testbed.kernel.rxe_devices import counters
from testbed.topology.fabrics import leaf_spine
from testbed.workload.jobs.mpi import mpirun
from testbed.workload.jobs.placement import place
from testbed.workload.jobs.torchrun import torchrun
from testbed.workload.traffic import Traffic

PROGRAMS = Path(__file__).with_name("programs")
PAIR = """
name: jobs
topology:
  nodes:
    sw: {kind: bridge}
    mgmt: {kind: bridge}
    a: {kind: host}
    b: {kind: host}
    launcher: {kind: host}
  links:
    - {endpoints: ["sw:p1", "a:eth1"]}
    - {endpoints: ["sw:p2", "b:eth1"]}
    - {endpoints: ["mgmt:p1", "a:mgmt0"], rdma: false}
    - {endpoints: ["mgmt:p2", "b:mgmt0"], rdma: false}
    - {endpoints: ["mgmt:p3", "launcher:mgmt0"], rdma: false}
"""
pytestmark = pytest.mark.topology(PAIR)
JOB_S = 60
UNRELIABLE_DATAGRAM = 3
"""The transport in the highest bits of BTH's opcodes; UCX connects by it."""
LIBRARIES = "libmpi.so.40", "libc.so.6"


@pytest.fixture
def hosts(lab):
    return [lab.host("a"), lab.host("b")]


@pytest.fixture
def start(lab, hosts):
    """Starts a program as two ranks."""

    def call(program, *arguments):
        return mpirun(lab, hosts, PROGRAMS / program, *arguments, launcher=lab.host("launcher"))

    return call


@pytest.fixture
def native(tmp_path):
    """An MPI program that the machine's compiler made of allreduce.c."""
    program = tmp_path / "allreduce"
    libraries = [f"{sysconfig.get_config_var('LIBDIR')}/{name}" for name in LIBRARIES]
    subprocess.run(["tcc", "-nostdlib", "-o", program, PROGRAMS / "allreduce.c", *libraries], check=True)
    return program


def ranks_left() -> list[str]:
    """Directories of processes that a job left behind."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            where = os.readlink(f"/proc/{pid}/cwd")
        except OSError:
            continue
        if where.endswith("/job"):
            found.append(where)
    return found


def test_ranks_add_up_over_roce_and_over_nothing_else(lab, start):
    traffic = Traffic(lab.host("a")["eth1"])
    job = start("allreduce.py")
    job.check(JOB_S)
    assert [job.output(rank).split() for rank in (0, 1)] == [["sum", "3.0", "of", "2"]] * 2
    counted = traffic.bytes()
    assert counted["roce_out"] > 8000
    assert (counted["tcp_out"], counted["tcp_in"]) == (0, 0)
    assert not job.scratch.exists()


def test_a_rank_may_have_variables_of_its_own(lab, hosts):
    given = {"environment": {"COLOUR": "blue"}, "of_ranks": {1: {"COLOUR": "red and 'green'"}}}
    job = mpirun(lab, hosts, "printenv", "COLOUR", launcher=lab.host("launcher"), **given)
    job.check(JOB_S)
    assert [job.output(rank).strip() for rank in (0, 1)] == ["blue", "red and 'green'"]
    with pytest.raises(InputError, match="the job has no rank 2"):
        mpirun(lab, hosts, "printenv", launcher=lab.host("launcher"), name="other", of_ranks={2: {}})


def cpu_s(job) -> float:
    """The CPU seconds that the processes of a job have taken, by the scheduler's own clock: ticks are too coarse."""
    return sum(int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) for pid in job._processes_left()) / 1e9


def test_ranks_that_wait_sleep(lab, start):
    job = start("deadlock.py")
    assert lab.scheduler.wait(lambda: [len(job.calls(rank, "Recv")) for rank in (0, 1)] == [1, 1], within=JOB_S)
    before = cpu_s(job)
    lab.scheduler.sleep(600)
    assert cpu_s(job) - before < 0.1
    with pytest.raises(DeadlineError):
        job.check(1)


@pytest.mark.parametrize("program", ["allreduce.py", "native"])
def test_calls_of_a_rank_on_the_launcher_s_host_are_recorded_too(lab, hosts, native, program):
    job = mpirun(lab, hosts, native if program == "native" else PROGRAMS / program, launcher=hosts[0])
    assert job.reaches("Allreduce", 1, within=JOB_S) or not job.running
    job.check(JOB_S)
    assert [len(job.calls(rank, "Allreduce")) for rank in (0, 1)] == [1, 1]
    assert "sum" in job.output(0)


@pytest.mark.parametrize(
    ("way", "said"),
    [
        ("exits", "rank 1 on b: ended with status 3"),
        ("raises", "rank 1 on b: ValueError: the user's mistake"),
        ("is-killed", "rank 1 on b: ended by signal 9"),
        ("raises-later", "rank 1 on b: ValueError: the user's later mistake"),
    ],
)
def test_a_rank_that_goes_wrong_ends_the_job_and_is_named(start, way, said):
    job = start("misbehave.py", way)
    with pytest.raises(TestbedError) as caught:
        job.check(JOB_S)
    assert said in str(caught.value)
    assert not ranks_left()


def test_a_job_that_hangs_is_ended_at_its_deadline(start):
    job = start("misbehave.py", "hangs")
    with pytest.raises(DeadlineError, match="job job: still running after 10 s"):
        job.wait(10)
    assert not ranks_left()
    assert not job.running


@pytest.mark.parametrize("backend", ["mpi", "gloo"])
def test_a_program_may_destroy_its_groups_when_it_likes(lab, hosts, start, backend):
    program = PROGRAMS / "destroy.py"
    job = start(program, backend) if backend == "mpi" else torchrun(lab, hosts, program, backend)
    job.check(JOB_S)
    assert [job.output(rank).splitlines()[-1] for rank in (0, 1)] == ["destroyed"] * 2


@pytest.mark.parametrize(
    ("way", "said"), [("exits", "rank 1 on b: ended with status 3"), ("is-killed", "rank 1 on b: ended by signal 9")]
)
def test_torchrun_s_ranks_are_named_too(lab, hosts, way, said):
    job = torchrun(lab, hosts, PROGRAMS / "misbehave.py", way)
    with pytest.raises(TestbedError, match=said):
        job.check(JOB_S)
    assert not ranks_left()


@pytest.mark.fresh
def test_a_rank_without_a_device_is_named_before_anything_starts(lab, hosts):
    with pytest.raises(InputError, match="rank 1 on launcher: no RDMA device on eth1"):
        place(lab, [hosts[0], lab.host("launcher")], "eth1")
    hosts[1]["eth1"].remove_address()
    with pytest.raises(InputError, match="rank 1 on b: eth1 has no IP address, so b-eth1 has no GID to use"):
        place(lab, hosts, "eth1")


@pytest.mark.fresh
def test_a_device_that_has_gone_is_named_with_its_rank(lab, hosts):
    hosts[1].run("rdma", "link", "delete", hosts[1]["eth1"].device)
    with pytest.raises(TestbedError, match="rank 1 on b: open RDMA device b-eth1"):
        mpirun(lab, hosts, PROGRAMS / "allreduce.py", launcher=lab.host("launcher"))
    assert not (lab.directory / "job").exists()


@pytest.mark.fresh
def test_a_device_that_ucx_does_not_find_is_named_with_its_rank(lab, hosts):
    unknown = {"UCX_NET_DEVICES": "mlx5_0:1"}
    job = mpirun(lab, hosts, PROGRAMS / "allreduce.py", launcher=lab.host("launcher"), environment=unknown)
    with pytest.raises(TestbedError, match=r"rank 0 on a: .*mlx5_0:1"):
        job.check(JOB_S)
    assert not ranks_left()


@pytest.mark.parametrize("number", [0, 1])
def test_no_rank_and_one_alone_are_refused(lab, hosts, number):
    program, refused = PROGRAMS / "whoami.py", f"at least two ranks, not {number}"
    with pytest.raises(InputError, match=refused):
        mpirun(lab, hosts[:number], program, launcher=lab.host("launcher"))
    with pytest.raises(InputError, match=refused):
        torchrun(lab, hosts[:number], program)
    with pytest.raises(InputError, match="ranks_per_host is 0; at least 1 is needed"):
        torchrun(lab, hosts, program, ranks_per_host=0)
    assert not (lab.directory / "job").exists()


@pytest.mark.parametrize("launched_by", ["mpirun", "torchrun"])
def test_a_rank_that_leaves_the_others_waiting_is_named_at_the_deadline(lab, hosts, start, launched_by):
    if launched_by == "mpirun":
        job = start("misbehave.py", "leaves")
    else:
        job = torchrun(lab, hosts, PROGRAMS / "misbehave.py", "leaves")
    with pytest.raises(DeadlineError, match="still running after 30 s, though it has ended on: rank 1 on b"):
        job.check(30)
    assert not ranks_left()


def test_a_script_that_is_none_is_named_with_the_rank_that_met_it(lab, hosts, tmp_path):
    script = tmp_path / "train.py"
    script.write_text("this is no Python\n")
    of_mpirun = mpirun(lab, hosts, script, launcher=lab.host("launcher"))
    for job in (of_mpirun, torchrun(lab, hosts, script, name="control")):
        with pytest.raises(TestbedError, match=r"rank \d on [ab]: SyntaxError: invalid syntax"):
            job.check(JOB_S)
    with pytest.raises(InputError, match=r"none\.py: this program of the ranks does not exist"):
        torchrun(lab, hosts, tmp_path / "none.py")


def test_hosts_may_have_several_ranks_in_any_order(lab, hosts):
    a, b = hosts
    job = mpirun(lab, [a, b, b, a], "hostname", launcher=lab.host("launcher"))
    job.check(JOB_S)
    assert list(map(str, job.ranks)) == ["rank 0 on a", "rank 1 on b", "rank 2 on b", "rank 3 on a"]
    assert [job.output(rank).strip() for rank in range(4)] == ["a", "b", "b", "a"]


def test_a_native_program_adds_up_over_roce(lab, hosts, native):
    traffic = Traffic(lab.host("a")["eth1"])
    job = mpirun(lab, hosts, native, launcher=lab.host("launcher"), ranks_per_host=2)
    job.check(JOB_S)
    assert [job.output(rank) for rank in range(4)] == [f"sum 10.0 of 4 on {host}\n" for host in "aabb"]
    counted = traffic.bytes()
    assert counted["roce_out"] > 8000
    assert (counted["tcp_out"], counted["tcp_in"]) == (0, 0)


@pytest.mark.parametrize(
    ("way", "said"),
    [
        ("exits", "rank 1 on b: ended with status 3"),
        ("crashes", "rank 1 on b: ended by signal 11"),
        ("aborts", "rank 1 on b: called MPI_Abort"),
        ("spawns", "MPI_Comm_spawn is not possible in a job of a lab"),
    ],
)
def test_a_native_rank_that_goes_wrong_is_named(lab, hosts, native, way, said):
    job = mpirun(lab, hosts, native, way, launcher=lab.host("launcher"))
    with pytest.raises(TestbedError, match=said):
        job.check(JOB_S)
    assert not ranks_left()


def test_a_rank_that_spawns_is_refused_at_once(start):
    job = start("spawn.py")
    failure = job.wait(10)
    assert failure
    assert failure.text == (
        "mpi4py.MPI.Exception: MPI_Comm_spawn is not possible in a job of a lab: start all ranks with mpirun"
    )


SENT = 500_000


@pytest.mark.fresh
@pytest.mark.parametrize(("target", "on_the_wire"), [(1, False), (2, True)])
def test_ranks_of_a_host_share_memory_and_those_of_two_hosts_do_not(lab, hosts, target, on_the_wire):
    """All ranks have one kernel; what goes from host to host must be on the wire all the same. What soft-RoCE loops
    back is not on the wire either, but its device counts it."""
    traffic, device = Traffic(hosts[0]["eth1"]), hosts[0]["eth1"].device
    arguments = (str(SENT), "0", str(target))
    job = mpirun(lab, hosts, PROGRAMS / "send.py", *arguments, launcher=lab.host("launcher"), ranks_per_host=2)
    job.check(JOB_S)
    packets = counters(device, hosts[0].namespace)["sent_pkts"]
    if on_the_wire:
        assert traffic.bytes()["roce_out"] > SENT
    else:
        assert traffic.bytes()["roce_out"] < SENT / 10
        assert packets < SENT / 4096


def test_without_torch_python_runs_as_a_program_does(lab, hosts, monkeypatch):
    monkeypatch.setattr("testbed.workload.jobs.job.SOCKET", "/nowhere")
    job = mpirun(lab, hosts, PROGRAMS / "allreduce.py", launcher=lab.host("launcher"))
    job.check(JOB_S)
    assert [job.output(rank).split() for rank in (0, 1)] == [["sum", "3.0", "of", "2"]] * 2
    job = mpirun(lab, hosts, PROGRAMS / "misbehave.py", "raises-later", launcher=lab.host("launcher"), name="later")
    with pytest.raises(TestbedError, match="rank 1 on b: ValueError: the user's later mistake"):
        job.check(JOB_S)


def test_a_program_that_is_none_is_named_before_anything_starts(lab, hosts, tmp_path):
    (tmp_path / "script").write_text("#!/bin/sh\n")
    for program, said in (
        ("no-such-program", "no-such-program: this program of the ranks does not exist"),
        (tmp_path / "none.py", "none.py: this program of the ranks does not exist"),
        (tmp_path / "script", r"(?s)script: this program of the ranks does not exist.*chmod \+x"),
    ):
        with pytest.raises(InputError, match=said):
            mpirun(lab, hosts, program, launcher=lab.host("launcher"))
    assert not (tmp_path / "job").exists()


def test_torchrun_starts_several_ranks_a_host(lab, hosts):
    job = torchrun(lab, hosts, PROGRAMS / "whoami.py", ranks_per_host=2)
    job.check(JOB_S)
    last_lines = [job.output(rank).splitlines()[-1] for rank in range(4)]
    assert last_lines == [f"rank {rank} of 4 local {local}" for rank, local in enumerate("0101")]
    job = torchrun(lab, hosts, PROGRAMS / "whoami.py", "3", ranks_per_host=2, name="later")
    with pytest.raises(TestbedError, match="rank 3 on b: ended with status 3"):
        job.check(JOB_S)
    with pytest.raises(InputError, match="use ranks_per_host"):
        torchrun(lab, [hosts[0], hosts[0]], PROGRAMS / "whoami.py", name="twice")


OF_GLOO = {
    0: [
        *(("Allreduce", "0-2", 1, 40, None), ("Bcast", "0-2", 2, 40, 1), ("Allgather", "0-2", 3, 40, None)),
        *(("Barrier", "0-2", 4, 0, None), ("Gather", "0-2", 5, 40, 2), ("Allreduce", "0,2", 1, 16, None)),
        *(("Send", "0-2", 0, 40, 1), ("Isend", "0-2", 0, 40, 2), ("Irecv", "0-2", 0, 40, 2)),
        *(("Wait", "", 0, 0, None), ("Wait", "", 0, 0, None)),
    ],
    1: [
        *(("Allreduce", "0-2", 1, 40, None), ("Bcast", "0-2", 2, 40, 1), ("Allgather", "0-2", 3, 40, None)),
        *(("Barrier", "0-2", 4, 0, None), ("Gather", "0-2", 5, 40, 2), ("Recv", "0-2", 0, 40, 0)),
    ],
}
"""The calls of programs/gloo.py: operation, group, number, bytes, and the other rank or the root."""


def test_calls_of_gloo_are_recorded_too(lab, hosts):
    job = torchrun(lab, [*hosts, lab.host("launcher")], PROGRAMS / "gloo.py", "ends")
    job.check(JOB_S)
    for rank, expected in OF_GLOO.items():
        calls = [call for call in recorded(job) if call["rank"] == rank]
        keys = "operation", "communicator", "sequence", "bytes", "peer"
        assert [tuple(call[key] for key in keys) for call in calls][: len(expected)] == expected
        assert (calls[-1]["operation"], calls[-1]["bytes"]) == ("Allreduce", 400)  # of DistributedDataParallel
        assert all(call["began"] < call["ended"] for call in calls)


def test_a_hang_of_gloo_is_seen_while_it_lasts(lab, log, hosts):
    job = torchrun(lab, [*hosts, lab.host("launcher")], PROGRAMS / "gloo.py", "hangs")
    with pytest.raises(DeadlineError):
        job.wait(30)
    [stalled] = log.find("job.stalled")
    waiting = [(call["rank"], call["operation"], call["peer"]) for call in stalled["data"]["waiting"]]
    assert waiting == [(0, "Recv", 1), (1, "Recv", 2), (2, "Recv", 0)]


@pytest.mark.topology(PAIR, rdma_mode="exclusive")
def test_a_job_runs_in_exclusive_mode(lab, start):
    traffic = Traffic(lab.host("a")["eth1"])
    start("allreduce.py").check(JOB_S)
    assert traffic.bytes()["roce_out"] > 8000


@pytest.mark.fresh
def test_a_rank_uses_the_gid_of_its_address_wherever_it_is_in_the_table(lab, hosts):
    before = [rank.gid for rank in place(lab, hosts, "eth1")]
    hosts[0]["eth1"].add_address(IPv4Interface("10.99.0.1/24"))
    after = [rank.gid for rank in place(lab, hosts, "eth1")]
    assert after[0] > before[0]
    assert after[1] == before[1]


def test_without_torch_in_the_machine_torchrun_says_how_to_have_it(lab, hosts, monkeypatch):
    monkeypatch.setattr("testbed.workload.jobs.job.SOCKET", "/nowhere")
    with pytest.raises(UnsupportedError, match="no process with torch imported"):
        torchrun(lab, hosts, PROGRAMS / "allreduce.py")


def test_a_job_needs_a_management_network(lab, hosts):
    with pytest.raises(InputError, match="launcher has no address on eth1"):
        mpirun(lab, hosts, PROGRAMS / "allreduce.py", launcher=lab.host("launcher"), management_interface="eth1")


@pytest.mark.parametrize(
    "family",
    [
        pytest.param(family, marks=pytest.mark.topology(leaf_spine(2, 1, 1, family=family, management=True).topology()))
        for family in (4, 6)
    ],
)
def test_a_job_runs_on_a_generated_fabric(lab, native, family):
    hosts = [lab.host("host1"), lab.host("host2")]
    traffic = Traffic(hosts[0]["eth1"])
    mpirun(lab, hosts, native, launcher=lab.host("launcher")).check(JOB_S)
    assert traffic.bytes()["roce_out"] > 8000


BONDED = """
name: bonded-job
topology:
  nodes:
    leaf: {kind: switch, vlans: {10: null}, bonds: {po1: {members: [e1, e2]}, po2: {members: [e3]}}}
    mgmt: {kind: bridge}
    a: {kind: host, bonds: {bond0: {members: [eth1, eth2]}}}
    b: {kind: host, bonds: {bond0: {members: [eth1]}}}
    launcher: {kind: host}
  links:
    - {endpoints: ["leaf:e1", "a:eth1"], vlan: 10}
    - {endpoints: ["leaf:e2", "a:eth2"], vlan: 10}
    - {endpoints: ["leaf:e3", "b:eth1"], vlan: 10}
    - {endpoints: ["mgmt:p1", "a:mgmt0"], rdma: false}
    - {endpoints: ["mgmt:p2", "b:mgmt0"], rdma: false}
    - {endpoints: ["mgmt:p3", "launcher:mgmt0"], rdma: false}
"""


@pytest.mark.topology(BONDED)
def test_all_processes_of_a_job_use_one_link_of_a_bond(lab, native):
    """https://github.com/openucx/ucx/issues/11004: their RC queue pairs have the UDP source port 65472."""
    a, b = lab.host("a"), lab.host("b")
    wires = [a[link].capture(f"udp dst port 4791 and src host {a['bond0'].address().ip}") for link in ("eth1", "eth2")]
    mpirun(lab, [a, b, a, b], native, launcher=lab.host("launcher"), data="bond0").check(JOB_S)
    sent = []
    for wire in wires:
        wire.stop()
        packets = [frame.packet for frame in wire.frames()]
        sent.append({packet["UDP"].sport for packet in packets if packet["BTH"].opcode >> 5 != UNRELIABLE_DATAGRAM})
    assert sorted(sent, key=len) == [set(), {65472}]


@pytest.mark.topology(PAIR.replace("b:", "trainer-two:"))
def test_a_device_whose_name_ucx_cuts_is_named_with_its_rank(lab):
    hosts = [lab.host("a"), lab.host("trainer-two")]
    with pytest.raises(InputError, match="rank 1 on trainer-two: UCX does not find trainer-two-eth1"):
        mpirun(lab, hosts, "hostname", launcher=lab.host("launcher"))


def test_steps_of_an_unchanged_program_are_known_and_files_beside_it_are_there(lab, hosts, tmp_path):
    (tmp_path / "rate.txt").write_text("0.5")
    job = mpirun(lab, hosts, PROGRAMS / "steps.py", launcher=lab.host("launcher"), beside=tmp_path)
    job.check(JOB_S)
    assert [job.output(rank).splitlines()[-1] for rank in range(2)] == ["-3.0", "-3.0"]
    for rank in range(2):
        steps = job.steps(rank)
        assert [step.number for step in steps] == [1, 2, 3]
        assert steps[0].ended_ns == steps[1].began_ns
        assert 2 <= steps[1].seconds < 3
        assert steps[2].seconds < 1
    assert job.steps_done() == 3
    assert not (job.directory / "rate.txt").is_symlink()
    assert (tmp_path / "rate.txt").exists()


def test_a_job_without_an_optimizer_has_no_steps(start):
    job = start("allreduce.py")
    job.check(JOB_S)
    assert (job.steps(0), job.steps_done()) == ([], 0)


def test_calls_are_known_while_a_job_runs_and_afterwards(start):
    job = start("collects.py")
    assert job.reaches("Allreduce", 2, within=JOB_S)
    done = [sum(call.ended is not None for call in job.calls(rank, "Allreduce")) for rank in range(2)]
    assert min(done) >= 2
    assert max(done) < 4
    job.check(JOB_S)
    calls = job.calls(1, "Allreduce")
    assert [(call.rank, call.bytes) for call in calls] == [(1, 40)] * 4
    assert all(0 < call.seconds < JOB_S for call in calls)


def test_a_job_that_ended_reaches_nothing(start):
    job = start("allreduce.py")
    assert not job.reaches("Allreduce", 2, within=JOB_S)
    job.check(JOB_S)


def recorded(job) -> list[dict]:
    return [json.loads(line) for line in (job.directory / "flight.jsonl").read_text().splitlines()]


def test_the_flight_recorder_has_every_call_of_every_rank(lab, hosts, native):
    job = mpirun(lab, hosts, native, launcher=lab.host("launcher"), ranks_per_host=2)
    job.check(JOB_S)
    lines = recorded(job)
    assert {(line["rank"], line["host"]) for line in lines} == {(0, "a"), (1, "a"), (2, "b"), (3, "b")}
    for rank in range(4):
        calls = [line for line in lines if line["rank"] == rank]
        assert [(line["operation"], line["sequence"], line["bytes"]) for line in calls] == [
            ("Allreduce", 1, 8000),
            ("Finalize", 2, 0),
        ]
        assert {line["communicator"] for line in calls} == {"0-3"}
        assert calls[0]["began"] < calls[0]["ended"] <= calls[1]["began"] < calls[1]["ended"]
    assert not list(job.directory.glob("*.bin"))


def test_it_has_the_call_in_which_a_rank_was_when_it_ended(start):
    job = start("groups.py", "crashes")
    failure = job.wait(JOB_S)
    assert failure
    assert failure.rank.number == 1
    lines = recorded(job)
    last = [[line for line in lines if line["rank"] == rank][-1] for rank in (0, 1)]
    assert (last[0]["operation"], last[0]["ended"]) == ("Allreduce", None)
    assert (last[1]["operation"], last[1]["sequence"]) == ("Send", 0)
    assert last[1]["peer"] == 0


def test_it_distinguishes_communicators(start):
    job = start("groups.py", "ends")
    job.check(JOB_S)
    calls = [(line["operation"], line["communicator"], line["sequence"]) for line in recorded(job) if not line["rank"]]
    assert calls[:4] == [("Comm_split", "0-1", 1), ("Barrier", "0", 1), ("Comm_dup", "0-1", 2), ("Barrier", "0-1#2", 1)]


@pytest.mark.fresh
def test_a_job_that_stalls_is_reported_with_the_calls_and_queue_pairs(lab, log, start):
    port = lab.interface("sw:p2")
    lab.scheduler.after(3.0, port.down)
    job = start("groups.py", "goes-on")
    assert job.wait(JOB_S)
    (stalled,) = log.find("job.stalled")
    assert {call["operation"] for call in stalled["data"]["waiting"]} == {"Allreduce"}
    assert [call["ended"] for call in stalled["data"]["waiting"]] == [None, None]
    assert stalled["data"]["queue_pairs"]["a"]["RC RTS"] >= 1
    assert stalled["data"]["since_ns"] >= 3e9
    assert stalled["data"]["addresses"] == [str(lab.host(name)["eth1"].address().ip) for name in ("a", "b")]
