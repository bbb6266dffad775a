"""Labs of Kathará become topology files: devices are containers with their files and scripts, or hosts."""

from pathlib import Path

import pytest
import yaml
from kathara_labs import LABS, write

from testbed.errors import InputError
from testbed.topology import Topology
from testbed.topology.kathara import convert


def converted(directory: Path, *, containers: bool = True) -> tuple[str, dict]:
    text = convert(directory, directory, containers=containers)
    Topology.parse(text).plan()
    return text, yaml.safe_load(text)["topology"]


def test_devices_are_containers_with_their_files_scripts_and_order(tmp_path: Path) -> None:
    text, found = converted(write(tmp_path, "two-routers"))
    assert found["nodes"]["r1"]["image"] == "kathara/frr"
    assert found["nodes"]["pc1"]["image"] == "kathara/base"
    assert found["nodes"]["r1"]["binds"] == [
        "r1:/hostlab/r1:ro",
        "shared:/shared",
        "shared.startup:/hostlab/shared.startup:ro",
        "r1.startup:/hostlab/r1.startup:ro",
    ]
    commands = found["nodes"]["r1"]["exec"]
    assert commands[0] == "cp -rL /hostlab/r1/. /"
    assert commands[2:] == ["bash /hostlab/shared.startup", "bash /hostlab/r1.startup"]
    assert found["nodes"]["pc1"]["wait-for"] == ["r1", "r2"]
    assert found["defaults"]["sysctls"]["net.ipv4.ip_forward"] == 1
    assert found["nodes"]["pc1"]["sysctls"]["net.ipv6.conf.all.forwarding"] == 1
    assert found["nodes"]["r2"]["sysctls"]["net.ipv6.conf.all.disable_ipv6"] == 1
    assert "name: Static-routing\n" in text
    assert "# pc1: mem=64m has no effect: a lab does not limit a device." in text.splitlines()


def test_collision_domains_are_links_or_bridges(tmp_path: Path) -> None:
    _, found = converted(write(tmp_path, "two-routers"))
    assert [link["endpoints"] for link in found["links"]] == [
        ["r1:eth0", "pc1:eth0"],
        ["r1:eth1", "r2:eth0"],
        [{"node": "r2", "interface": "eth1", "mac": "02:00:00:00:00:0c"}, "pc2:eth0"],
    ]
    _, found = converted(write(tmp_path, "lan"))
    assert found["nodes"]["LAN"] == {"kind": "bridge"}
    assert [link["endpoints"] for link in found["links"]] == [[f"h{n}:eth0", f"LAN:p{n + 1}"] for n in range(4)]
    (tmp_path / "named").mkdir()
    (tmp_path / "named/lab.conf").write_text("a[0]=_a\nb[0]=_a\nc[0]=_a\n")
    _, found = converted(tmp_path / "named")
    assert found["nodes"]["a-domain"] == {"kind": "bridge"}, "a is a device"
    _, found = converted(write(tmp_path, "alone"))
    assert found["links"] == [{"endpoints": ["a:eth0", "X:p1"]}]


def test_without_containers_the_scripts_are_commands_of_hosts(tmp_path: Path) -> None:
    directory = write(tmp_path, "two-routers")
    text, found = converted(directory, containers=False)
    assert "image" not in found["nodes"]["r1"]
    plan = Topology.parse(text).plan()
    shared, script = plan.nodes["r1"].exec
    assert shared == ("echo", "shared")
    assert script == ("bash", "-c", (directory / "r1.startup").read_text().strip())
    assert "# r1 is no container: it does not have the files of r1/." in text.splitlines()


def test_options_of_a_device(tmp_path: Path) -> None:
    text, found = converted(write(tmp_path, "lan"))
    node = found["nodes"]["h0"]
    assert (node["env"], node["exec"]) == ({"WHO": "me"}, ["sleep 1", "echo two"])
    assert node["sysctls"]["net.ipv4.tcp_ecn"] == "1"
    assert "# h0: port=80:80/tcp has no effect: a lab ends at its own links." in text.splitlines()


def test_binds_lead_from_the_new_file_to_the_lab(tmp_path: Path) -> None:
    directory = write(tmp_path, "two-routers")
    (tmp_path / "elsewhere").mkdir()
    found = yaml.safe_load(convert(directory, tmp_path / "elsewhere"))["topology"]
    assert found["nodes"]["pc1"]["binds"][-1] == "../two-routers/pc1.startup:/hostlab/pc1.startup:ro"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("gap", "lab.conf: the interfaces of a are not numbered from 0 on: 0, 2"),
        ("twice", "lab.conf:2:1: interface 0 of a is given twice"),
        ("same-domain", "lab.conf:2:1: a is in the collision domain X twice"),
        ("domain-with-dash", "lab.conf:1:1: 'x-y' is not a collision domain such as A, or A/MAC"),
        ("upper-case", "lab.conf:1:1: not a line of lab.conf: 'R1[0]=X'"),
        ("reserved", "lab.conf:1:1: 'shared' is a reserved name"),
        ("unknown-line", "lab.conf:2:1: not a line of lab.conf: 'LAB_COLOUR=red'"),
        ("wrong-sysctl", "lab.conf:1:1: 'vm.x=1' is not a sysctl such as NAME=VALUE"),
        ("empty", "lab.conf: the lab has no devices"),
        ("unknown-dependency", "lab.dep:1:1: not a line of lab.dep: 'a - b'"),
    ],
)
def test_what_kathara_refuses_is_refused_with_its_line(tmp_path: Path, name: str, message: str) -> None:
    directory = write(tmp_path, name)
    with pytest.raises(InputError) as caught:
        convert(directory, directory)
    assert str(caught.value) == f"{directory}/{message}"


def test_what_is_no_lab_is_refused(tmp_path: Path) -> None:
    for path in tmp_path / "nothing", tmp_path:
        with pytest.raises(InputError):
            convert(path, path)
    assert any(not taken for _, _, taken in LABS.values())
