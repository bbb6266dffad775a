"""`testbed doctor`: the micro-VM counts, the local machine only for those who ask for it."""

import json
from collections.abc import Sequence

import pytest

from testbed.cli.main import invoke
from testbed.machine import checkup
from testbed.machine.checkup import Check

GOOD = Check("QEMU", "works", "9.2")
LACKING = Check("root", "missing", "labs on this kernel need root", "sudo -s")


@pytest.fixture(autouse=True)
def _machines(monkeypatch: pytest.MonkeyPatch) -> None:
    find(monkeypatch, [GOOD], [LACKING])


def find(monkeypatch: pytest.MonkeyPatch, vm: Sequence[Check], local: Sequence[Check]) -> None:
    monkeypatch.setattr(checkup, "vm", lambda: iter(vm))
    monkeypatch.setattr(checkup, "local", lambda: iter(local))
    monkeypatch.setattr(checkup, "kvm_answer", lambda: Check("KVM", "note", "not needed"))


def test_what_nobody_asked_for_gets_no_cross(capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["doctor"]) == 0
    said = capsys.readouterr().out
    assert "labs on this kernel need root" in said
    assert "✗" not in said


def test_who_asks_for_the_local_machine_is_told_of_it_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["doctor", "--machine", "local"]) == 3
    said = capsys.readouterr().out
    assert "✗ root" in said
    assert "Run: sudo -s" in said
    assert "QEMU" not in said


def test_a_micro_vm_that_cannot_run_is_status_3(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    find(monkeypatch, [LACKING], [GOOD])
    assert invoke(["doctor"]) == invoke(["doctor", "--machine", "vm"]) == 3
    assert invoke(["doctor", "--machine", "local"]) == 0
    assert "✗ root" in capsys.readouterr().out


def test_the_findings_are_there_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["doctor", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    fix = {"subject": "root", "state": "missing", "text": "labs on this kernel need root", "fix": "sudo -s"}
    assert (found["works"], found["local"]) == (True, [fix])
    assert [check["subject"] for check in found["vm"]] == ["QEMU", "KVM"]
    assert invoke(["doctor", "--json", "--machine", "local"]) == 3
    assert json.loads(capsys.readouterr().out) == {"works": False, "local": [fix]}
