"""`ethtool -S` of a lossless link's port: the driver's statistics, and those of the lossless programs below them.

The drivers of veth and its like have no counters of priorities, and no program can add some to a driver's. So while a
lab has lossless links, the directory `bin` is the first in the PATH of its programs. Whoever calls ethtool by its path,
or asks the kernel, gets the driver's statistics only.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from testbed.kernel.bpf import shared_array
from testbed.kernel.lossless import port_counters
from testbed.kernel.lossless.layout import constants, structures

BIN = Path(__file__).with_name("bin")
MAPS = "TESTBED_LOSSLESS_MAPS"
"""The variable with the numbers that the kernel gave the maps of SHARED."""
SHARED = {"configs": "port_config", "states": "port_state", "flows": "flow"}
NOT_FOUND = 127


@contextmanager
def found_first(maps: Iterable[int]) -> Iterator[None]:
    """While the block runs, have programs that this process starts find this ethtool, which reads these maps: those of
    SHARED, by the numbers that the kernel gave them."""
    for program in BIN.iterdir():
        if not os.access(program, os.X_OK):  # code comes into a machine without its modes
            program.chmod(0o755)
    path = os.environ.get("PATH", os.defpath)
    os.environ |= {"PATH": f"{BIN}{os.pathsep}{path}", MAPS: ",".join(map(str, maps))}
    try:
        yield
    finally:
        os.environ["PATH"] = path
        del os.environ[MAPS]


def main() -> None:
    elsewhere = os.pathsep.join(one for one in os.get_exec_path() if Path(one) != BIN)
    ethtool = shutil.which("ethtool", path=elsewhere)
    if ethtool is None:
        print("ethtool: not found; apt-get install ethtool", file=sys.stderr)
        sys.exit(NOT_FOUND)
    match sys.argv[1:]:
        case ["-S" | "--statistics", interface]:
            status = subprocess.run([ethtool, "-S", interface], check=False).returncode
            try:
                found = {} if status else counters(interface)
            except OSError as error:
                print(f"ethtool: the counters of the port are unknown: {error}", file=sys.stderr)
                sys.exit(1)
            sys.stdout.writelines(f"     {name}: {value}\n" for name, value in found.items())
            sys.exit(status)
        case arguments:
            os.execv(ethtool, ["ethtool", *arguments])  # noqa: S606 - in its place


def counters(interface: str) -> dict[str, int]:
    """Return the counters of an interface's port, none of an interface that is no port."""
    number, given = 0, os.environ.get(MAPS, "")
    with suppress(OSError):
        number = int(Path("/sys/class/net", interface, "netdev_group").read_text())
    numbers, kinds = constants(), structures()
    if not given or not 0 < number <= numbers["PORTS"]:
        return {}
    sizes = numbers["PORTS"] + 1, numbers["PORTS"] + 1, (numbers["PORTS"] + 1) * numbers["FLOWS"]
    arrays: list[Any] = [
        shared_array(int(one), kinds[kind], size)
        for one, kind, size in zip(given.split(","), SHARED.values(), sizes, strict=True)
    ]
    configs, states, flows = arrays
    config, state = configs[number], states[number]
    if config.kind == numbers["SWITCH"]:
        return port_counters.of_switch_port(config, state)
    if config.kind != numbers["NIC"]:
        return {}
    of_sorters = (
        states[one] for one, other in enumerate(configs) if (other.kind, other.owner) == (numbers["SORTER"], number)
    )
    first = number * numbers["FLOWS"]
    return port_counters.of_nic(config, state, next(of_sorters, None), flows[first : first + state.flows])
