"""Programs that people bring to a network: each does its work between two nodes."""

import socket
import time

import pytest

pytestmark = pytest.mark.topology("""
name: pair
topology:
  nodes:
    a: {kind: host}
    b: {kind: host}
  links:
    - {endpoints: ["a:eth1", "b:eth1"]}
""")


@pytest.fixture
def ip(lab):
    return str(lab.host("a")["eth1"].address().ip)


def test_iperf3_measures(lab, ip):
    server = lab["a"].spawn("iperf3", "--server", "--one-off", "--forceflush")
    server.wait_output("Server listening", within=10)

    assert "receiver" in lab["b"].run("iperf3", "--client", ip, "--bytes", "1M").stdout
    assert server.wait(within=10) == 0


def test_netcat_carries_a_line(lab, ip):
    server = lab["a"].spawn("nc", "-n", "-v", "-l", "-N", ip, "5000")
    server.wait_output("Listening", within=10)

    lab["b"].run("nc", "-n", "-N", ip, "5000", text="a line\n")
    assert server.wait(within=10) == 0
    assert "a line" in server.output


def test_dnsmasq_answers_dig(lab, ip):
    options = ("--keep-in-foreground", "--conf-file=/dev/null", "--no-resolv", "--no-hosts", "--user=root")
    server = lab["a"].spawn("dnsmasq", *options, "--log-facility=-", "--host-record=leaf.test,198.18.5.5")
    server.wait_output("started", within=10)

    assert lab["b"].run("dig", "+short", f"@{ip}", "leaf.test").stdout == "198.18.5.5\n"
    server.stop()


@pytest.mark.slow
def test_ucx_perftest_measures(lab):
    """Debian's is built for MPI: it takes two ranks and no address."""
    mpirun = ("mpirun", "--allow-run-as-root", "--oversubscribe", "--mca", "mpi_yield_when_idle", "1", "-n", "2")
    command = ("env", "UCX_TLS=tcp", *mpirun, "ucx_perftest", "-t", "tag_lat", "-n", "100", "-w", "10", "-f")

    assert lab["a"].run(*command, within=60).stdout.splitlines()[-1].split()[0] == "100"


@pytest.mark.fresh
def test_a_tap_device_can_be_made(lab):
    lab["a"].run("ip", "tuntap", "add", "mode", "tap", "name", "tap0")

    assert "tap0: <" in lab["a"].run("ip", "link").stdout
    assert lab["a"].run("test", "-c", "/dev/net/tun").returncode == 0


def ends(log):
    return [(event["node"], event["data"]["status"]) for event in log.find("program.ended")]


def test_a_program_that_ends_is_an_event_at_its_time_and_one_that_is_stopped_is_none(lab, log):
    before = len(ends(log))
    begin = log.now
    one, two = lab["a"].spawn("sh", "-c", "sleep 0.5; exit 3"), lab["b"].spawn("sleep", "100")
    killed = lab["b"].spawn("sh", "-c", "kill -TERM $$")
    lab.scheduler.sleep(1)
    assert ends(log)[before:] == [("b", -15), ("a", 3)]
    last = log.find("program.ended")[-1]
    assert 0.5e9 <= last["t"] - begin < 0.6e9
    assert last["data"]["log"] == one.log.name
    assert last["text"] == "sh -c 'sleep 0.5; exit 3' ended with status 3"
    two.stop()
    lab.scheduler.sleep(0.1)
    assert len(ends(log)) == before + 2
    assert killed.status == -15


def test_a_program_that_ended_and_at_which_nobody_looked_is_named(lab):
    known = len(lab.scheduler.programs.failed())
    crash, server = (lab["a"].spawn("sh", "-c", f"exit {status}") for status in (1, 0))
    assert crash.wait(5) == 1
    lab.scheduler.sleep(0.5)
    (said,) = lab.scheduler.programs.failed()[known:]
    assert said == f"a: sh -c 'exit 0' ended with status 0, and the scenario did not look: {server.log.name}"
    server.stop()
    assert len(lab.scheduler.programs.failed()) == known + 1
    assert server.status == 0
    assert len(lab.scheduler.programs.failed()) == known


def test_a_wait_wakes_when_a_program_ends(lab):
    program = lab["a"].spawn("sleep", "7.25")
    begin = time.monotonic()
    assert lab.scheduler.wait(lambda: not program.running, 60, pause=60)
    assert 7.2 < time.monotonic() - begin < 7.5


def test_a_program_has_the_host_name_of_its_node_and_the_machine_keeps_its_own(lab):
    machine = socket.gethostname()
    assert lab["a"].run("hostname").stdout == "a\n"
    program = lab["b"].spawn("uname", "-n")
    assert (program.wait(5), program.output) == (0, "b\n")
    assert socket.gethostname() == machine not in ("a", "b")
