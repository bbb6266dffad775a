"""Moments of a run: the machine at a step, a fault or a failed expectation; saved, and restored.

A guest on the virtual clock always pauses at each of them, so that a run in which nothing is saved is the same. A saved
moment has what the machine has changed since its snapshot: pages of RAM, the devices, the two memory files. The moments
of a run stand on each other: each has the pages that differ from the one before.
"""

from __future__ import annotations

import contextlib
import json
import os
import struct
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack, ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any, Literal, Self

from testbed.errors import InputError, MachineError
from testbed.machine import qemu, snapshot
from testbed.machine.image import Image
from testbed.machine.memory_files import Bundle, Device, Outcome
from testbed.machine.qemu import Flavour, Qemu, StateError
from testbed.machine.ram import PAGE, Ram
from testbed.machine.snapshot import Snapshot
from testbed.protocol import BUNDLE_BYTES, RESULT_BYTES
from testbed.protocol.requests import adapter
from testbed.records.regular_files import opened

MAGIC = b"TBSTEP1\0"
LENGTH = struct.Struct("<Q")
SUFFIX = ".step"
FIRST = 1
"""Number of the first moment of a run: its lab is up."""
DEVICES = "bundle", "result"
"""The two memory files, by their names in a file of a moment."""


@dataclass(frozen=True)
class Moment:
    """A moment of a run. `number` counts from 1, `t` is virtual nanoseconds since its start, `kind` the event's."""

    number: int
    t: int
    kind: str
    text: str

    @classmethod
    def of(cls, report: Mapping[str, Any]) -> Moment:
        match report:
            case {"number": int(number), "t": int(t), "kind": str(kind), "text": str(text)}:
                return cls(number, t, kind, text)
        raise MachineError(f"a moment is damaged: {str(report)[:80]}")


@dataclass
class Saved:
    """A machine at a moment. `pages` are the RAM pages, by number, that differ from the moment before, or from the
    snapshot if there is none."""

    moment: Moment
    snapshot: str
    """Key of the snapshot that it stands on."""
    devices: bytes
    files: dict[str, list[tuple[int, bytes]]]
    """Written parts of each of the two memory files: offsets and bytes."""
    pages: dict[int, bytes] = field(default_factory=dict)
    before: Saved | None = None

    def memory(self) -> dict[int, bytes]:
        """Return every page that differs from the snapshot."""
        return {**(self.before.memory() if self.before else {}), **self.pages}

    def write(self, directory: Path) -> Path:
        """Write the moment alone, without those before. OSError, and no file, on a full disk."""
        path = directory / f"{self.moment.number:03}{SUFFIX}"
        directory.mkdir(exist_ok=True)
        runs = list(in_a_row(self.pages))
        parts = [(name, place, len(data)) for name, found in self.files.items() for place, data in found]
        head = {
            "moment": asdict(self.moment),
            "snapshot": self.snapshot,
            "devices": len(self.devices),
            "parts": parts,
            "runs": runs,
            "before": self.before.moment.number if self.before else None,
        }
        text = json.dumps(head).encode()
        try:
            with path.open("wb") as file:
                file.write(MAGIC + LENGTH.pack(len(text)) + text + self.devices)
                for found in self.files.values():
                    file.writelines(data for _, data in found)
                for first, count in runs:
                    file.writelines(self.pages[page] for page in range(first, first + count))
        except OSError as error:
            path.unlink(missing_ok=True)
            error.filename = str(path)
            raise
        return path

    @classmethod
    def read(cls, path: Path) -> Saved:
        """Read what `write` wrote, with all that it stands on. InputError for a damaged file."""
        saved: Saved | None = None
        for one in reversed(list(_stack(path))):
            saved = cls._alone(one, saved)
        assert saved
        return saved

    @classmethod
    def _alone(cls, path: Path, before: Saved | None) -> Saved:
        with _opened(path) as (file, head):
            devices = file.read(head.devices)
            files: dict[str, list[tuple[int, bytes]]] = {name: [] for name in DEVICES}
            for name, place, size in head.parts:
                files[name].append((place, file.read(size)))
            pages = {page: file.read(PAGE) for first, count in head.runs for page in range(first, first + count)}
        return cls(head.moment, head.snapshot, devices, files, pages, before)


@dataclass(frozen=True)
class Head:
    """The head of a file of a moment: what the rest of it is."""

    moment: Moment
    snapshot: str
    devices: int
    parts: list[tuple[Literal["bundle", "result"], int, int]]
    runs: list[tuple[int, int]]
    before: int | None

    @property
    def length(self) -> int:
        """Return the bytes of the rest."""
        return self.devices + sum(size for *_, size in self.parts) + sum(count for _, count in self.runs) * PAGE

    def check(self, rest: int) -> None:
        """Raise ValueError if the rest of the file has other bytes than these, or a machine has no such place."""
        numbers = [self.devices, *(n for _, *pair in self.parts for n in pair), *(n for run in self.runs for n in run)]
        if min(numbers) < 0:
            raise ValueError("a size is negative")
        if self.length != rest:
            raise ValueError(f"it is cut off: {rest} bytes follow its head, not {self.length}")
        sizes = {"bundle": BUNDLE_BYTES, "result": RESULT_BYTES}
        ends = [place + size <= sizes[name] for name, place, size in self.parts]
        ends += [(first + count) * PAGE <= qemu.MEMORY for first, count in self.runs]
        if not all(ends):
            raise ValueError("a machine has no such memory")
        if self.before is not None and self.before >= self.moment.number:
            raise ValueError("it stands on a later moment")


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[tuple[IO[bytes], Head]]:
    """Open a file of a moment, and read its head. InputError if it is damaged."""
    try:
        with opened(path) as file:
            start = file.read(len(MAGIC) + LENGTH.size)
            (length,) = LENGTH.unpack(start.removeprefix(MAGIC))
            rest = path.stat().st_size - len(start) - length
            head: Head = adapter(Head).validate_json(file.read(max(0, min(length, length + rest))))
            head.check(rest)
            yield file, head
    except FileNotFoundError:
        raise
    except (OSError, ValueError, struct.error) as error:
        text = str(error).partition("\n")[0]
        raise InputError(f"the step cannot be read: {text}", where=str(path)) from None


def _stack(path: Path) -> Iterator[Path]:
    """Yield the file of a moment and those that it stands on."""
    while True:
        yield path
        with _opened(path) as (_, head):
            before = head.before
        if not before:
            return
        path = path.with_name(f"{before:03}{SUFFIX}")


def moment_of(path: Path) -> Moment:
    """Return the moment of a file, without reading all of it. InputError if it is damaged."""
    with _opened(path) as (_, head):
        return head.moment


def in_a_row(pages: Mapping[int, bytes]) -> Iterator[tuple[int, int]]:
    """Yield ranges of consecutive pages: the first one, and how many."""
    first = last = -2
    for page in sorted(pages):
        if page != last + 1:
            if first >= 0:
                yield first, last - first + 1
            first = page
        last = page
    if first >= 0:
        yield first, last - first + 1


class Album:
    """The saved moments of one machine, in their order."""

    def __init__(
        self, source: Snapshot, handle: int, devices: int, parts: Mapping[str, Device], last: Saved | None
    ) -> None:
        """Create an album. `handle` is the open snapshot, `devices` a memory file that QEMU has open, too; `last` is
        the machine's previous moment."""
        self._source, self._handle, self._devices, self._parts = source, handle, devices, parts
        self._now: dict[int, bytes] = dict(last.memory()) if last else {}
        self._last = last

    async def keep(self, machine: Qemu, moment: Moment) -> Saved:
        """Save the paused machine as it is."""
        state = await snapshot.devices_of(machine, self._devices)
        files = {name: list(extents(device)) for name, device in self._parts.items()}
        saved = Saved(moment, self._source.key, state, files, before=self._last)
        ram = Ram(machine.process.pid, self._handle)
        for first, data in ram.pages(ram.changed()):
            for number in range(len(data) // PAGE):
                page = data[number * PAGE : (number + 1) * PAGE]
                if self._now.get(first + number) != page:
                    self._now[first + number] = saved.pages[first + number] = page
        self._last = saved
        return saved


def extents(device: Device) -> Iterator[tuple[int, bytes]]:
    """Yield the written parts of a memory file: offsets and bytes."""
    end = 0
    while end < device.size:
        try:
            start = os.lseek(device.handle, end, os.SEEK_DATA)
        except OSError:  # no data from here on
            return
        end = min(os.lseek(device.handle, start, os.SEEK_HOLE), device.size)
        yield start, bytes(device.map[start:end])


class Opened:
    """A paused machine with all that belongs to it: a context manager, which removes it at the end."""

    machine: Qemu
    handle: int
    """The open file of the snapshot, which QEMU maps."""

    def __init__(self, image: Image, flavour: Flavour, source: Snapshot) -> None:
        self._image, self._flavour, self.source = image, flavour, source
        self._stack = ExitStack()
        self._running = AsyncExitStack()
        self.bundle = self._stack.enter_context(Bundle())
        self.outcome = self._stack.enter_context(Outcome())
        self._settled: Saved | None = None
        self._parts: dict[str, Device] = dict(zip(DEVICES, (self.bundle, self.outcome), strict=True))

    async def __aenter__(self) -> Self:
        self.handle = self._stack.enter_context(self.source.opened())
        self._devices = self._stack.enter_context(snapshot.memory(0))
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self._running.aclose()
        self._stack.__exit__(*error)

    async def begin(self) -> None:
        """Restore the machine from the snapshot; the bundle is written."""
        self.album = Album(self.source, self.handle, self._devices, self._parts, None)
        command, files = self._command()
        start = qemu.start(command, files=files, incoming=True)
        self.machine = await self._running.enter_async_context(start)
        os.lseek(self.handle, snapshot.OFFSET, os.SEEK_SET)
        await self.machine.load(self.handle)

    async def resume(self, saved: Saved) -> None:
        """Restore the machine at a moment, in place of the one that may be running."""
        await self._running.aclose()
        self.album = Album(self.source, self.handle, self._devices, self._parts, saved)
        for name, device in self._parts.items():
            device.clear()
            for place, data in saved.files[name]:
                device.map[place : place + len(data)] = data
        self.outcome.rewind()
        command, files = self._command()
        with snapshot.memory(0) as state:
            os.pwrite(state, saved.devices, 0)
            self.machine = await self._running.enter_async_context(qemu.start(command, files=files, incoming=True))
            Ram(self.machine.process.pid, self.handle).write(iter(saved.memory().items()))
            try:
                await self.machine.load(state)
            except StateError as error:
                raise MachineError(f"QEMU cannot go back to the moment: {error.message}") from error

    def _command(self) -> tuple[list[str], tuple[int, ...]]:
        ram, sizes = qemu.Ram(self.handle, shared=False), (self.bundle.size, self.outcome.size)
        paths = self.bundle.path, self.outcome.path
        command = qemu.command_line(self._image, self._flavour, ram, *paths, sizes)
        return command, (self.handle, self.bundle.handle, self.outcome.handle, self._devices)

    async def settle(self, moment: Moment | None) -> None:
        """Advance the clock of a just paused machine to the next timer, if it is not there yet: which of QEMU's threads
        was first at the pause must not change a run."""
        self._settled = None
        if self._flavour.clock == "virtual" and not await self.machine.at_timer():
            self._settled = await self.album.keep(self.machine, moment or Moment(0, 0, "", ""))
            await self.resume(self._settled)

    async def devices_state(self) -> bytes:
        """Return the state of the devices at a pause."""
        return await snapshot.devices_of(self.machine, self._devices)

    def forget(self) -> None:
        """Empty the two memory files of the paused machine, as at its beginning."""
        for device in self._parts.values():
            device.clear()
        self.outcome.rewind()

    async def keep(self, moment: Moment) -> Saved:
        """Save the machine at its pause, which has been settled."""
        return self._settled or await self.album.keep(self.machine, moment)
