"""A thousand configurations, results and errors, ten times as many by `make fuzz`: whatever they hold, they are taken
or refused in one message.

Those that need a kernel are in tests/machine/test_fuzz_cni.py.
"""

import contextlib
import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import cni_cases as cases
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from testbed.cni.ipam.address_store import ADDRESSES
from testbed.cni.ipam.address_store import Store as Addresses
from testbed.cni.objects import manifests
from testbed.cni.plugins import contract, ifacer
from testbed.cni.plugins.contract import own, validated
from testbed.cni.plugins.coordinator.nic import Configuration as Coordinator
from testbed.cni.plugins.ippool import Ippool
from testbed.cni.runtime import libcni
from testbed.cni.runtime.plugin_call import CniError, understand
from testbed.cni.runtime.result_cache import Cache
from testbed.cni.spec import conflist, selection
from testbed.cni.spec.conflist import Attachment
from testbed.errors import InputError

EXAMPLES: int = settings().max_examples
POD = Attachment("web", "c0ffee", cases.NETNS, "eth0", {"K8S_POD_NAME": "web"}, {"mac": "06:00:00:00:00:01"})
WHAT = 'pod web: plugin type="macvlan" name="rdma" failed (add)'


def check_message(text: str, begins: str = "") -> None:
    """It is a few lines; the command makes of it what a terminal can show."""
    assert text.startswith(begins)
    assert 0 < len(text) < 2000


@settings(max_examples=5 * EXAMPLES)
@given(cases.CONFLISTS)
def test_configurations(value: Any) -> None:
    try:
        found = conflist.make(value)
    except InputError as error:
        check_message(error.message)
        return
    again = conflist.parse(json.dumps(value).encode(), "rdma.conflist")
    assert (again.name, again.plugins, again.versions) == (found.name, found.plugins, found.versions)
    for config in found.plugins:
        stdin = libcni.stdin_of(found, config, POD, None)
        assert (stdin["name"], stdin["cniVersion"]) == (found.name, found.version)
        json.dumps(stdin, allow_nan=False)


@settings(max_examples=5 * EXAMPLES)
@given(cases.ANSWERS, st.sampled_from(["0.3.1", "0.4.0", "1.0.0", "1.1.0"]))
@example(json.dumps(cases.RESULTS[0]), "1.1.0")
def test_results(text: str, version: str) -> None:
    network = conflist.make({"cniVersion": version, "name": "rdma", "plugins": [{"type": "macvlan"}]})
    try:
        result = libcni.understood(understand(0, text.encode(errors="surrogatepass"), WHAT), version, WHAT)
    except CniError as error:
        check_message(str(error), WHAT)
        return
    assert result["cniVersion"] == version
    with TemporaryDirectory() as directory:
        cache = Cache(Path(directory))
        cache.write(network, POD, result)
        assert cache.read("rdma", POD) == json.loads(json.dumps(result))


@settings(max_examples=2 * EXAMPLES)
@given(cases.REFUSALS, st.integers(1, 255) | st.integers(-31, -1))
def test_errors(text: str, status: int) -> None:
    with pytest.raises(CniError) as said:
        understand(status, text.encode(errors="surrogatepass"), WHAT)
    check_message(str(said.value), WHAT)


def answered(plugin: contract.Plugin, environment: Mapping[str, str], config: Any) -> bool:
    """Whether a plugin of ours took a configuration. If not, it answers as the specification has it."""
    status, output = contract.answer(plugin, environment, json.dumps(config).encode())
    if status == 0:
        assert not output or isinstance(json.loads(output), dict)
        return True
    error = json.loads(output)
    assert set(error) == {"cniVersion", "code", "msg", "details"}
    assert isinstance(error["code"], int)
    assert error["msg"]
    return False


def call(command: str) -> dict[str, str]:
    names = ("CONTAINERID", "IFNAME", "NETNS", "PATH")
    return {"CNI_COMMAND": command, **{f"CNI_{name}": name.lower() for name in names}}


def stdins(plugin: dict[str, Any]) -> st.SearchStrategy[Any]:
    return cases.changed([{"cniVersion": "1.1.0", "name": "rdma", **plugin, "prevResult": cases.RESULTS[-1]}])


@settings(max_examples=2 * EXAMPLES)
@given(stdins({"type": "macvlan", "ipam": cases.IPPOOL}), st.booleans())
@example({"cniVersion": "1.1.0", "name": "rdma", "ipam": cases.IPPOOL}, True)
@example({"cniVersion": "1.1.0", "name": "rdma", "ipam": {**cases.IPPOOL, "coolDown": 2**64}}, True)
@example(
    {"cniVersion": "1.1.0", "name": "rdma", "ipam": {"type": "ippool", "pools": [{**cases.POOL, "name": "\ud800"}]}},
    True,
)
def test_ippool_and_what_it_gave_is_given_back(config: Any, collect: bool) -> None:
    with TemporaryDirectory() as directory:
        ippool = Ippool(Path(directory), "node1")
        try:
            added = answered(ippool.call, call("ADD"), config)
            assert added == answered(ippool.call, call("ADD"), config), "the same is asked again after a crash"
            if not added:
                return
            valid = {"cni.dev/valid-attachments": []}
            assert answered(ippool.call, call("GC" if collect else "DEL"), {**config, **valid})
            with Addresses(Path(directory) / ADDRESSES) as store:
                assert store.leases() == []
        finally:
            for store in (ippool._opened or ())[:2]:
                store.close()


@settings(max_examples=EXAMPLES)
@given(stdins(cases.COORDINATOR))
def test_configurations_of_coordinator(config: Any) -> None:
    answered(lambda asked: validated(Coordinator, own(asked.config)) and None, call("ADD"), config)


@settings(max_examples=EXAMPLES)
@given(stdins(cases.IFACER))
def test_configurations_of_ifacer(config: Any) -> None:
    answered(lambda asked: {"names": validated(ifacer.Configuration, own(asked.config)).names()}, call("ADD"), config)


ENVIRONMENT = call("ADD") | {"CNI_ARGS": "IgnoreUnknown=1;K8S_POD_NAME=web"}


@settings(max_examples=EXAMPLES)
@given(cases.changed([ENVIRONMENT]))
def test_environments(environment: Any) -> None:
    given_as_text = {str(name): str(value) for name, value in environment.items()}
    answered(lambda asked: {"is": asked.network}, given_as_text, {"cniVersion": "1.1.0", "name": "rdma"})


NETWORKS = [
    [{"name": "rail1", "namespace": "ai", "interface": "net1", "ips": ["10.0.10.7/24"], "mac": "06:00:00:00:00:01"}]
]


@settings(max_examples=EXAMPLES)
@given(cases.texts(cases.changed(NETWORKS)) | st.sampled_from(["ai/rail1@net1, rail2"]))
def test_annotations(text: str) -> None:
    for read in (partial(selection.selected, namespace="ai"), selection.default):
        try:
            read({selection.NETWORKS: text, selection.DEFAULT_NETWORK: text})
        except InputError as error:
            check_message(error.message)


OBJECTS = [
    {
        "apiVersion": "spiderpool.spidernet.io/v2beta1",
        "kind": "SpiderIPPool",
        "metadata": {"name": "p", "labels": {"a": "b"}},
        "spec": {
            **{key: value for key, value in cases.POOL.items() if key != "name"},
            "routes": [{"dst": "10.0.0.0/8", "gw": "10.0.10.1"}],
            "podAffinity": {"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]},
            "nodeName": ["node1"],
        },
    },
    {
        "apiVersion": "k8s.cni.cncf.io/v1",
        "kind": "NetworkAttachmentDefinition",
        "metadata": {"name": "rail1", "namespace": "ai"},
        "spec": {"config": json.dumps({"cniVersion": "1.0.0", "type": "macvlan"})},
    },
]


@settings(max_examples=EXAMPLES)
@given(cases.changed(OBJECTS))
def test_objects(value: Any) -> None:
    with contextlib.suppress(InputError):
        assert manifests.make(value).kind in ("SpiderIPPool", "NetworkAttachmentDefinition")
