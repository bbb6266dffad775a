"""Programs on a node: their namespace, their output, how they end."""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from living import alive

from testbed.errors import DeadlineError, TestbedError

pytestmark = pytest.mark.topology("""
name: pair
topology:
  nodes:
    a: {kind: host, rdma: false}
    b: {kind: host, rdma: false}
  links:
    - {endpoints: ["a:eth1", "b:eth1"]}
""")

LATE_S = 0.1


@contextmanager
def takes(seconds: float) -> Iterator[None]:
    began = time.monotonic()
    yield
    assert time.monotonic() - began == pytest.approx(seconds, abs=LATE_S)


def test_a_program_sees_its_node_and_no_input(lab):
    addresses = lab["a"].spawn("sh", "-c", "ip -o -4 addr; cat")

    assert addresses.wait(within=5) == 0
    assert str(lab.host("a")["eth1"].address()) in addresses.output


def test_all_that_a_program_writes_is_kept_in_a_file_of_its_own(lab):
    first, second = (lab["a"].spawn("sh", "-c", f"echo {word}; echo but >&2; exit 3") for word in ("one", "two"))

    assert (first.wait(within=5), second.wait(within=5)) == (3, 3)
    assert (first.output, second.output) == ("one\nbut\n", "two\nbut\n")


def test_a_program_that_ends_by_a_signal_says_which(lab):
    program = lab["a"].spawn("sleep", "1000")

    program.send(signal.SIGUSR1)

    assert program.wait(within=5) == -signal.SIGUSR1


@pytest.mark.fresh
def test_waiting_for_the_end_of_a_program_has_a_bound(lab):
    program = lab["a"].spawn("sleep", "1000")
    files = len(os.listdir("/proc/self/fd"))

    with takes(2), pytest.raises(DeadlineError, match="a: sleep 1000: still running after 2 s"):
        program.wait(within=2)

    assert len(os.listdir("/proc/self/fd")) == files


@pytest.mark.fresh
def test_waiting_for_output_ends_with_the_output(lab):
    program = lab["a"].spawn("sh", "-c", "sleep 2; echo ready; sleep 1000")

    with takes(2):
        program.wait_output("ready", within=5)


@pytest.mark.fresh
def test_waiting_for_output_that_does_not_come_has_a_bound(lab):
    program = lab["a"].spawn("sh", "-c", "echo almost; sleep 1000")

    with takes(2), pytest.raises(DeadlineError, match="did not say 'ready' within 2 s:\nalmost"):
        program.wait_output("ready", within=2)


def test_waiting_for_output_of_a_program_that_ended_says_what_it_wrote(lab):
    program = lab["a"].spawn("sh", "-c", "echo no such option; exit 2")

    with takes(0), pytest.raises(TestbedError, match="status 2 and did not say 'ready':\nno such option"):
        program.wait_output("ready", within=5)


def test_stopping_a_program_lets_it_clean_up(lab):
    program = lab["a"].spawn("sh", "-c", "trap 'echo bye; exit 0' TERM; echo ready; while :; do sleep 1; done")
    program.wait_output("ready", within=5)

    program.stop()

    assert program.output.endswith("bye\n")


@pytest.mark.parametrize(
    ("script", "seconds"),
    [("sleep 1000 & echo $!; wait", 0), ("sleep 1000 & echo $!", 0), ("trap '' TERM; sleep 1000 & echo $!; wait", 5)],
    ids=["with it", "behind it", "deaf"],
)
def test_stopping_a_program_ends_what_it_started(lab, script, seconds):
    program = lab["a"].spawn("sh", "-c", script)
    program.wait_output("\n", within=5)
    lab.scheduler.sleep(1)
    assert alive(program.output.strip())

    with takes(seconds):
        program.stop()

    assert not program.running
    assert lab.scheduler.wait(lambda: not alive(program.output.strip()), within=1)


def test_a_command_that_fails_is_an_error_with_its_words(lab):
    with pytest.raises(TestbedError, match="a: sh -c echo out; echo bad >&2; exit 4: status 4: bad"):
        lab["a"].run("sh", "-c", "echo out; echo bad >&2; exit 4")
    with takes(2), pytest.raises(DeadlineError, match="a: sleep 1000: still running after 2 s"):
        lab["a"].run("sleep", "1000", within=2)


@pytest.mark.parametrize("start", [lambda node: node.run("frobnicate"), lambda node: node.spawn("frobnicate")])
def test_a_program_that_is_not_there_is_an_error_that_names_it(lab, start):
    with pytest.raises(TestbedError, match="a: frobnicate cannot be started: No such file"):
        start(lab["a"])


def test_a_ping_waits_as_long_as_it_is_told_to(lab):
    a, b = lab.host("a"), lab.host("b")
    b.run("nft", "add table ip mute; add chain ip mute out { type filter hook output priority 0; policy drop; }")

    with takes(3):
        assert not a.ping(str(b["eth1"].address().ip), within=3)
