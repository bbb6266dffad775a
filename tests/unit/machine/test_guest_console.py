"""The end of what a guest wrote to its console, for error messages."""

import os
from unittest.mock import Mock

import pytest

from testbed.machine import qemu


@pytest.fixture
def console():
    handle = os.memfd_create("console")
    yield handle
    os.close(handle)


@pytest.fixture
def machine(console):
    return qemu.Qemu(Mock(), Mock(), console, Mock())


def test_a_guest_that_wrote_nothing_is_named(machine):
    assert machine.last_output() == "  | (the guest wrote nothing)"


def test_the_last_lines_are_shown_of_whatever_was_written(machine, console):
    os.write(console, b"x" * qemu.READ_OUTPUT + b"\nfirst\r\nlast\n")
    assert machine.last_output(2) == "  | first\n  | last"


def test_a_console_is_bounded_and_goes_on(machine, console, monkeypatch):
    monkeypatch.setattr(qemu, "MOST_OUTPUT", 4)
    os.write(console, b"many")
    machine.bound_output()
    assert os.fstat(console).st_size == 4
    os.write(console, b"more")
    machine.bound_output()
    assert os.fstat(console).st_size == 0
