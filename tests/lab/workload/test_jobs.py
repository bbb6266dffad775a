"""Distributed jobs: ranks meet over RoCE, and whatever goes wrong is one error that names the rank."""

import os
from ipaddress import IPv4Interface
from pathlib import Path

import pytest

from testbed.errors import DeadlineError, InputError, TestbedError, UnsupportedError
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


@pytest.fixture
def hosts(lab):
    return [lab.host("a"), lab.host("b")]


@pytest.fixture
def start(lab, hosts):
    """Starts a program as two ranks."""

    def call(program, *arguments):
        return mpirun(lab, hosts, PROGRAMS / program, *arguments, launcher=lab.host("launcher"))

    return call


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
    traffic = Traffic(lab.host("a"), "eth1")
    job = start("allreduce.py")
    job.check(JOB_S)
    assert [job.output(rank).split() for rank in (0, 1)] == [["sum", "3.0", "of", "2"]] * 2
    counted = traffic.bytes()
    assert counted["roce_out"] > 8000
    assert (counted["tcp_out"], counted["tcp_in"]) == (0, 0)
    assert not job.scratch.exists()


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


@pytest.mark.parametrize(
    ("way", "said"),
    [("exits", "rank 1 on b: ended with status 3"), ("is-killed", "rank 1 on b: ended by signal 9")],
)
def test_torchrun_s_ranks_are_named_too(lab, hosts, way, said):
    job = torchrun(lab, hosts, PROGRAMS / "misbehave.py", way)
    with pytest.raises(TestbedError, match=said):
        job.check(JOB_S)
    assert not ranks_left()


def test_a_rank_without_a_device_is_named_before_anything_starts(lab, hosts):
    with pytest.raises(InputError, match="rank 1 on launcher: no RDMA device on eth1"):
        place([hosts[0], lab.host("launcher")], "eth1")


def test_one_rank_alone_or_two_on_a_host_are_refused(hosts):
    with pytest.raises(InputError, match="two ranks at least, not 1"):
        place(hosts[:1], "eth1")
    with pytest.raises(InputError, match="rank 2 on a: rank 0 is there already"):
        place([*hosts, hosts[0]], "eth1")


def test_a_rank_uses_the_gid_of_its_address_wherever_it_is_in_the_table(hosts):
    before = [rank.gid for rank in place(hosts, "eth1")]
    hosts[0].add_address("eth1", IPv4Interface("10.99.0.1/24"))
    after = [rank.gid for rank in place(hosts, "eth1")]
    assert after[0] > before[0]
    assert after[1] == before[1]


def test_without_torch_in_the_machine_the_error_says_how_to_have_it(lab, hosts, monkeypatch):
    monkeypatch.setattr("testbed.workload.jobs.job.SOCKET", "/nowhere")
    with pytest.raises(UnsupportedError, match="no process with torch waits"):
        mpirun(lab, hosts, PROGRAMS / "allreduce.py", launcher=lab.host("launcher"))


def test_a_job_needs_a_management_network(lab, hosts):
    with pytest.raises(InputError, match="launcher has no address on eth1"):
        mpirun(lab, hosts, PROGRAMS / "x.py", launcher=lab.host("launcher"), management_interface="eth1")
