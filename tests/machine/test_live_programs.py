"""`testbed exec`, `shell` and `capture` in labs that live."""

import hashlib
import os
import re
import signal
import struct
import subprocess
import time

import pytest
from conftest import COMMAND
from live import rss, wait_for

CLOCKS = pytest.mark.parametrize("clock", ["real", "virtual"])
DATA = hashlib.shake_256(b"input").digest(5_000_000)
PROMPT = r"^h1:.*# $"


@pytest.fixture
def lab(clock, request):
    return request.getfixturevalue(clock)


def running(live, lab, how, program):
    """Whether a program runs on the machine, or sleeps: one that has ended is none."""
    return live("exec", "h1", "--", "pgrep", "-r", "R,S,D,T", how, program, lab=lab).status == 0


# exec


@CLOCKS
@pytest.mark.parametrize(
    ("command", "status"),
    [("true", 0), ("exit 7", 7), ("kill -9 $$", 137), ("kill -15 $$", 143), ("exec nosuchprogram", 127)],
)
def test_the_exit_status_of_a_command_is_its_own(live, lab, command, status):
    assert live("exec", "h1", "--", "sh", "-c", command, lab=lab).status == status


@CLOCKS
def test_output_and_errors_stay_apart(live, lab):
    done = live("exec", "h1", "--", "sh", "-c", "echo one; echo two >&2", lab=lab)
    assert (done.out, done.err) == ("one\n", "two\n")


@CLOCKS
def test_several_nodes_have_their_names_before_each_line(live, lab):
    done = live("exec", "h1", "h2", "--", "sh", "-c", "hostname -I | cut -c1-9; [ -e /proc/self/ns/net ]", lab=lab)
    assert done.status == 0
    assert {line.partition(" | ")[0] for line in done.out.splitlines()} == {"h1", "h2"}


def test_the_highest_status_of_several_nodes_counts(live, real):
    command = "ip -br addr show eth1 | grep -q 10.0.10.2 || exit 3"
    assert live("exec", "h1", "h2", "--", "sh", "-c", command, lab=real).status == 3


@CLOCKS
def test_no_such_program_and_no_such_node(live, lab):
    missing = live("exec", "h1", "--", "nosuchprogram", lab=lab)
    assert missing.status != 0
    assert "nosuchprogram" in missing.error
    assert "Traceback" not in missing.err
    nobody = live("exec", "h9", "--", "true", lab=lab)
    assert nobody.status == 2
    assert "h9" in nobody.error
    assert "h1" in nobody.error, "it says what there is"


@CLOCKS
def test_a_program_gets_all_of_a_large_input_and_gives_it_back(live, lab):
    done = subprocess.run(
        [*COMMAND, "exec", "-i", "h1", "--", "cat"],
        input=DATA,
        capture_output=True,
        env={**live.env, "TESTBED_LAB": lab},
        cwd=live.directory,
        check=True,
    )
    assert hashlib.sha256(done.stdout).digest() == hashlib.sha256(DATA).digest()


@CLOCKS
def test_input_that_nobody_reads_ends_with_the_program(live, lab):
    assert live("exec", "-i", "h1", "--", "true", lab=lab, given=DATA).status == 0
    slow = live("exec", "-i", "h1", "--", "sh", "-c", "head -c 1000 | wc -c", lab=lab, given=DATA)
    assert slow.out.split() == ["1000"]


@CLOCKS
def test_without_i_there_is_no_input(live, lab):
    assert live("exec", "h1", "--", "cat", lab=lab, given=b"text").out == ""


@CLOCKS
def test_a_program_that_closes_its_output_early_is_waited_for(live, lab):
    done = live("exec", "h1", "--", "sh", "-c", "echo out; exec >&- 2>&-; sleep 1; exit 5", lab=lab)
    assert (done.status, done.out) == (5, "out\n")


@CLOCKS
def test_children_that_keep_the_output_do_not_hold_the_command(live, lab):
    """One of them writes for ever."""
    done = live("exec", "h1", "--", "sh", "-c", "yes & sleep 1000 & echo begun; exit 3", lab=lab)
    assert done.status == 3
    assert live("exec", "h1", "--", "pkill", "yes", lab=lab).status in (0, 1)
    live("exec", "h1", "--", "pkill", "sleep", lab=lab)


@CLOCKS
def test_a_detached_program_goes_on(live, lab):
    assert live("exec", "-d", "h1", "--", "sleep", "12345", lab=lab).status == 0
    assert running(live, lab, "-f", "sleep 12345")
    assert live("exec", "h1", "--", "pkill", "-f", "sleep 12345", lab=lab).status == 0
    missing = live("exec", "-d", "h1", "--", "nosuchprogram", lab=lab)
    assert missing.status != 0
    assert "nosuchprogram" in missing.error


@CLOCKS
def test_a_flood_of_output_stops_at_once_and_others_are_served_meanwhile(live, lab):
    """The reader takes some of it and then stops, as a pager does."""
    keeper = live.record(lab)["pid"]
    before = rss(keeper)
    with live.started("exec", "h1", "--", "yes", "a line of a program that writes without end", lab=lab) as flood:
        taken = 0
        while taken < 10_000_000:
            taken += len(os.read(flood.stdout.fileno(), 1 << 16))
        time.sleep(1)  # nobody reads
        assert live("exec", "h2", "--", "echo", "here", lab=lab).out == "here\n"
        assert rss(keeper) - before < 100 << 20
        flood.send_signal(signal.SIGINT)
        while os.read(flood.stdout.fileno(), 1 << 16):
            pass
        assert flood.wait(60) == 130
    assert wait_for(lambda: not running(live, lab, "-x", "yes"), 20)


@CLOCKS
def test_a_reader_that_has_enough_ends_the_program_without_a_word(live, lab):
    command = " ".join([*COMMAND, "exec", "h1", "--", "yes"])
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command} | head -n 2"],
        env={**live.env, "TESTBED_LAB": lab},
        cwd=live.directory,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.stdout, done.stderr, done.returncode) == ("y\ny\n", "", 128 + signal.SIGPIPE)
    assert wait_for(lambda: not running(live, lab, "-x", "yes"), 20)


@CLOCKS
def test_a_program_that_heeds_no_signal_is_killed_when_its_command_is_interrupted(live, lab):
    program = "trap '' HUP TERM INT; echo begun; while :; do sleep 77; done"
    with live.started("exec", "h1", "--", "sh", "-c", program, lab=lab) as stubborn:
        assert stubborn.stdout.readline() == b"begun\n"
        stubborn.send_signal(signal.SIGINT)
        assert stubborn.wait(60) == 130
    assert wait_for(lambda: not running(live, lab, "-f", "sleep 77"), 20)


def test_a_command_that_is_killed_takes_its_program_with_it(live, real):
    with live.started("exec", "h1", "--", "sh", "-c", "echo begun; sleep 4321", lab=real) as process:
        assert process.stdout.readline() == b"begun\n"
        process.kill()
    assert wait_for(lambda: not running(live, real, "-f", "sleep 4321"), 20)


# shell


@pytest.fixture
def shell(live, lab):
    terminal = live.terminal("shell", "h1", lab=lab)
    terminal.expect(PROMPT)
    yield terminal
    terminal.end()


@CLOCKS
def test_a_shell_has_colours_and_the_status_of_its_last_command(live, lab, shell):
    shell.send("ip neigh add 10.0.10.99 lladdr 02:00:00:00:00:99 dev eth1; ip neigh\r")
    shell.expect(r"^10\.0\.10\.99 dev eth1 lladdr 02:00:00:00:00:99")
    shell.expect(PROMPT)
    assert re.search(rb"\x1b\[[0-9;]*m10\.0\.10\.99", shell.raw)
    shell.send("ip neigh del 10.0.10.99 dev eth1; sh -c 'exit 9'\r")
    shell.expect(PROMPT)
    shell.send("\x04")
    assert shell.status() == 9


@CLOCKS
def test_job_control_in_a_shell(lab, shell):
    shell.send("sleep 1000 &\r")
    shell.expect(r"^\[1\] \d+")
    shell.expect(PROMPT)
    shell.send("fg\r")
    shell.expect(r"^sleep 1000")
    time.sleep(0.3)
    shell.send("\x1a")
    shell.expect(r"^\[1\]\+ +Stopped +sleep 1000")
    shell.expect(PROMPT)
    shell.send("bg; jobs\r")
    shell.expect(r"^\[1\]\+ +Running +sleep 1000")
    shell.send("kill %1; wait %1; echo status $?\r")
    shell.expect("^status 143")


@CLOCKS
def test_ctrl_c_ends_what_runs_in_the_foreground(lab, shell):
    shell.send("sh -c 'while :; do :; done'\r")
    time.sleep(0.5)
    shell.send("\x03")
    shell.expect(r"\^C")
    shell.expect(PROMPT)
    shell.send("echo status $?\r")
    shell.expect(r"^status 130")


@CLOCKS
def test_a_shell_has_the_size_of_its_terminal(lab, shell):
    shell.send("stty size\r")
    shell.expect(r"^24 80$")
    shell.expect(PROMPT)
    shell.resize(40, 132)
    time.sleep(0.5)
    shell.send("stty size\r")
    shell.expect(r"^40 132$")


@CLOCKS
def test_much_that_is_pasted_into_a_shell_arrives_whole(lab, shell):
    """More than a terminal keeps for its reader. Its echo may be cut, and come after what a program writes."""
    lines = 2000
    shell.send("echo read; cat > /tmp/pasted; wc -l /tmp/pasted\r")
    shell.expect("^read")
    for _ in range(lines // 100):
        shell.send("a line that was pasted into a terminal\r" * 100)
        shell.read(0)
    shell.send("\x04")
    shell.expect(rf"{lines} /tmp/pasted")


@CLOCKS
def test_a_terminal_that_is_closed_ends_its_shell_and_what_runs_there(live, lab, shell):
    shell.send("sleep 2345\r")
    assert wait_for(lambda: running(live, lab, "-fx", "sleep 2345"), 20)
    shell.close()
    assert wait_for(lambda: not running(live, lab, "-fx", "sleep 2345"), 20)


def test_a_flood_in_a_shell_stops_at_ctrl_c(live, real):
    shell = live.terminal("shell", "h1", lab=real)
    shell.expect(PROMPT)
    shell.send("yes\r")
    while len(shell.raw) < 3_000_000:
        assert shell.read(10) > 0
    shell.send("\x03")
    shell.expect(r"\^C")
    shell.expect(PROMPT, within=20)
    shell.end()


def test_a_shell_needs_a_terminal(live, real):
    done = live("shell", "h1", lab=real)
    assert done.status == 2
    assert "terminal" in done.error


def test_the_terminal_is_as_it_was_after_a_shell(live, real):
    command = " ".join(COMMAND)
    terminal = live.terminal_of(["bash", "-c", f"stty -a > before; {command} shell h1; stty -a > after"], lab=real)
    terminal.expect(PROMPT)
    terminal.send("exit\r")
    assert terminal.status() == 0
    assert (live.directory / "before").read_text() == (live.directory / "after").read_text()


@pytest.mark.parametrize(
    "command", ["", "cat", "cat | cat", "less /etc/passwd", "python3 -q", "read x", "cat /etc/services | less"]
)
def test_virtual_time_stands_still_while_a_terminal_waits_for_its_user(live, virtual, command):
    shell = live.terminal("shell", "h1", lab=virtual)
    shell.expect(PROMPT)
    shell.send(f"{command}\r")
    time.sleep(1.5)
    before = live.now(virtual)
    time.sleep(0.5)
    assert live.now(virtual) - before < 5
    shell.end()


def test_virtual_time_moves_while_a_program_of_a_shell_sleeps(live, virtual):
    shell = live.terminal("shell", "h1", lab=virtual)
    shell.expect(PROMPT)
    before = live.now(virtual)
    shell.send("sleep 1000; echo slept\r")
    shell.expect("^slept")
    assert 1000 <= live.now(virtual) - before < 1010
    shell.end()


# capture

MAGICS = (0xA1B2C3D4, 0xA1B23C4D)


def frames(data: bytes) -> int:
    """The number of frames in a pcap file, which is whole: else struct.error or AssertionError."""
    assert struct.unpack_from("<I", data)[0] in MAGICS
    at, count = 24, 0
    while at < len(data):
        length = struct.unpack_from("<8xI4x", data, at)[0]
        at, count = at + 16 + length, count + 1
    assert at == len(data)
    return count


@CLOCKS
def test_a_capture_is_a_whole_file_after_ctrl_c(live, lab, tmp_path):
    file = tmp_path / "all.pcap"
    with live.started("capture", "leaf:e1", "-w", file, lab=lab) as process:
        assert wait_for(lambda: file.exists() and file.stat().st_size >= 24)
        assert live("exec", "h1", "--", "ping", "-c", "20", "-i", "0.01", "10.0.10.3", lab=lab).status == 0
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
        wrote = process.stderr.read().decode()
    assert (found := frames(file.read_bytes())) >= 40
    assert wrote == f"capturing leaf:e1 into {file}; Ctrl-C ends it\nframes in {file}: {found}\n"


@CLOCKS
def test_a_capture_can_be_piped_and_ends_after_its_count(live, lab):
    with live.started("capture", "leaf:e1", "-w", "-", "-c", "4", "icmp", lab=lab) as capture:
        header = os.read(capture.stdout.fileno(), 24)
        live("exec", "h1", "--", "ping", "-c", "3", "-i", "0.01", "10.0.10.3", lab=lab)
        assert frames(header + capture.stdout.read()) == 4
        assert capture.wait(60) == 0


@CLOCKS
def test_a_filter_that_is_none_is_an_error(live, lab):
    done = live("capture", "leaf:e1", "-w", "-", "no such filter", lab=lab)
    assert done.status == 2
    assert "syntax" in done.error


def test_an_interface_that_is_not_there_is_an_error(live, real):
    for wrong in "leaf:e9", "leaf", "h9:eth1":
        done = live("capture", wrong, "-w", "-", lab=real)
        assert done.status == 2
        assert wrong.partition(":")[0] in done.error


def test_a_file_that_cannot_be_written_is_an_error(live, real, tmp_path):
    done = live("capture", "leaf:e1", "-w", tmp_path / "none" / "x.pcap", lab=real)
    assert done.status == 2
    assert "none/x.pcap" in done.error


def test_a_capture_in_a_terminal_is_lines(live, real):
    terminal = live.terminal("capture", "leaf:e1", "icmp", lab=real)
    terminal.expect("listening on e1")
    live("exec", "h1", "--", "ping", "-c", "1", "10.0.10.3", lab=real)
    terminal.expect("ICMP echo request")
    terminal.send("\x03")
    assert terminal.status() == 0
