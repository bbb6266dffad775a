"""Claims of devices without a lab: CEL, the choice of devices, what an API server refuses, who uses a claim."""

from typing import Any

import pytest

from testbed.cni.objects import manifests
from testbed.cni.objects.dra import claims, network_config
from testbed.cni.objects.dra.allocation import Asking, allocate
from testbed.cni.objects.dra.kinds import ClaimSpec, ClassSpec
from testbed.cni.objects.dra.selectors import Device, Quantity, Version, matches
from testbed.cni.objects.placement import NodeView
from testbed.cni.runtime.device_claims import Choice
from testbed.errors import InputError

TEN = "[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]"
HUGE = f"{TEN}.all(a, {TEN}.all(b, {TEN}.all(c, {TEN}.all(d, {TEN}.all(e, {TEN}.all(f, a + b > 0))))))"
ROOT = "resource.kubernetes.io/pcieRoot"
NIC = Device(
    "dra.net",
    "node1",
    "eth1",
    {"dra.net/rdma": True, "dra.net/ifName": "eth1", "dra.net/numaNode": 1, "x.y/v": Version.of("1.2.3")},
    {"dra.net/bandwidth": Quantity.of("40Gi")},
)


@pytest.mark.parametrize(
    ("expression", "found"),
    [
        ('device.driver == "dra.net"', True),
        ('device.attributes["dra.net"].rdma', True),
        ('has(device.attributes["dra.net"].speed)', False),
        ('"rdma" in device.attributes["dra.net"]', True),
        ('device.attributes["dra.net"].numaNode in [0, 1]', True),
        ('device.capacity["dra.net"].bandwidth.compareTo(quantity("39Gi")) >= 0', True),
        ('device.attributes["x.y"].v.isGreaterThan(semver("1.10.0"))', False),
        ('["a", "dra.net"].exists(x, x == device.driver)', True),
        ('device.attributes["dra.net"].ifName.startsWith("eth")', True),
        ('device.attributes["dra.net"].ifName.upperAscii() == "ETH1"', True),
        ('int(device.attributes["dra.net"].ifName.substring(3, 4)) < 4', True),
        ('device.driver.split(".").size() == 2 && device.driver.indexOf(".") == 3', True),
        ('device.driver.replace("dra", "x").charAt(0) == "x" && [3, 1].min() == 1', True),
        ('quantity("1e3") == quantity("1k") && quantity("500m") == quantity("0.5")', True),
        ('semver("1.2.3-rc.2").isLessThan(semver("1.2.3-rc.10"))', True),
        ('semver("1.2.3").isGreaterThan(semver("1.2.3-rc.10"))', True),
        ("type(1) == int", True),
        ('["a", "b"].join("-") == "a-b" && device.driver.reverse().lastIndexOf("t") == 0', True),
    ],
)
def test_an_expression_selects(expression, found):
    assert matches(expression, NIC) is found


@pytest.mark.parametrize(
    ("expression", "wrong"),
    [
        ('device.attributes["dra.net"].speed == 400', "runtime error: no such key: speed"),
        ('device.attributes["none"].speed == 400', "runtime error: no such key: speed"),
        ("devce.driver", "compilation failed: ERROR: undeclared reference to 'devce' (in container '')"),
        ("[1].exists(x, y == 2)", "undeclared reference to 'y'"),
        ("true && speed(device)", "undeclared reference to 'speed'"),
        ("device.driver +", "compilation failed: ERROR: Syntax error at 1:15"),
        ('device.attributes["dra.net"].?speed', "has no optional types"),
        ('device.driver.find("[a-z]") == "d"', "a lab's evaluator of CEL has no function find"),
        ("device.driver.substring(5, 99) == '1'", "runtime error: index out of range: 5"),
        ("device.driver == 5", "runtime error: no such overload"),
        ("int(device.driver) == 1", "runtime error: type conversion error"),
        (HUGE, "actual cost limit exceeded"),
        ("quantity('abc') == quantity('1')", "'abc' is not a quantity such as 40Gi"),
        ('device.attributes["dra.net"].numaNode', "CEL result of type IntType could not be converted to bool"),
        ("(" * 500 + "1" + ")" * 500, "it is nested too deep"),
    ],
)
def test_why_an_expression_is_none(expression, wrong):
    with pytest.raises(InputError) as said:
        matches(expression, NIC)
    assert wrong in str(said.value)


CLASSES = {
    "gpu": ClassSpec.model_validate({"selectors": [{"cel": {"expression": 'device.driver == "gpu.nvidia.com"'}}]}),
    "rdma": ClassSpec.model_validate({"selectors": [{"cel": {"expression": 'device.driver == "dra.net"'}}]}),
}
DEVICES = [
    *(Device("gpu.nvidia.com", "n1", f"gpu-{number}", {ROOT: f"pci{number}"}) for number in range(4)),
    *(Device("dra.net", "n1", f"eth{number}", {ROOT: f"pci{3 - number}"}) for number in range(4)),
]
PAIR = [{"name": "gpu", "exactly": {"deviceClassName": "gpu"}}, {"name": "nic", "exactly": {"deviceClassName": "rdma"}}]
ALIGNED = {"requests": PAIR, "constraints": [{"matchAttribute": ROOT}]}


UNDECLARED = [{"cel": {"expression": "x"}}]


def asking(**devices: Any) -> Asking:
    spec = ClaimSpec.model_validate({"devices": devices})
    spec.check_within("spec")
    return Asking("c", spec)


def given(*wanted: dict[str, Any], taken: Any = (), devices: Any = DEVICES) -> list[list[str]] | None:
    found = allocate([asking(**one) for one in wanted], CLASSES, devices, taken)
    return found and [[one.device.name for one in claim] for claim in found]


@pytest.mark.parametrize(
    ("wanted", "taken", "found"),
    [
        ([{"requests": PAIR}], [], [["gpu-0", "eth0"]]),
        ([ALIGNED], [], [["gpu-0", "eth3"]]),
        ([ALIGNED] * 4, [], [["gpu-0", "eth3"], ["gpu-1", "eth2"], ["gpu-2", "eth1"], ["gpu-3", "eth0"]]),
        ([ALIGNED] * 5, [], None),
        ([ALIGNED], ["gpu.nvidia.com/n1/gpu-0"], [["gpu-1", "eth2"]]),
        (
            [{"requests": [{"name": "all", "exactly": {"deviceClassName": "rdma", "allocationMode": "All"}}]}],
            [],
            [["eth0", "eth1", "eth2", "eth3"]],
        ),
        (
            [{"requests": [{"name": "all", "exactly": {"deviceClassName": "rdma", "allocationMode": "All"}}]}],
            ["dra.net/n1/eth2"],
            None,
        ),
        (
            [
                {
                    "requests": [{"name": "two", "exactly": {"deviceClassName": "rdma", "count": 2}}],
                    "constraints": [{"matchAttribute": ROOT}],
                }
            ],
            [],
            None,
        ),
        (
            [
                {
                    "requests": [{"name": "two", "exactly": {"deviceClassName": "rdma", "count": 2}}],
                    "constraints": [{"distinctAttribute": ROOT}],
                }
            ],
            [],
            [["eth0", "eth1"]],
        ),
        ([{"requests": [{"name": "old", "deviceClassName": "rdma"}]}], [], [["eth0"]]),
    ],
)
def test_the_first_combination_that_satisfies_all_is_taken(wanted, taken, found):
    assert given(*wanted, taken=taken) == found


def test_alternatives_are_tried_in_order():
    nine, two = ({"name": f"of-{number}", "deviceClassName": "rdma", "count": number} for number in (9, 2))
    (claim,) = allocate([asking(requests=[{"name": "nic", "firstAvailable": [nine, two]}])], CLASSES, DEVICES, ()) or []
    assert [(one.request, one.device.name) for one in claim] == [("nic/of-2", "eth0"), ("nic/of-2", "eth1")]


def test_a_search_without_end_is_given_up():
    many = [Device("dra.net", "n", f"d{number}", {"a/b": number % 15}) for number in range(60)]
    wanted = {
        "requests": [{"name": "a", "exactly": {"deviceClassName": "rdma", "count": 16}}],
        "constraints": [{"distinctAttribute": "a/b"}],
    }
    with pytest.raises(InputError, match="too many combinations"):
        given(wanted, devices=many)


@pytest.mark.parametrize(
    ("devices", "where", "wrong"),
    [
        ({"requests": [{"name": "a"}]}, "spec.devices.requests.0", "exactly one of `exactly` or `firstAvailable`"),
        ({"requests": [PAIR[0], PAIR[0]]}, "spec.devices.requests", 'Duplicate value: "gpu"'),
        (
            {"requests": PAIR, "constraints": [{"matchAttribute": "pcieRoot"}]},
            "spec.devices.constraints.0.matchAttribute",
            "must include a domain",
        ),
        (
            {"requests": PAIR, "constraints": [{"matchAttribute": ROOT, "requests": ["x"]}]},
            "spec.devices.constraints.0.requests",
            "must be the name of a request in the claim",
        ),
        (
            {
                "requests": [
                    {"name": "a", "exactly": {"deviceClassName": "b", "selectors": [{"cel": {"expression": "x"}}]}}
                ]
            },
            "spec.devices.requests.0.exactly.selectors.0.cel.expression",
            "undeclared reference to 'x'",
        ),
        (
            {"requests": [{"name": "a", "exactly": {"deviceClassName": "b", "allocationMode": "All", "count": 1}}]},
            "spec.devices.requests.0.exactly.count",
            "must not be specified when allocationMode is 'All'",
        ),
    ],
)
def test_what_an_api_server_refuses(devices, where, wrong):
    with pytest.raises(InputError) as said:
        asking(**devices)
    assert (said.value.where, wrong in said.value.message) == (where, True)


def slice_of(name: str, driver: str, *devices: dict[str, Any], **pool: int) -> manifests.Object:
    spec = {
        "driver": driver,
        "nodeName": "node1",
        "pool": {"name": "node1", "generation": 1, "resourceSliceCount": 1, **pool},
        "devices": list(devices),
    }
    return manifests.make(
        {"apiVersion": claims.VERSION, "kind": claims.SLICE, "metadata": {"name": name}, "spec": spec}
    )


def device(name: str, **attributes: str) -> dict[str, Any]:
    return {"name": name, "attributes": {key: {"string": value} for key, value in attributes.items()}}


def test_what_a_user_says_of_a_nic_is_added_to_what_is_observed():
    """And never replaces it; a NIC that is not there is not offered."""
    said = slice_of("roots", "dra.net", device("eth1", mac="declared", rail="1"), device("eth9", rail="9"))
    seen = claims.published("node1", [device("eth1", mac="observed")])
    (found,) = claims.devices([said, seen], NodeView("node1", {}))
    assert (found.name, dict(found.attributes)) == ("eth1", {"dra.net/mac": "observed", "dra.net/rail": "1"})
    assert claims.devices([said, seen], NodeView("node2", {})) == []


def test_a_pool_counts_when_all_its_slices_are_there():
    node = NodeView("node1", {})
    first = slice_of("a", "gpu.nvidia.com", device("gpu-0"), resourceSliceCount=2)
    assert claims.devices([first], node) == []
    second = slice_of("b", "gpu.nvidia.com", device("gpu-1"), resourceSliceCount=2)
    assert [one.name for one in claims.devices([first, second], node)] == ["gpu-0", "gpu-1"]
    newer = slice_of("c", "gpu.nvidia.com", device("gpu-2"), generation=2)
    assert [one.name for one in claims.devices([first, second, newer], node)] == ["gpu-2"]


def made(kind: str, name: str, spec: Any, version: str = claims.VERSION, **parts: Any) -> manifests.Object:
    metadata = {"name": name, "namespace": "default", **parts.pop("metadata", {})}
    return manifests.make({"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec, **parts})


def pod(name: str, uid: str = "u1", **status: Any) -> manifests.Object:
    wanted = [{"name": "net", "resourceClaimTemplateName": "nic"}]
    spec = {"containers": [{"name": "main"}], "resourceClaims": wanted}
    return made("Pod", name, spec, "v1", metadata={"uid": uid}, status=status)


def test_the_life_of_a_claim_of_a_template():
    template = made(claims.TEMPLATE, "nic", {"spec": {"devices": {"requests": PAIR}}})
    there: dict[tuple[str, str], manifests.Object] = {(claims.TEMPLATE, "nic"): template}

    def look(kind: str, name: str, _: str) -> manifests.Object | None:
        return there.get((kind, name))

    (claim,) = claims.missing(pod("a"), look)
    assert claim.name.startswith("a-net-")
    assert claim.annotations == {claims.FOR_POD: "net"}
    (found,) = allocate([Asking(claim.name, ClaimSpec.model_validate(claim.spec))], CLASSES, DEVICES, ()) or []
    claim = claims.reserved(claims.allocated(claim, found, CLASSES, "node1"), pod("a"))
    assert claims.taken([claim]) == {"gpu.nvidia.com/n1/gpu-0", "dra.net/n1/eth0"}
    assert claims.node_of(claim) == "node1"
    assert claims.settled([claim], {("default", "a"): pod("a")}) == ([], [])
    ((freed,), gone) = claims.settled([claim], {("default", "a"): pod("a", phase="Succeeded")})
    assert (claims.status_of(freed), gone) == ({}, [])
    assert claims.settled([claim], {}) == ([], [claim])
    assert claims.settled([claim], {("default", "a"): pod("a", "u2")}) == ([], [claim]), "another pod of its name"


def test_a_claim_that_is_no_pod_s_own():
    taken = made(claims.CLAIM, claims.name_of(pod("a"), claims.asked(pod("a"))[0]), {"devices": {}})
    with pytest.raises(InputError, match="was not created for pod default/a"):
        claims.missing(pod("a"), lambda kind, *_: taken if kind == claims.CLAIM else None)


@pytest.mark.parametrize(
    ("parameters", "wrong"),
    [
        ({"interface": {"nme": "x"}}, "unknown field \"interface.nme\"; did you mean 'name'?"),
        ({"interface": {"mtu": 60}}, "interface.mtu"),
        ({"interface": {"name": "a" * 16}}, "is no name of an interface"),
        ({"interface": {"addresses": ["10.0.0.1"]}}, "interface.addresses[0]: invalid IP CIDR format '10.0.0.1'"),
        ({"interface": {"addresses": ["10.0.0.1/24"], "dhcp": True}}, "dhcp and addresses are mutually exclusive"),
        ({"interface": {"hardwareAddr": "x"}}, "invalid Hardware Address format 'x'"),
        ({"routes": [{"gateway": "10.0.0.1"}]}, "routes[0].destination: cannot be empty"),
        ({"routes": [{"destination": "10.0.0.0/8", "scope": 3}]}, "invalid scope '3'"),
        ({"neighbors": [{"destination": "10.0.0.1"}]}, "neighbors[0].hardwareAddress"),
        ({"interface": {"addresses": ["10.0.0.1/255.255.255.0"]}}, "invalid IP CIDR format"),
        ({"interface": {"addresses": ["fe80::1%eth0/64"]}}, "invalid IP CIDR format"),
        ({"interface": {"vrf": {"name": "red"}}}, "interface.vrf: a lab's driver does not have it"),
        ({"routes": [{"destination": "10.0.0.1", "gateway": "10.0.0.2"}]}, "(host routes use /32 or /128)"),
        ({"routes": [{"destination": "10.0.0.0/8", "gateway": "fd00::1"}]}, "routes[0].gateway: must be of the same"),
        ({"rules": [{"source": "10.0.0.1"}]}, "rules[0].source: invalid CIDR format"),
        ({"rules": [{"source": "10.0.0.1/32", "priority": 40000}]}, "rules[0].priority: must be between 0 and 32767"),
        ({"rules": [{"source": "10.0.0.1/32", "destination": "fd00::/8"}]}, "must be of the same IP family"),
        ({"rules": [{"source": "x"}]}, "rules[0].source"),
    ],
)
def test_parameters_that_the_driver_refuses(parameters, wrong):
    with pytest.raises(InputError) as said:
        network_config.read(parameters)
    assert wrong in str(said.value)
    right = {"destination": "10.7.0.1/16", "gateway": "10.0.0.1"}
    assert network_config.read({"routes": [right], "interface": {"hardwareAddr": "0000.5e00.5301"}})


class Objects:
    """A cluster with these objects and no more."""

    def __init__(self, *objects: manifests.Object) -> None:
        self.objects = objects

    def all(self, kind: str) -> list[manifests.Object]:
        return [one for one in self.objects if one.kind == kind]

    def find(self, kind: str, name: str, namespace: str) -> manifests.Object:
        return next(one for one in self.all(kind) if (one.name, one.namespace) == (name, namespace))


def test_a_node_has_no_room_for_a_claim_whose_devices_are_of_another_one():
    results = [{"request": "gpu", "driver": "gpu", "pool": "n1", "device": "d"}]
    selector = {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}]}
    status = {"allocation": {"devices": {"results": results}, "nodeSelector": selector}}
    claim = made("ResourceClaim", "shared", {"devices": {"requests": []}}, status=status)
    spec = {
        "containers": [{"name": "a", "image": "b"}],
        "resourceClaims": [{"name": "gpu", "resourceClaimName": "shared"}],
    }
    one = manifests.make({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": spec})
    choice = Choice(one, Objects(claim))  # type: ignore[arg-type]
    assert claims.node_of(claim) == "n1"
    assert [choice.room(NodeView(name, {}), 3) for name in ("n1", "n2")] == [3, 0]
