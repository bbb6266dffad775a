"""A service on a host forwards connections to where it is told, and is gone without a trace."""

from ipaddress import IPv4Address

import pytest

from testbed.errors import InputError

pytestmark = pytest.mark.topology("""
name: service
topology:
  nodes:
    leaf: {kind: switch, profile: sonic, vlans: {10: 10.0.10.1/24, 20: 10.0.20.1/24}}
    client: {kind: host}
    one: {kind: host}
    two: {kind: host}
  links:
    - {endpoints: ["leaf:e1", "client:eth1"], vlan: 10}
    - {endpoints: ["leaf:e2", "one:eth1"], vlan: 20}
    - {endpoints: ["leaf:e3", "two:eth1"], vlan: 20}
""")
ADDRESS, PORT = IPv4Address("10.96.0.10"), 29500


def listen(host, port):
    """A server that keeps what one client sends in its output."""
    server = host.spawn("nc", "-n", "-v", "-l", str(port))
    server.wait_output("Listening", within=10)
    return server


def send(host, text):
    """Whether a line got to the service."""
    return host.run("nc", "-n", "-N", "-w", "5", str(ADDRESS), str(PORT), text=text, check=False).returncode == 0


@pytest.fixture
def service(lab):
    return lab.host("client").service(ADDRESS, PORT)


def address(lab, name):
    return lab.host(name)["eth1"].address().ip


def test_it_forwards_to_another_port_of_a_host(lab, service):
    server = listen(lab["one"], 7000)
    service.forward(address(lab, "one"), 7000)

    assert send(lab["client"], "a line\n")
    assert server.wait(within=10) == 0
    assert "a line" in server.output
    assert service.connections() == 1


def test_it_follows_what_has_moved(lab, service):
    service.forward(address(lab, "one"), 7000)
    assert not send(lab["client"], "to nobody\n")  # refused
    server = listen(lab["two"], 8000)
    service.forward(address(lab, "two"), 8000)

    assert send(lab["client"], "a line\n")
    assert server.wait(within=10) == 0
    assert "a line" in server.output
    assert service.connections() == 1  # since it forwards there


def test_an_open_connection_stays_where_it_is(lab, service, tmp_path):
    old, new = listen(lab["one"], 7000), listen(lab["two"], 8000)
    service.forward(address(lab, "one"), 7000)
    script = f"exec 3<>/dev/tcp/{ADDRESS}/{PORT}; echo first >&3; until [ -e {tmp_path}/go ]; do sleep 0.1; done"
    client = lab["client"].spawn("bash", "-c", f"{script}; echo second >&3")
    old.wait_output("first", within=10)
    service.forward(address(lab, "two"), 8000)
    (tmp_path / "go").touch()

    assert client.wait(within=10) == 0
    old.wait_output("second", within=10)
    assert send(lab["client"], "third\n")
    assert "third" in new.output


@pytest.mark.fresh
def test_nothing_is_left_when_it_is_withdrawn(lab, service):
    before = lab["client"].run("nft", "list", "ruleset").stdout
    service.forward(address(lab, "one"), 7000)
    assert lab["client"].run("nft", "list", "ruleset").stdout != before

    service.withdraw()
    service.withdraw()

    assert lab["client"].run("nft", "list", "ruleset").stdout == before
    assert service.connections() == 0


def test_two_services_of_a_host_are_apart(lab, service):
    other = lab.host("client").service(ADDRESS, PORT + 1)
    server = listen(lab["one"], 7000)
    service.forward(address(lab, "one"), 7000)
    other.forward(address(lab, "two"), 8000)
    other.withdraw()

    assert send(lab["client"], "a line\n")
    assert server.wait(within=10) == 0


def test_it_reports_where_it_forwards(lab, service, log):
    service.forward(address(lab, "one"), 7000)

    (event,) = log.find("service")
    assert event["text"] == f"service {ADDRESS}:{PORT} forwards to {address(lab, 'one')}:7000"
    assert event["data"]["to_port"] == 7000


@pytest.mark.parametrize("port", [0, 65536])
def test_a_port_that_is_none_is_refused(lab, service, port):
    with pytest.raises(InputError, match=f"{port} is not a TCP port"):
        service.forward(address(lab, "one"), port)
    with pytest.raises(InputError, match=f"{port} is not a TCP port"):
        lab.host("client").service(ADDRESS, port)
