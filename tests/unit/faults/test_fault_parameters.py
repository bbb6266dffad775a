"""Faults by name, with parameters from a file: right ones are made, wrong ones are named with their value."""

import importlib
from pathlib import Path

import pytest

from testbed import faults
from testbed.errors import InputError
from testbed.faults import KINDS, LinkLoss, descriptions, make, problem

CONTRACTS = Path(__file__).parents[2] / "lab" / "faults" / "one_lab"


def test_a_fault_is_made_of_its_name_and_parameters() -> None:
    assert make(KINDS, "link-loss", {"end": "leaf:e1", "loss": 3}) == LinkLoss(end="leaf:e1", loss=3.0)


@pytest.mark.parametrize(
    ("name", "parameters", "said"),
    [
        ("link-los", {}, "there is no fault 'link-los'. Did you mean link-loss?"),
        ("link-loss", {"end": "leaf:e1"}, "fault link-loss: 'loss' is missing. Parameters: end, loss, loss_burst."),
        ("link-loss", {"end": "leaf:e1", "loss": 101}, "loss is 101: Input should be less than or equal to 100"),
        ("link-loss", {"end": "leaf", "loss": 1}, "end is 'leaf': String should match pattern"),
        ("link-loss", {"end": "a:b", "loss": 1, "losss": 1}, "there is no 'losss', perhaps loss"),
        (
            "link-loss",
            {"end": "a:b", "loss": 100, "loss_burst": 2},
            "with bursts of 2, loss can be at most 66.67 percent",
        ),
        ("arp-drop", {"end": "a:b", "announced": "2001:db8::1"}, "2001:db8::1 is an IPv6 address"),
        ("arp-poison", {"host": "a", "switch": "s", "ip": "10.0.0"}, "'10.0.0'"),
        ("incast", {"target": "a", "senders": ["b"]}, "Tuple should have at least 2 items"),
        ("ecmp-collision", {"end": "a:b", "rate": 8000, "pairs": [["a", "b"], ["a", "b"]]}, "a pair of hosts is given"),
        (
            "background-flow",
            {"source": "a", "target": "b", "rate": 10**10},
            "rate is 10000000000: Input should be less",
        ),
        ("exact-packet", {"end": "a:b", "action": "drop"}, "choose packets by number, psn, opcode or dest_qp"),
        ("exact-packet", {"end": "a:b", "action": "drop", "opcode": "RITE"}, "opcode is 'RITE': it is one of SEND_FIR"),
    ],
)
def test_what_is_wrong_is_named(name: str, parameters: dict[str, object], said: str) -> None:
    with pytest.raises(InputError):
        make(KINDS, name, parameters)
    assert said in problem(name, parameters)


def test_a_fault_is_described_with_all_that_can_be_set() -> None:
    for entry in descriptions():
        assert entry["title"], entry["name"]
        for key, schema in entry["parameters"]["properties"].items():
            assert schema.get("description"), (entry["name"], key)


def test_a_fault_as_text_is_its_name_and_what_was_chosen() -> None:
    assert str(LinkLoss(end="leaf:e1", loss=3)) == "link-loss end=leaf:e1 loss=3.0"


def test_every_kind_has_a_contract_with_a_symptom(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(CONTRACTS)
    contracts = importlib.import_module("contracts").CONTRACTS
    assert {contract.fault.name for contract in contracts if contract.symptom} == KINDS.keys()


def test_every_kind_can_be_imported_by_scenarios() -> None:
    assert len(KINDS) > 30
    assert {kind.__name__ for kind in KINDS.values()} <= vars(faults).keys()
