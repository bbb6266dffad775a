"""The guest's first process: its end of the two memory files, held against ours."""

import contextlib
import importlib.util
import json
import os
import signal
import struct
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from testbed import protocol
from testbed.machine import memory_files, watch
from testbed.machine.jobs import Job
from testbed.machine.memory_files import Bundle, Outcome
from testbed.protocol import requests

BOOT = Path(memory_files.__file__).parent / "guest" / "boot.py"


@pytest.fixture(scope="module")
def boot() -> ModuleType:
    spec = importlib.util.spec_from_file_location("boot", BOOT)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Device:
    """The pmem device of a guest: the memory of our end."""

    def __init__(self, ours: Bundle | Outcome) -> None:
        self._map = ours.map
        self.size = ours.size
        self.fd = ours.handle

    def read(self, offset: int, length: int) -> bytes:
        if offset + length > self.size:
            raise OSError("beyond the end")
        return self._map[offset : offset + length]

    def write(self, offset: int, data: bytes) -> None:
        assert offset % memory_files.BLOCK == len(data) % memory_files.BLOCK == 0
        self._map[offset : offset + len(data)] = data


@pytest.fixture
def result(boot: ModuleType, outcome: Outcome) -> Any:
    found = boot.Result(Device(outcome))
    found.begin()
    return found


@pytest.fixture
def work(boot: ModuleType, bundle: Bundle, outcome: Outcome, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Does what is in the bundle, with a worker that knows what this process knew when it began."""
    monkeypatch.setattr(boot, "WARM", ())

    def run() -> None:
        result = boot.Result(Device(outcome))
        worker = boot.Worker(Device(bundle), result)
        with worker.channel:
            boot.work(Device(bundle), result, worker)
        with contextlib.suppress(ChildProcessError):  # a job was waited for
            os.waitpid(worker.pid, 0)

    return run


def test_a_fork_writes_to_a_device_through_a_buffer_of_its_own(
    boot: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of the two may be interrupted when its buffer is full and not yet written."""
    monkeypatch.setattr(os, "O_DIRECT", 0)  # not every file system has it
    file = tmp_path / "device"
    file.write_bytes(bytes(2 * memory_files.BLOCK))
    pmem = boot.Pmem(str(file))
    pmem.write(0, b"a" * memory_files.BLOCK)
    if (child := os.fork()) == 0:
        pmem.write(memory_files.BLOCK, b"b" * memory_files.BLOCK)
        os._exit(0)
    os.waitpid(child, 0)
    assert file.read_bytes() == b"a" * memory_files.BLOCK + b"b" * memory_files.BLOCK
    assert pmem.buffer[: memory_files.BLOCK] == b"a" * memory_files.BLOCK
    os.close(pmem.fd)


def test_both_ends_have_the_same_constants(boot: ModuleType) -> None:
    for name in ("IN_MAGIC", "OUT_MAGIC", "BLOCK", "PROGRESS_END", "PULSE", "FINISHED"):
        assert getattr(boot, name) == getattr(memory_files, name), name
    assert boot.ENTRY.format == memory_files.ENTRY.format
    assert boot.MESSAGE_BYTES == protocol.MESSAGE_BYTES


def test_no_time_that_the_host_waits_for_the_guest_is_shorter_than_the_guest_s(boot: ModuleType) -> None:
    assert boot.LOOK_S * 2 < watch.PULSE_LOST_S


def test_files_come_back_as_they_were(result: Any, outcome: Outcome, tmp_path: Path) -> None:
    made = tmp_path / "made"
    (made / "deep" / "er").mkdir(parents=True)
    (made / "empty").mkdir()
    (made / "deep" / "er" / "large").write_bytes(os.urandom(3_000_001))
    (made / "a name with ü and \n").write_bytes(b"x")
    (made / "nothing").write_bytes(b"")
    os.mkfifo(made / "pipe")
    (made / "link").symlink_to("/etc/passwd")
    result.finish(str(made))
    outcome.extract(tmp_path / "back")
    back = {str(path.relative_to(tmp_path / "back")): path for path in (tmp_path / "back").rglob("*")}
    assert sorted(back) == ["a name with ü and \n", "deep", "deep/er", "deep/er/large", "empty", "nothing"]
    for name, path in back.items():
        if path.is_file():
            assert path.read_bytes() == (made / name).read_bytes()


def test_a_file_that_shrinks_while_it_is_read_harms_no_other(
    boot: ModuleType, result: Any, outcome: Outcome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program of the job may still write."""
    made = tmp_path / "made"
    made.mkdir()
    (made / "a").write_bytes(b"a" * 100)
    (made / "b").write_bytes(b"b" * 100)
    real = boot.tree

    def tree(directory: str) -> Iterator[Any]:
        found = list(real(directory))
        (made / "a").write_bytes(b"short")
        return iter(found)

    monkeypatch.setattr(boot, "tree", tree)
    result.finish(str(made))
    outcome.extract(tmp_path / "back")
    assert (tmp_path / "back" / "a").read_bytes() == b"short" + bytes(95)
    assert (tmp_path / "back" / "b").read_bytes() == b"b" * 100


def test_progress_arrives_and_a_beat_is_no_progress(result: Any, outcome: Outcome) -> None:
    result.message(b'{"n": 1}', False)
    result.beat(1)
    result.message(b'{"n": 2}', True)
    assert list(outcome.progress()) == [{"n": 1}, {"n": 2}]
    assert outcome.pulse == 1
    result.beat(7)
    assert outcome.pulse == 7
    assert list(outcome.progress()) == []


def test_reports_that_do_not_fit_leave_room_for_the_last_message_and_the_pulse(result: Any, outcome: Outcome) -> None:
    result.beat(7)
    for last in [False] * 4 + [True] * 2:
        result.message(json.dumps({"last": last, "text": "x" * (15 << 20)}).encode(), last)
    assert [message["last"] for message in outcome.progress()] == [False] * 3 + [True]
    assert outcome.pulse == 7


# The devices


def test_a_device_is_read_and_written_in_whole_blocks_and_never_beyond_its_end(
    boot: ModuleType, tmp_path: Path
) -> None:
    (tmp_path / "pmem0").write_bytes(bytes(2 * boot.CHUNK + boot.BLOCK))
    device = boot.Pmem(str(tmp_path / "pmem0"))
    data = os.urandom(boot.CHUNK + boot.BLOCK)
    device.write(boot.BLOCK, data)
    assert device.read(boot.BLOCK - 1, len(data) + 2) == b"\0" + data + b"\0"
    with pytest.raises(OSError, match=f"there are no 8 bytes at {device.size} of a device of {device.size} bytes"):
        device.read(device.size, 8)
    os.close(device.fd)


# The bundle


@pytest.fixture
def places(boot: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The guest's directories, in a temporary one, and what a guest has of a kernel."""
    for name in ("IN", "OUT", "JOB_GROUP"):
        (tmp_path / name).mkdir()
        monkeypatch.setattr(boot, name, str(tmp_path / name))
    monkeypatch.setattr(boot, "seed", lambda _: None)
    monkeypatch.setattr(boot, "cpu_s", lambda: 0.0)
    monkeypatch.setattr(os, "sched_setscheduler", lambda *_: None)
    return tmp_path


def test_a_bundle_is_read_as_it_was_written(boot: ModuleType, bundle: Bundle, tmp_path: Path) -> None:
    job = Job([requests.Schema()], limit_s=60).envelope("/run/testbed/in/files", "virtual")
    bundle.write(job, {"files/job.json": b"mine", "files/deep/plugin": bytes(10_000)}, ["files/deep/plugin"])
    assert boot.unpack(Device(bundle), str(tmp_path)) == job
    assert (tmp_path / protocol.JOB).is_file()
    assert (tmp_path / "files/job.json").read_bytes() == b"mine"
    assert (tmp_path / "files/deep/plugin").read_bytes() == bytes(10_000)
    assert os.access(tmp_path / "files/deep/plugin", os.X_OK)
    assert job["files"].startswith(f"{boot.IN}/")


def damage(bundle: Bundle, at: int, data: bytes) -> None:
    bundle.map[at : at + len(data)] = data


@pytest.mark.parametrize(
    "damage_it",
    [
        pytest.param(lambda bundle: None, id="nothing written"),
        pytest.param(lambda bundle: damage(bundle, 8, struct.pack("<Q", 1 << 40)), id="longer than the device"),
        pytest.param(lambda bundle: (bundle.write({}, {}), damage(bundle, 4096, b"x" * 512)), id="no tar"),
        pytest.param(lambda bundle: (bundle.write({}, {}), damage(bundle, 4096, b"y")), id="no job.json"),
        pytest.param(lambda bundle: (bundle.write({}, {}), damage(bundle, 4608, b"[{")), id="no JSON"),
        pytest.param(lambda bundle: bundle.write({"call": "no.such:module"}, {}), id="a job without limits"),
        pytest.param(lambda bundle: bundle.write({"call": "x", "install": "/proc/x"}, {}), id="no place for the code"),
    ],
)
def test_a_damaged_bundle_is_a_crash_of_the_job_and_not_of_the_machine(
    work: Callable[[], None], places: Path, bundle: Bundle, outcome: Outcome, damage_it: Callable[[Bundle], None]
) -> None:
    damage_it(bundle)
    work()
    assert outcome.finished
    [message] = outcome.progress()
    assert message["crash"].startswith("Traceback")
    outcome.extract(places / "back")


def test_code_is_installed_for_the_next_snapshot(
    work: Callable[[], None], places: Path, bundle: Bundle, outcome: Outcome
) -> None:
    text = b"import pathlib\ndef prepare(job, out, write, devices): pathlib.Path(out, 'prepared').write_text(__file__)"
    bundle.write({"call": "module_of_a_test:prepare", "install": str(places / "code")}, {"module_of_a_test.py": text})
    work()
    outcome.extract(places / "back")
    assert (places / "back" / "prepared").read_text() == str(places / "code" / "module_of_a_test.py")


# How a job ends

Work = Callable[[dict[str, Any], str, Callable[[bytes, bool], None], object], None]


@pytest.fixture
def do(
    boot: ModuleType,
    work: Callable[[], None],
    places: Path,
    bundle: Bundle,
    outcome: Outcome,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Callable[..., list[dict[str, Any]]]]:
    """Runs a function as a job, with these limits; the messages that came. Its files are in `back`."""

    def run(function: Work, **limits: float) -> list[dict[str, Any]]:
        monkeypatch.setitem(sys.modules, "job_of_a_test", SimpleNamespace(run=function))  # type: ignore[misc]
        monkeypatch.setattr(boot, "GRACE_S", 0.2)
        bundle.write({"call": "job_of_a_test:run", "seed": 1, "limit_s": 60, **limits}, {})
        work()
        outcome.extract(places / "back")
        return list(outcome.progress())

    yield run
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # a job that fails leaves its handler, which reaps others' children


def test_a_job_that_ends_leaves_its_messages_its_files_and_what_it_wrote(
    do: Callable[..., list[dict[str, Any]]], places: Path
) -> None:
    def work(job: dict[str, Any], out: str, write: Callable[[bytes, bool], None], _: object) -> None:
        os.write(1, b"printed\n")
        os.write(2, b"complained\n")
        Path(out, "file").write_text("of the job")
        write(b'{"id": 0, "response": 1}', True)

    assert do(work) == [{"id": 0, "response": 1}]
    back = places / "back"
    assert sorted(path.name for path in back.iterdir()) == ["file", protocol.OUTPUT]
    assert (back / protocol.OUTPUT).read_text() == "printed\ncomplained\n"
    assert (places / "JOB_GROUP" / "pids.max").read_text() == "16384"


def test_an_exception_of_a_job_is_a_crash_with_its_traceback(do: Callable[..., list[dict[str, Any]]]) -> None:
    def work(*_: object) -> None:
        raise KeyError("no such node")

    [message] = do(work)
    assert message["crash"].startswith("Traceback")
    assert message["crash"].endswith("KeyError: 'no such node'\n")


def test_a_job_that_is_killed_says_by_which_signal(do: Callable[..., list[dict[str, Any]]]) -> None:
    assert do(lambda *_: os.kill(os.getpid(), signal.SIGKILL)) == [{"crash": "ended by signal 9"}]


def test_what_a_job_leaves_to_process_1_is_reaped_while_it_runs(
    do: Callable[..., list[dict[str, Any]]], places: Path
) -> None:
    orphan = os.fork()  # a child of this process, as an orphan is one of process 1
    if not orphan:
        time.sleep(0.3)
        os._exit(0)

    def work(_: object, out: str, *__: object) -> None:
        deadline = time.monotonic() + 30
        while Path(f"/proc/{orphan}").exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        Path(out, "gone").write_text(str(not Path(f"/proc/{orphan}").exists()))

    assert do(work) == []
    assert (places / "back" / "gone").read_text() == "True"
    assert signal.getsignal(signal.SIGCHLD) == signal.SIG_DFL


def test_a_job_at_its_limit_says_where_it_is_and_ends_itself(
    do: Callable[..., list[dict[str, Any]]], places: Path
) -> None:
    def work(job: dict[str, Any], out: str, write: Callable[[bytes, bool], None], _: object) -> None:
        def end(*_: object) -> None:
            Path(out, "taken-down").touch()
            os._exit(0)

        signal.signal(signal.SIGTERM, end)
        time.sleep(60)

    began = time.monotonic()
    assert do(work, limit_s=0.3) == [{"crash": "still running after 0.3 virtual seconds"}]
    assert time.monotonic() - began < 30
    assert (places / "back" / "taken-down").exists()
    assert "in work" in (places / "back" / "stack.txt").read_text()


def test_the_place_of_a_job_at_its_limit_is_that_in_the_user_s_files(
    boot: ModuleType, do: Callable[..., list[dict[str, Any]]], places: Path
) -> None:
    def work(*_: object) -> None:
        code = compile("import time\n\ndef story(): time.sleep(60)\nstory()", f"{boot.IN}/files/scenario.py", "exec")
        exec(code, {})  # noqa: S102

    [message] = do(work, limit_s=0.3)
    assert message["crash"] == "still running after 0.3 virtual seconds, at scenario.py:3 (story)"


def test_all_that_a_job_started_is_ended_with_it(do: Callable[..., list[dict[str, Any]]], places: Path) -> None:
    """One that does not obey goes, too: by its cgroup, which here is a file."""

    def work(*_: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(2)

    do(work, limit_s=0.1)
    assert (places / "JOB_GROUP" / "cgroup.kill").read_text() == "1"


def test_a_job_that_only_spins_is_ended(
    boot: ModuleType, do: Callable[..., list[dict[str, Any]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(boot, "cpu_s", time.monotonic)
    [message] = do(lambda *_: time.sleep(60), busy_s=0.5)
    assert message["crash"].startswith("busy for ")
    assert message["crash"].endswith(" virtual seconds in a row without an event (the limit is 0.5)")


def test_a_job_that_spins_and_reports_is_not_ended(
    boot: ModuleType, do: Callable[..., list[dict[str, Any]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def work(job: dict[str, Any], out: str, write: Callable[[bytes, bool], None], _: object) -> None:
        for number in range(10):
            write(json.dumps({"n": number}).encode(), False)
            time.sleep(0.1)

    monkeypatch.setattr(boot, "cpu_s", time.monotonic)
    assert do(work, busy_s=0.6) == [{"n": number} for number in range(10)]


def test_a_worker_that_dies_is_a_crash_of_its_job(
    work: Callable[[], None], places: Path, bundle: Bundle, outcome: Outcome
) -> None:
    text = b"import faulthandler, os\ndef prepare(*_):\n    faulthandler.disable()\n    os.abort()"
    bundle.write({"call": "it_aborts:prepare", "install": str(places / "code")}, {"it_aborts.py": text})
    work()
    [message] = outcome.progress()
    assert message["crash"].endswith("the process that loads testbed has ended\n")
