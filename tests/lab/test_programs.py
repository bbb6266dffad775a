"""Programs that people bring to a network: each does its work between two nodes."""

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
