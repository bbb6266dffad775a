"""What is wrong in the results of plugins, as far as that needs no kernel. The rest: tests/lab/cni/test_refusals.py."""

from ipaddress import ip_interface
from typing import Any

import pytest

from testbed.cni.runtime import verification
from testbed.cni.runtime.verification import Given, Problem
from testbed.cni.spec import conflist
from testbed.cni.spec.conflist import Attachment

POD = Attachment("web", "c0ffee", "/run/netns/web", "eth0")
CHAIN = conflist.make(
    {
        "cniVersion": "1.0.0",
        "name": "rdma",
        "plugins": [{"type": "macvlan", "ipam": {"type": "static"}}, {"type": "tuning"}, {"type": "rxe"}],
    }
)
INTERFACE = {"name": "eth0", "mac": "06:00:00:00:00:0A", "sandbox": "/run/netns/web"}
ON_NODE = {"name": "veth0"}


def result(*addresses: str, **keys: Any) -> dict[str, Any]:
    return {"ips": [{"address": address, **keys} for address in addresses]}


@pytest.mark.parametrize(
    ("address", "wrong"),
    [
        ("10.0.10.7/24", ""),
        ("10.0.10.0/31", ""),
        ("10.0.10.1/31", ""),
        ("10.0.10.0/32", ""),
        ("fd00::/127", ""),
        ("fd00::/128", ""),
        ("fd00::ffff:ffff:ffff:ffff/64", ""),
        ("127.0.0.1/8", ""),
        ("10.0.10.3/30", "the broadcast address of 10.0.10.0/30"),
        ("10.0.10.0/30", "the network address of 10.0.10.0/30"),
        ("fd00::/126", "the anycast address of the routers of fd00::/126"),
        ("0.0.0.0/32", "which is not a unicast address"),
        ("ff02::7/128", "which is not a unicast address"),
    ],
)
def test_addresses_of_hosts(address: str, wrong: str) -> None:
    assert verification.not_of_a_host(ip_interface(address)) == wrong


def test_the_plugin_that_is_named_is_the_one_that_brought_the_address(monkeypatch: pytest.MonkeyPatch) -> None:
    fine, wrong = "10.0.10.7/24", "10.0.10.255/24"

    def named(*results: dict[str, Any]) -> str:
        found = verification.problem(CHAIN, POD, results)
        assert found == Problem(7, found.plugin, f"it gave {wrong}, the broadcast address of 10.0.10.0/24")
        return found.plugin

    assert named(result(wrong), result(wrong), result(wrong)) == "static"
    assert named(result(fine), result(wrong), result(wrong)) == "tuning"
    assert named(result(fine), result(fine), result(fine, wrong)) == "rxe"
    assert named(result(wrong), result(fine), result(wrong)) == "rxe"
    monkeypatch.setattr(verification, "_left_out", lambda *_: None)  # it looks into the kernel
    assert verification.problem(CHAIN, POD, [result(wrong), result(fine), result(fine)]) is None


def test_what_a_pod_gets() -> None:
    found = {"interfaces": [ON_NODE, INTERFACE], **result("10.0.10.7/24", interface=1, gateway="10.0.10.1")}
    assert verification.interfaces(POD, found) == {"eth0": "06:00:00:00:00:0a"}
    (given,) = verification.addresses(POD, found)
    assert given == Given("eth0", ip_interface("10.0.10.7/24"), ip_interface("10.0.10.1").ip)
    assert verification.addresses(POD, result("10.0.10.7/24"))[0].interface == "eth0"


@pytest.mark.parametrize(
    ("found", "wrong"),
    [
        (result("10.0.10.256/24"), "'10.0.10.256/24' does not appear to be an IPv4 or IPv6 interface"),
        ({"ips": [{}]}, "'None' does not appear to be an IPv4 or IPv6 interface"),
        (result("10.0.10.7/24", gateway=1), "'1' does not appear to be an IPv4 or IPv6 address"),
        (result("10.0.10.7/24", interface=-1), "ips names interface -1 of 0"),
        ({"interfaces": [ON_NODE], **result("10.0.10.7/24", interface=0)}, "ips names interface veth0, which is not"),
        ({"interfaces": [{**INTERFACE, "mac": 6}]}, "the name and the MAC of an interface must be strings"),
        ({"interfaces": [{"sandbox": POD.netns}]}, "the name and the MAC of an interface must be strings"),
    ],
)
def test_a_malformed_result_is_that_of_the_plugin_that_brought_it(found: dict[str, Any], wrong: str) -> None:
    """Those after it pass it on."""
    for number, kind in enumerate(CHAIN.types):
        results = [{}] * number + [found] * (len(CHAIN.types) - number)
        problem = verification.problem(CHAIN, POD, results)
        assert problem
        assert (problem.code, problem.plugin) == (6, kind)
        assert problem.text.startswith(f"its result is malformed: {wrong}")
