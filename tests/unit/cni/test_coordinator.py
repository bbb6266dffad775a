"""What of the plugin `coordinator` needs no kernel: its configuration, frames, schedules, names."""

from ipaddress import IPv4Address, IPv6Address, ip_address

import pytest

from testbed.cni.plugins import coordinator
from testbed.cni.plugins.contract import Call, Refusal, own, validated
from testbed.cni.plugins.coordinator import call, detection, tuning, veth
from testbed.cni.plugins.coordinator.nic import STEPS, Configuration, addresses_in
from testbed.cni.spec import CONFIG
from testbed.switch import frames, nd
from testbed.switch.frames import REPLY, REQUEST, Arp
from testbed.switch.nd import Nd

MAC, OTHER = "02:00:00:00:00:01", "02:00:00:00:00:02"
FOUR, SIX = IPv4Address("10.0.10.100"), IPv6Address("fd00:10::100")
EMPTY = IPv4Address(0)


# Configuration


def test_without_keys_it_does_what_spiderpools_defaults_do() -> None:
    settings = validated(Configuration, {})
    assert settings.steps == STEPS
    assert (settings.detectIPConflict, settings.detectGateway, settings.tunePodRoutes) == (False, False, True)
    assert (settings.hostRuleTable, settings.podRPFilter, settings.mode) == (500, 0, "auto")


def test_all_that_is_wrong_is_one_message() -> None:
    wrong = {
        "steps": ["mac", "arp"],
        "detectIPConflict": "arping",
        "detectOptions": {"timeout": 0.1},
        "podMACPrefix": "01:00",
        "podRPFilter": 3,
        "hijackCIDR": ["10.0.0.1"],
        "mtu": 9000,
    }
    with pytest.raises(Refusal) as said:
        validated(Configuration, wrong)
    assert said.value.code == CONFIG
    assert said.value.message.split("; ") == [
        "steps[1] must be 'mac', 'conflict', 'gateway', 'announce', 'queue', 'rp_filter', 'veth', 'routes' or "
        "'policy_routes', not the string 'arp'",
        "detectIPConflict must be false, true, 'spiderpool' or 'rfc5227', not the string 'arping'",
        "detectOptions.timeout: the number 0.1 is not a number with a unit (us, ms, s), such as 50us",
        "podMACPrefix: the string '01:00' is not the first two bytes of a unicast MAC address, such as 0a:1b",
        "podRPFilter: Input should be less than or equal to 2",
        "hijackCIDR[0]: the string '10.0.0.1' is not a subnet such as 169.254.0.0/16",
        "mtu is unknown",
    ]


def test_a_step_is_taken_once() -> None:
    with pytest.raises(Refusal, match="steps: mac is given more than once"):
        validated(Configuration, {"steps": ["mac", "conflict", "mac"]})


def test_keys_of_the_specification_are_not_the_plugins_own() -> None:
    config = {"cniVersion": "1.1.0", "name": "n", "type": "coordinator", "prevResult": {}, "cni.dev/x": [], "mode": "a"}
    assert own(config) == {"mode": "a"}


@pytest.mark.parametrize("config", [{"mode": "sideways"}, {}])
def test_status_reports_a_wrong_configuration(config: dict[str, str]) -> None:
    asked = Call("STATUS", "", "", "", {}, {"cniVersion": "1.1.0", "name": "n", "type": "coordinator", **config})
    if config:
        with pytest.raises(Refusal, match="mode must be"):
            call(asked)
    else:
        assert call(asked) is None


def test_addresses_are_those_of_the_interface() -> None:
    result = {
        "interfaces": [{"name": "eth0"}, {"name": "net1"}],
        "ips": [{"address": "10.0.10.100/24", "interface": 0}, {"address": "10.0.20.100/24", "interface": 1}],
    }
    assert [str(address) for address in addresses_in(result, "net1")] == ["10.0.20.100/24"]
    with pytest.raises(Refusal, match=r"prevResult\.ips names an interface"):
        addresses_in({"ips": result["ips"]}, "net1")


# Frames


def test_a_probe_claims_nothing() -> None:
    assert frames.parse(detection.probe(MAC, FOUR)) == Arp(REQUEST, MAC, EMPTY, frames.BROADCAST, FOUR)
    to, packet = nd.parse(detection.probe(MAC, SIX)) or (None, None)
    assert to == IPv6Address("ff02::1:ff00:100")
    assert packet == Nd(REQUEST, frames.NO_MAC, nd.NO_IP, SIX)  # RFC 4862: without the option of the sender's MAC


def test_an_announcement_is_a_gratuitous_request_or_an_advertisement_that_overrides() -> None:
    assert frames.parse(coordinator.frame(MAC, FOUR)) == Arp(REQUEST, MAC, FOUR, frames.BROADCAST, FOUR)
    to, packet = nd.parse(coordinator.frame(MAC, SIX)) or (None, None)
    assert to == nd.ALL_NODES
    assert packet == Nd(REPLY, MAC, SIX, nd.ALL_NODES, solicited=False, override=True, router=False)


def test_spiderpool_heeds_replies_only_and_the_rfc_probes_too() -> None:
    reply = Arp(REPLY, OTHER, FOUR, MAC, EMPTY)
    request = Arp(REQUEST, OTHER, FOUR, frames.NO_MAC, IPv4Address("10.0.10.1"))
    rival = Arp(REQUEST, OTHER, EMPTY, frames.NO_MAC, FOUR)
    elsewhere = Arp(REPLY, OTHER, IPv4Address("10.0.10.101"), MAC, EMPTY)
    packets = [reply, request, rival, elsewhere]
    assert [detection.answers(packet, FOUR) for packet in packets] == [True, False, False, False]
    assert [detection.claims(packet, FOUR) for packet in packets] == [True, True, True, False]
    assert detection.claims(Nd(REQUEST, frames.NO_MAC, nd.NO_IP, SIX), SIX)


def test_the_schedule_of_rfc_5227() -> None:
    schedule = detection.RFC[4]
    waits = [[schedule.waits(count) for count in range(4)] for _ in range(50)]
    assert all(
        0 <= first <= 1 and 1 <= second <= 2 and 1 <= third <= 2 and last == 2 for first, second, third, last in waits
    )
    assert len({first for first, *_ in waits}) > 1


# Names


@pytest.mark.parametrize(("ip", "mac"), [("10.0.10.100", "0a:1b:0a:00:0a:64"), ("fd00:10::1:203", "0a:1b:00:01:02:03")])
def test_a_mac_follows_from_the_address(ip: str, mac: str) -> None:
    assert tuning.mac_of("0a:1b", ip_address(ip)) == mac


def test_the_nodes_end_has_the_beginning_of_the_container() -> None:
    assert veth.host_end("0123456789abcdef") == "veth0123456789a"
    assert len(veth.host_end("f" * 64)) == 15  # IFNAMSIZ - 1


@pytest.mark.parametrize(
    ("interface", "counts"),
    [("eth1", True), ("bond0", True), ("lo", False), ("lo1", True), ("veth1", False), ("cni0", False)],
)
def test_addresses_of_some_interfaces_are_not_the_nodes(interface: str, counts: bool) -> None:
    assert (veth.NOT_THE_NODES.match(interface) is None) is counts
