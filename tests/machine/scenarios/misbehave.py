"""A scenario with a variant for each way in which a user's code can go wrong."""

import contextlib
import ctypes
import os
import sys
import time
from pathlib import Path

from testbed import Scenario, Variant

WAYS = (
    "fine",
    "raises",
    "exits",
    "asks",
    "debugs",
    "sleeps",
    "spins",
    "forks",
    "crashes",
    "panics",
    "fills-the-disk",
    "observes-nothing",
    "has-no-data",
)


class Misbehave(Scenario):
    """User code that goes wrong as the variant says."""

    limit_s = 30
    busy_limit_s = 2
    variants = tuple(Variant(name, "healthy", name) for name in WAYS)

    def run(self, run, parameters):  # noqa: PLR0912 (a way a branch)
        match run.variant.name:
            case "raises":
                raise ValueError("the user's mistake")
            case "exits":
                sys.exit("enough")
            case "asks" | "debugs" as way:
                input("Which host? ") if way == "asks" else breakpoint()
            case "sleeps":
                time.sleep(3600)
            case "spins":
                while True:
                    pass
            case "forks":
                while True:
                    with contextlib.suppress(OSError):
                        os.fork()
            case "crashes":
                ctypes.string_at(0)
            case "panics":
                Path("/proc/sysrq-trigger").write_text("c")
            case "fills-the-disk":
                with run.lab.file("huge").open("wb") as file:
                    while True:
                        file.write(bytes(1 << 20))
            case "observes-nothing":
                return
            case "has-no-data":
                run.expect("an absent value", None, lambda value: True)
        run.observe("healthy", "nothing is wrong")
