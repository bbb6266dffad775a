"""`testbed sweep --engine dask://…`: what is sent is called on workers, and no run is lost with a worker or a cluster.

The cluster, its workers and their processes are real; in the code that is sent to them runs need no machine.
"""

import asyncio
import io
import os
import shutil
import sqlite3
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import cloudpickle
import pytest
from distributed import LocalCluster
from process_ends import ended
from small_image import make_image

from testbed.cli.main import invoke
from testbed.cli.sweep import sweep_command
from testbed.cli.sweep.sweep_table import Shown
from testbed.errors import InputError
from testbed.machine import recipe
from testbed.machine.record import digest
from testbed.machine.sweeps import dask_cluster, remote, worker
from testbed.machine.sweeps.dask_cluster import HostFile

pytestmark = pytest.mark.long

FAKE = """
import signal
from types import SimpleNamespace
from testbed.machine import runs
from testbed.machine.record import VariantResult

async def run_variant(job, source, variant_run, machine, directory, shown):
    Path("processes").mkdir(exist_ok=True)
    (Path("processes") / str(os.getpid())).write_text(str(os.getppid()))
    marker = Path("killed")
    if job.seed == 3 and marker.exists():
        marker.unlink()
        os.kill(os.getppid(), signal.SIGKILL)
        signal.pause()
    (directory / "events.jsonl").write_text("")
    expected = variant_run.variant["expected"]
    failures = ["no"] if job.seed == 5 else []
    return VariantResult(
        name=variant_run.label, expected=expected, observed=expected, trace="ab" * 32, virtual_s=1.0, wall_s=1.0,
        evidence={}, failures=failures, variant=variant_run.label, settings={}, parameters=None, topology=None,
        epoch=None)

runs.run_variant = run_variant
VirtualMachine = lambda image, *_: SimpleNamespace(clock="virtual", image=image)
Identity.of = lambda machine: Identity("vm", "1.0", "c0de", machine.image.digest, "10.0.2", "tcg", None, None)
if __name__ == "__main__":
"""


def faked() -> HostFile:
    """The code to send, its runs made without machines."""
    real = zipfile.ZipFile(io.BytesIO(sent_code().data))
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name in real.namelist():
            text = real.read(name)
            if name == "testbed/machine/sweeps/worker.py":
                text = text.replace(b'if __name__ == "__main__":\n', FAKE.encode())
            archive.writestr(name, text)
    return HostFile.of("code", packed.getvalue())


sent_code = dask_cluster.code_file


@pytest.fixture
def dask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tiny: Path) -> Iterator[LocalCluster]:
    """A cluster of two workers, whose user's cache is that of the test."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(dask_cluster, "code_file", faked)
    image = make_image(tmp_path / "cache" / "testbed" / "images" / recipe.inputs_key()[:16])
    monkeypatch.setattr(sweep_command, "ensure_image", lambda: image)
    with LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0", memory_limit=0
    ) as started:
        yield started


def sweep(dask: LocalCluster, *words: str) -> int:
    engine = dask.scheduler_address.replace("tcp://", "dask://")
    return invoke(["sweep", "tiny", "--variant", "good", "--engine", engine, *words])


def seeds() -> list[int]:
    with closing(sqlite3.connect("runs/tiny/sweep.sqlite")) as database:
        return [seed for (seed,) in database.execute("SELECT seed FROM runs ORDER BY seed")]


def test_a_worker_that_dies_loses_no_run(
    dask: LocalCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is killed while it runs seed 3, and its process, which has had other runs, ends with it."""
    marker = tmp_path / "cache" / "testbed" / "workers" / "killed"
    marker.parent.mkdir(parents=True)
    marker.touch()
    before = {each.pid for each in dask.workers.values()}
    assert sweep(dask, "--seeds", "1..6") == 1
    assert not marker.exists()
    [killed] = before - {each.pid for each in dask.workers.values()}
    workers = {int(file.name): int(file.read_text()) for file in (marker.parent / "processes").iterdir()}
    assert len(workers) <= len({killed, *workers.values()})
    assert all(ended(process) for process, its in workers.items() if its == killed)
    assert seeds() == [1, 2, 3, 4, 5, 6]
    printed = capsys.readouterr()
    assert "is good with seed 5:\n  no\n" in printed.out
    assert printed.err.count("… send code to ") == 1
    [kept] = [path for path in (tmp_path / "runs" / "tiny").iterdir() if path.is_dir()]
    assert {"result.json", "report.html", "good"} <= {*os.listdir(kept)}


def test_a_host_gets_an_image_that_it_lacks_once_and_work_that_it_lost_again(
    dask: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The user there has another image of the same version, which stays as it is. A worker that joins while the sweep
    runs lacks the work as one that lost it."""
    own = sweep_command.ensure_image()
    sent_one = replace(own, path=Path(shutil.copytree(own.path, tmp_path / "sent")))
    monkeypatch.setattr(sweep_command, "ensure_image", lambda: sent_one)
    shutil.rmtree(own.path)
    other = make_image(own.path, kernel="7.4", root=b"other")
    assert sweep(dask, "--seeds", "1..4") == 0
    workers = tmp_path / "cache" / "testbed" / "workers"
    begin, lost = Shown.begin, list[str]()

    def and_lose(self: Shown, *arguments: Any) -> None:
        begin(self, *arguments)
        for file in workers.glob("work-*"):
            lost.append(file.name)
            file.unlink()

    monkeypatch.setattr(Shown, "begin", and_lose)
    assert sweep(dask, "--seeds", "1..6") == 1
    assert lost
    assert len([*workers.glob("work-*")]) == 1
    printed = capsys.readouterr().err
    assert printed.count("… send the image to ") == 1
    assert seeds() == [1, 2, 3, 4, 5, 6]
    place = workers / f"image-{sent_one.digest[:16]}" / "testbed" / "images"
    assert [each.name for each in place.iterdir()] == [own.path.name]
    other.verify()
    assert not [*place.parents[2].glob("part-*"), *place.parents[2].glob("sent-*")]


def test_a_cluster_that_goes_away_loses_only_what_ran_there(
    dask: LocalCluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ended = Shown.ended

    def and_close(self: Shown, *arguments: Any) -> None:
        ended(self, *arguments)
        dask.close()

    monkeypatch.setattr(Shown, "ended", and_close)
    assert sweep(dask, "--seeds", "10..20") == 3
    there = seeds()
    assert 1 <= len(there) < 11
    printed = capsys.readouterr().err
    assert f"error: the Dask cluster at dask://{dask.scheduler_address.partition('://')[2]} disappeared\n" in printed
    assert f"{len(there)} of 11 runs are in runs/tiny/sweep.sqlite; the same command runs the rest" in printed
    assert "Traceback" not in printed


def test_no_cluster_is_3_with_what_to_do(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(dask_cluster, "CONNECT_S", 0.5)
    monkeypatch.setattr(sweep_command, "ensure_image", lambda: make_image(tmp_path / "image"))
    assert invoke(["sweep", "tiny", "--seeds", "1", "--engine", "dask://127.0.0.1:1"]) == 3
    printed = capsys.readouterr().err
    assert "no Dask scheduler answers at dask://127.0.0.1:1\n" in printed
    assert "dask worker HOST:PORT" in printed


def test_without_dask_the_command_says_what_to_install(
    tiny: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sweep_command.importlib.util, "find_spec", lambda _: None)
    assert invoke(["sweep", str(tiny), "--seeds", "1", "--engine", "dask://a:1"]) == 3
    assert "pip install 'testbed[dask]'" in capsys.readouterr().err


def test_a_cluster_has_no_jobs(tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["sweep", str(tiny), "--seeds", "1", "--engine", "dask://a:1", "--jobs", "2"]) == 2
    assert "leave out --jobs" in capsys.readouterr().err


@pytest.mark.parametrize("engine", ["dask", "dask://", "dask://host", "tcp://host:1", "dask://a b:1", "dask://h:x"])
def test_an_engine_is_an_address(engine: str) -> None:
    with pytest.raises(InputError):
        dask_cluster.address_of(engine)
    assert dask_cluster.address_of("dask://host:8786") == "tcp://host:8786"


def test_what_travels_needs_no_testbed() -> None:
    """A process that cannot import it keeps a file that comes in two parts."""
    functions = cloudpickle.dumps((remote.receive, remote.finish, remote.lacking))
    code = """
import asyncio, hashlib, pickle, sys
sys.modules["testbed"] = None
receive, finish, lacking = pickle.load(sys.stdin.buffer)
receive("part-1", 0, b"ab")
receive("part-1", 2, b"c")
asyncio.run(finish("part-1", "work-1", hashlib.sha256(b"abc").hexdigest()))
print(lacking(["work-1", "work-2", "part-1"]))
"""
    done = subprocess.run([sys.executable, "-c", code], input=functions, capture_output=True, check=True)
    assert done.stdout == b"['work-2', 'part-1']\n"


def test_a_file_that_is_damaged_on_its_way_gets_no_name() -> None:
    remote.receive("part-1", 0, b"ab")
    with pytest.raises(ValueError, match="damaged"):
        asyncio.run(remote.finish("part-1", "work-1", digest(b"ac")))
    assert os.listdir(remote.place()) == []


def test_the_code_is_the_same_bytes_and_can_be_called(capsys: pytest.CaptureFixture[str]) -> None:
    one, other = dask_cluster.code_file(), dask_cluster.code_file()
    assert one == other
    remote.receive("part-1", 0, one.data[:])
    asyncio.run(remote.finish("part-1", one.name, one.digest))
    code = "import testbed.version, testbed.machine.recipe as r; print(testbed.__file__, r.inputs_key())"
    env = {**os.environ, "PYTHONPATH": str(remote.place() / one.name)}
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, env=env, check=True)
    assert done.stdout.split() == [str(remote.place() / one.name / "testbed" / "__init__.py"), recipe.inputs_key()]


def test_a_host_takes_its_own_image_only_if_it_is_the_same(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    digest = "ef" * 32
    images = {"": "another", f"{tmp_path}/image-efefefefefefefef": digest}
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    found = lambda: SimpleNamespace(digest=images[os.environ["XDG_CACHE_HOME"]])  # noqa: E731
    monkeypatch.setattr(worker.image, "find", found)
    monkeypatch.setattr(worker.layers, "find", lambda base, _: base)
    work = SimpleNamespace(info={"packages": []})
    machine = worker.machine_with(work, digest)  # type: ignore[arg-type]
    assert machine is not None
    assert machine.image.digest == digest
    images[f"{tmp_path}/image-efefefefefefefef"] = "a third"
    assert worker.machine_with(work, digest) is None  # type: ignore[arg-type]


def test_what_was_sent_long_ago_goes() -> None:
    for number in range(worker.KEEP + 2):
        (remote.place() / f"code-{number}").mkdir()
        os.utime(remote.place() / f"code-{number}", (number, number))
    worker.prune(remote.place(), "code-*")
    assert sorted(os.listdir(remote.place())) == [f"code-{number}" for number in range(2, worker.KEEP + 2)]
