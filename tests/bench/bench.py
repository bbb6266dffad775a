"""`make bench`: figures of this machine as JSON, on standard output and in runs/bench.json. Nothing is asserted."""

import asyncio
import contextlib
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from testbed.machine import cache, emulator, image_build, making, pytests, snapshot
from testbed.machine.image import Image
from testbed.machine.moments import Opened
from testbed.machine.qemu import Flavour
from testbed.machine.shipped import LOCK

HERE = Path(__file__).parent
RUNS = HERE.parents[1] / "runs"
COMMAND = (sys.executable, "-m", "testbed")
PACKAGE, SCENARIOS = HERE.parents[1] / "testbed", HERE.parents[1] / "scenarios"
RESTORES, EDITS = 5, 4
VIRTUAL = Flavour("virtual")
SEEDS = range(1, 6)


def say(text: str) -> None:
    print(f"bench: {text}", file=sys.stderr, flush=True)


@contextlib.contextmanager
def empty_cache_with(built: Image) -> Iterator[None]:
    """A cache directory with the image and nothing else."""
    before = os.environ.get("XDG_CACHE_HOME")
    with tempfile.TemporaryDirectory(prefix="testbed-", dir=cache.root()) as directory:
        shutil.copytree(built.path.parent, Path(directory) / "testbed" / "images", copy_function=os.link)
        os.environ["XDG_CACHE_HOME"] = directory
        try:
            yield
        finally:
            del os.environ["XDG_CACHE_HOME"]
            if before is not None:
                os.environ["XDG_CACHE_HOME"] = before


def snapshot_time(built: Image) -> float:
    with empty_cache_with(built):
        started = time.monotonic()
        asyncio.run(making.ensure(built, VIRTUAL, snapshot.stack(built, VIRTUAL)[-1], say))
        return time.monotonic() - started


async def restore_once(built: Image) -> float:
    source = snapshot.stack(built, VIRTUAL)[-1]
    await making.ensure(built, VIRTUAL, source, say)
    async with Opened(built, VIRTUAL, source) as opened:
        started = time.monotonic()
        await opened.begin()
        return time.monotonic() - started


def command(*arguments: str) -> str:
    done = subprocess.run([*COMMAND, *arguments], stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        sys.exit(f"{done.stdout}bench: `testbed {' '.join(arguments)}` ended with status {done.returncode}")
    return done.stdout


@contextlib.contextmanager
def a_copy() -> Iterator[tuple[Path, Callable[..., Any]]]:
    """A copy of the package, and a function that runs `garp` of ip-reuse with it and returns its record."""
    with tempfile.TemporaryDirectory(prefix="testbed-") as directory:
        package = Path(directory, "testbed")
        shutil.copytree(PACKAGE, package, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copytree(SCENARIOS / "ip-reuse", Path(directory, "scenarios", "ip-reuse"))
        shutil.copy(LOCK, directory)

        def run(*words: str) -> Any:
            garp = [*COMMAND, "run", "ip-reuse", "--variant", "garp", "--json", "--out", directory, *words]
            done = subprocess.run(garp, env={**os.environ, "PYTHONPATH": directory}, capture_output=True, check=True)
            return json.loads(done.stdout)["variants"][0]

        yield package, run


def inner_loop() -> dict[str, float]:
    """What a run right after an edit of the code costs beside one that finds its snapshot; medians of pairs."""
    edited, warm = [], []
    with a_copy() as (package, run):
        for number in range(EDITS):
            with (package / "switch" / "profile.py").open("a") as file:
                file.write(f"# {time.time_ns()} {number}\n")
            for seconds in edited, warm:
                started = time.monotonic()
                run()
                seconds.append(time.monotonic() - started)
    edit_s, warm_s = statistics.median(edited), statistics.median(warm)
    return {"edit_s": round(edit_s, 2), "warm_s": round(warm_s, 2), "edit_over_warm": ratio(edit_s, warm_s)}


def view_of_the_kernel() -> dict[str, float]:
    """What following the kernel costs of the virtual time of ip-reuse, and of bringing the largest fabric up. Each is
    built in a machine of its own: the second lab of a machine takes longer."""
    with a_copy() as (package, run):
        followed = [run("--seed", str(seed))["virtual_s"] for seed in SEEDS]
        shutil.copy(HERE / "without_view.py", package / "lab")
        with (package / "lab" / "kernel_view.py").open("a") as file:
            file.write("\nfrom testbed.lab.without_view import follow_nothing\nfollow_nothing(KernelView)\n")
        without = [run("--seed", str(seed))["virtual_s"] for seed in SEEDS]
    [found], [plain] = (measured("fabric.py", "virtual", f"16-{view}") for view in (True, False))
    return {
        "ip_reuse_ratio": round(statistics.median(followed) / statistics.median(without), 4),
        "hosts": found["hosts"],
        "up_ratio": round(found["up_s"] / plain["up_s"], 4),
    }


def variants() -> list[dict[str, Any]]:
    """One after the other, so that each has the machine for itself."""
    found = json.loads(command("run", "ip-reuse", "--jobs", "1", "--json"))
    return [{key: variant[key] for key in ("name", "virtual_s", "wall_s")} for variant in found["variants"]]


def measured(file: str, clock: str, chosen: str = "") -> Any:
    """The figures that a file of tests leaves, or those `chosen` of it."""
    return tested(file, clock, chosen)[0]


def tested(file: str, clock: str, chosen: str) -> tuple[Any, dict[str, float]]:
    """The figures that a file of tests leaves, and the wall seconds that each test took."""
    with tempfile.TemporaryDirectory(prefix="testbed-") as directory:
        command("pytest", str(HERE / file), "--clock", clock, "--out", directory, "--", "-k", chosen)
        left = Path(directory, "pytest", "latest")
        walls = {test["test"].partition("::")[2]: test["wall_s"] for test in pytests.ended(left)}
        return json.loads((left / "figures.json").read_text()), walls


def bring_up() -> dict[str, Any]:
    figures: dict[str, Any] = measured("bring_up.py", "real")
    ours = next(entry["up_s"] for entry in figures["lab"] if entry["hosts"] == figures["mininet"]["hosts"])
    theirs = figures["mininet"]["up_s"]
    figures["mininet_over_lab"] = round(theirs / ours, 1)
    figures["mininet_over_lab_without_rdma"] = round(theirs / figures["lab_without_rdma"]["up_s"], 1)
    return figures


def lossless() -> dict[str, Any]:
    """What lossless links cost beside netem and tbf on the same links, in an idle lab, and with 63 senders."""
    virtual, walls = tested("lossless.py", "virtual", "")
    real = measured("lossless.py", "real")
    kinds = ("lossless", "netem")
    costs = {
        "virtual_busy_s": {kind: virtual[kind][0]["busy_s"] for kind in kinds},
        "wall_s": {kind: min(turn["seconds"] for turn in real[kind]) for kind in kinds},
    }
    incast = {**virtual["incast_lossless"], "wall_s": walls["test_incast_of_63[lossless]"]}
    attach = incast["up_s"] - virtual["incast_plain"]["up_s"]
    return {
        "same_packets": {name: {**cost, "ratio": ratio(*cost.values())} for name, cost in costs.items()},
        "idle": {kind: virtual[f"idle_{kind}"] for kind in ("lossless", "plain")},
        "incast": incast,
        "load_balancing_over_ecmp": {
            name: ratio(virtual[f"paths_{name}"]["busy_s"], virtual["paths_ecmp"]["busy_s"])
            for name in ("spray", "adaptive")
        },
        "attach_ms_a_link": round(1000 * attach / incast["hosts"], 1),
    }


def ratio(ours: float, theirs: float) -> float:
    return round(ours / theirs, 2)


def main() -> None:
    say("image")
    built = image_build.ensure(lambda phase, fetched: None)
    say("snapshot and restore")
    made = snapshot_time(built)
    restores = [asyncio.run(restore_once(built)) for _ in range(RESTORES)]
    say("runs after an edit")
    after_edits = inner_loop()
    say("variants of ip-reuse")
    told = variants()
    say("bring-up on the real clock, Mininet beside it")
    beside_mininet = bring_up()
    say("fabrics of up to 256 hosts on the virtual clock")
    started = time.monotonic()
    fabrics = measured("fabric.py", "virtual", "True")
    fabrics_s = time.monotonic() - started
    say("the view of the kernel")
    view = view_of_the_kernel()
    say("lossless links on both clocks")
    with_classes = lossless()
    result = {
        "machine": {"cpus": os.cpu_count(), "kernel": platform.release(), "qemu": emulator.version()},
        "image": {"digest": built.digest, "kernel": built.kernel, "build_s": built.manifest["build_s"]},
        "snapshot_s": round(made, 2),
        "restore_s": round(statistics.median(restores), 3),
        "inner_loop": after_edits,
        "ip_reuse": told,
        "bring_up": beside_mininet,
        "fabrics": {"wall_s": round(fabrics_s, 2), "virtual": fabrics},
        "view_of_the_kernel": view,
        "lossless": with_classes,
    }
    RUNS.mkdir(exist_ok=True)
    text = json.dumps(result, indent=1)
    (RUNS / "bench.json").write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
