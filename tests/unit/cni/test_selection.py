"""The annotation with which a pod selects its networks."""

import json

import pytest

from testbed.cni.spec import selection
from testbed.cni.spec.selection import DEFAULT_NETWORK, NETWORKS, Selected
from testbed.errors import InputError


def selected(text: str) -> list[Selected]:
    return selection.selected({NETWORKS: text}, "ai")


def test_names_have_the_pods_namespace_unless_they_have_one():
    assert selected("rail1, kube-system/rail2,rail3@rdma3") == [
        Selected("rail1", "ai"),
        Selected("rail2", "kube-system"),
        Selected("rail3", "ai", "rdma3"),
    ]
    assert selected("") == selection.selected({}, "ai") == []


def test_the_list_asks_for_addresses_and_macs():
    text = json.dumps(
        [
            {"name": "rail1", "ips": ["10.0.10.7/24", "fd00::7/64"], "mac": "02:00:5E:00:00:07"},
            {"name": "rail2", "namespace": "net", "interface": "rdma2"},
        ]
    )
    assert selected(text) == [
        Selected("rail1", "ai", "", {"mac": "02:00:5e:00:00:07", "ips": ["10.0.10.7/24", "fd00::7/64"]}),
        Selected("rail2", "net", "rdma2"),
    ]


def test_what_plugins_get_beside_their_configuration():
    (found,) = selected(
        json.dumps(
            [
                {
                    "name": "rail1",
                    "bandwidth": {"ingressRate": 1000},
                    "portMappings": [{"hostPort": 80, "containerPort": 8080, "protocol": "tcp"}],
                    "cni-args": {"policy": "x"},
                    "default-route": ["10.0.10.1", "fd00::1"],
                    "gateway": ["10.0.10.1"],
                }
            ]
        )
    )
    assert sorted(found.capabilities) == ["bandwidth", "portMappings"]
    assert found.arguments == {"policy": "x"}
    assert found.default_route == ["10.0.10.1", "fd00::1"]


@pytest.mark.parametrize(
    ("text", "wrong", "place"),
    [
        ("rail1,,rail2", "'' is not a network", ""),
        ("a/b/c", "'a/b/c' is not a network", ""),
        ("rail1@", "'rail1@' is not a network", ""),
        ("[", "not valid JSON: Expecting value", ":1:2"),
        ('\n[{"name": "rail1"},\n {"nam"]', "not valid JSON: Expecting ':' delimiter", ":3:8"),
        ('[{"name": "rail1"},\n {"name": NaN}]', "not valid JSON: NaN is not a JSON value", ""),
        ("[]", "too few entries in it: 0, at least 1", ":1:1"),
        ('[{"nam": "rail1"}]', "[0].name is missing; [0].nam is not supported; did you mean 'name'?", ":1:2"),
        ('[{"name": "rail1"},\n {"name": 7}]', "[1].name must be a string, not the number 7; quote it", ":2:11"),
        ('[{"name": "rail1", "mac": "02:00"}]', "[0].mac: '02:00' is not a MAC address", ":1:27"),
        ('[{"name": "rail1", "ips": ["10.0.0.256"]}]', "[0].ips[0]: '10.0.0.256' is not an IP address", ":1:28"),
        (
            '[{"name": "rail1", "infiniband-guid": "c2:b0"}]',
            "[0].infiniband-guid is not supported: the lab's NICs are Ethernet",
            ":1:39",
        ),
    ],
)
def test_an_annotation_that_is_wrong(text, wrong, place):
    with pytest.raises(InputError) as said:
        selected(text)
    assert (said.value.message, said.value.where) == (wrong, f"{NETWORKS}{place}")


def test_there_is_one_default_network():
    assert selection.default({DEFAULT_NETWORK: "net/pods"}) == Selected("pods", "net")
    assert selection.default({DEFAULT_NETWORK: "pods"}) == Selected("pods", "kube-system"), "Multus' own namespace"
    assert selection.default({}) is None
    with pytest.raises(InputError, match="names several networks"):
        selection.default({DEFAULT_NETWORK: "a,b"})
