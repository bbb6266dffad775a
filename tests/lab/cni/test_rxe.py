"""The plugin `rxe` as any runtime would call it: a program, an environment, JSON in and out."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyroute2 import IPRoute

import testbed.cni
from testbed.cni.agent import Agent
from testbed.kernel import netns, rdma

PROGRAM = Path(testbed.cni.__file__).parent / "bin/rxe"
CONTAINER = "0123456789abcdef0123456789abcdef"
DEVICE = "012345678-net1"
NAMESPACE = "pod"
RESULT = {"cniVersion": "1.0.0", "interfaces": [{"name": "net1", "sandbox": "/run/netns/pod"}], "dns": {}}
NAMED = {**RESULT, "interfaces": [{"name": "net1", "sandbox": "/run/netns/pod", "rdma-device": DEVICE}]}
CONFIG = {"cniVersion": "1.0.0", "name": "rdma", "type": "rxe", "prevResult": RESULT}


def call(command: str, config: Any = CONFIG, **changes: str) -> tuple[int, Any]:
    """Status, and the JSON it printed. A variable that is to be missing is empty."""
    variables = {
        "CNI_COMMAND": command,
        "CNI_CONTAINERID": CONTAINER,
        "CNI_NETNS": str(netns.path(NAMESPACE)),
        "CNI_IFNAME": "net1",
        "CNI_PATH": "/usr/lib/cni",
    }
    text = config if isinstance(config, str) else json.dumps(config)
    done = subprocess.run(
        [PROGRAM], env={**variables, **changes}, input=text, capture_output=True, text=True, check=False
    )
    assert not done.stderr
    return done.returncode, json.loads(done.stdout) if done.stdout else None


def devices() -> set[str]:
    with netns.entered(NAMESPACE), rdma.Rdma() as here:
        return set(here.devices())


@pytest.fixture(scope="module", autouse=True)
def _agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """That of the machine, whose plugins are called here."""
    directory = tmp_path_factory.mktemp("agent")
    agent = Agent("machine", "/proc/1/ns/net", directory / "shared", directory / "log")
    agent.start()
    yield
    agent.stop()


@pytest.fixture(params=["shared", "exclusive"])
def pod(request: pytest.FixtureRequest) -> Iterator[None]:
    """A namespace with an interface net1."""
    with rdma.Rdma() as system:
        system.set_exclusive(request.param == "exclusive")
    netns.create(NAMESPACE)
    try:
        with netns.entered(NAMESPACE), IPRoute() as ip:
            ip.link("add", ifname="net1", kind="veth", peer={"ifname": "peer"})
        yield
    finally:
        if netns.path(NAMESPACE).exists():
            netns.delete(NAMESPACE)
        with rdma.Rdma() as system:
            system.wait_gone([DEVICE])


def test_it_tells_its_versions():
    status, answer = call("VERSION", "")
    assert status == 0
    assert answer == {"cniVersion": "1.1.0", "supportedVersions": ["0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"]}


@pytest.mark.usefixtures("pod")
def test_a_pod_gets_a_device_and_gives_it_back():
    assert call("ADD") == (0, NAMED)
    assert devices() == {DEVICE}
    assert call("CHECK") == (0, None)

    assert call("DEL") == (0, None)

    assert not devices()
    assert not Path(rdma.SYSFS, DEVICE).exists()
    assert call("DEL") == (0, None)
    assert call("CHECK")[1]["msg"] == f"net1 has no RDMA device {DEVICE}"


@pytest.mark.usefixtures("pod")
def test_del_works_without_the_namespace():
    assert call("ADD")[0] == 0
    netns.delete(NAMESPACE)
    assert call("DEL") == (0, None)
    assert call("DEL", CNI_NETNS="") == (0, None)


@pytest.mark.usefixtures("pod")
def test_a_device_that_is_there_already_is_an_error_and_stays():
    assert call("ADD")[0] == 0
    status, answer = call("ADD")
    assert status == 1
    assert (answer["code"], answer["cniVersion"]) == (100, "1.0.0")
    assert "the interface already has one" in answer["msg"]
    assert devices() == {DEVICE}
    call("DEL")


@pytest.mark.parametrize(
    ("command", "config", "changes", "code", "said"),
    [
        (
            "ADD",
            CONFIG,
            {"CNI_NETNS": "", "CNI_IFNAME": ""},
            4,
            "required env variables [CNI_NETNS,CNI_IFNAME] missing",
        ),
        ("DEL", CONFIG, {"CNI_CONTAINERID": ""}, 4, "required env variables [CNI_CONTAINERID] missing"),
        ("EAT", CONFIG, {}, 4, "unknown CNI_COMMAND: EAT"),
        ("ADD", "{", {}, 6, "the configuration is not JSON"),
        ("ADD", "[]", {}, 6, "the configuration is not a JSON object"),
        ("ADD", {**CONFIG, "name": ""}, {}, 7, "the network's name is missing"),
        ("ADD", {**CONFIG, "cniVersion": "0.2.0"}, {}, 1, "incompatible CNI versions"),
        ("ADD", {**CONFIG, "prevResult": None}, {}, 7, "rxe must be chained"),
        ("CHECK", {**CONFIG, "prevResult": None}, {}, 7, "rxe must be chained"),
        ("ADD", CONFIG, {"CNI_NETNS": "/run/netns/nobody"}, 8, "network namespace /run/netns/nobody does not exist"),
    ],
)
def test_what_is_wrong_has_the_code_of_the_specification(command, config, changes, code, said):
    status, answer = call(command, config, **changes)
    assert status == 1
    assert answer["code"] == code
    assert answer["msg"].startswith(said)


@pytest.mark.usefixtures("pod")
def test_an_interface_that_is_not_there():
    status, answer = call("ADD", CNI_IFNAME="net7")
    assert (status, answer["code"]) == (1, 100)
    assert answer["msg"] == "the kernel refused: No such device"
