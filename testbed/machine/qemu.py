"""The QEMU process of a micro-VM: its command line, QMP, and end. docs/architecture.md explains each flag."""

import asyncio
import calendar
import contextlib
import os
import re
import signal
import socket
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from qemu.qmp import EventListener, ExecuteError, QMPClient
from qemu.qmp.error import QMPError

from testbed.errors import MachineError
from testbed.machine import child_processes, emulator
from testbed.machine.image import Image
from testbed.machine.patience import patiently, threads_of
from testbed.protocol import Clock

MEMORY = 3 << 30
"""Bytes of a guest's RAM."""
Accelerator = Literal["tcg", "kvm"]
T = TypeVar("T")
KERNEL_LINE = (
    "console=ttyS0 quiet panic=-1 mitigations=off nokaslr norandmaps audit=0 tsc=reliable random.trust_cpu=off "
    "randomize_kstack_offset=off init_on_alloc=0 nowatchdog psi=0 net.ifnames=0 cgroup_disable=memory "
    "rcupdate.rcu_expedited=1 log_buf_len=1M"
)
REAL_LINE = " no_timer_check"
"""In addition on the real clock: on a busy host the timer's first interrupts come late, and the kernel would panic."""
CURRENT_COUNT = re.compile(r"current_count = (\w+)")
CAUSE = re.compile(r"sysrq:|Kernel panic|BUG: |Oops|Out of memory")
MOST_OUTPUT, READ_OUTPUT = 64 << 20, 64 << 10
"""Bytes of the console that are kept, and of those that are read for an error message."""
ANSWER_S = 30.0
"""Seconds with a CPU in which QMP must answer: QEMU works or it does not."""


@dataclass(frozen=True)
class Flavour:
    """The clock and what executes the guest. Snapshots depend on both, and on the image."""

    clock: Clock
    accelerator: Accelerator = "tcg"

    @property
    def cpus(self) -> int:
        """Return the number of vCPUs. icount takes turns between them in slices of 60 ms: on the virtual clock there is
        one. Emulation by QEMU before 8.1 may execute an instruction that another vCPU has just replaced, and Linux,
        which patches its own code, then dies of an int3 (QEMU's commit deba78709a): one as well."""
        if self.clock == "virtual" or (self.accelerator == "tcg" and emulator.numbers(emulator.version()) < (8, 1)):
            return 1
        return min(os.cpu_count() or 1, 8)

    def arguments(self) -> list[str]:
        if self.clock == "virtual":
            # One instruction is one nanosecond; an idle guest jumps to its next timer; nothing random comes from the
            # host. Recording is for its lock: QEMU's other threads then act while no vCPU executes.
            return [
                *("-accel", "tcg", "-icount", f"shift=0,sleep=off,align=off,rr=record,rrfile={os.devnull}"),
                *("-smp", "1", "-seed", "1"),
                *("-cpu", "max,-rdrand,-rdseed,-erms,-fsrm", "-rtc", "base=2026-01-01,clock=vm"),
            ]
        cpu = ["-accel", "kvm", "-cpu", "host"]
        if self.accelerator == "tcg":
            cpu = ["-accel", "tcg,thread=multi", "-cpu", "max"]
        return [*cpu, "-smp", str(self.cpus), "-rtc", "base=utc"]


class StateError(MachineError):
    """Error: QEMU runs and cannot read the state of a machine."""


class EndedError(MachineError):
    """Error: QEMU has ended."""


class Qemu:
    """A running QEMU. It dies with this process; its sockets and devices are anonymous, none is on a disk."""

    def __init__(self, process: asyncio.subprocess.Process, qmp: QMPClient, console: int, bell: socket.socket) -> None:
        """Wrap a process. `console` is the open file of the guest's first serial port, `bell` is the second port, by
        which the two sides of a wire wake each other."""
        self.process = process
        self.qmp = qmp
        self.bell = bell
        self._console = console
        self.events = EventListener(("GUEST_PANICKED", "STOP", "SHUTDOWN", "MIGRATION"))
        qmp.register_listener(self.events)

    def bound_output(self) -> None:
        """Drop what the guest wrote to its console if it is too much to keep."""
        if os.fstat(self._console).st_size > MOST_OUTPUT:
            os.truncate(self._console, 0)

    def last_output(self, lines: int = 12) -> str:
        """Return the last lines of the guest's console for error messages; first, if it panicked, the reason."""
        output = os.pread(self._console, READ_OUTPUT, max(0, os.fstat(self._console).st_size - READ_OUTPUT))
        text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\x1bc|\r", "", output.decode(errors="replace")).strip()
        every = text.splitlines()
        causes = [line for line in every[:-lines] if CAUSE.search(line)]
        return "\n".join(f"  | {line}" for line in causes + every[-lines:]) or "  | (the guest wrote nothing)"

    async def _within(self, awaitable: Awaitable[T]) -> T:
        return await patiently(awaitable, ANSWER_S, threads_of(self.process.pid))

    async def command(self, name: str, **arguments: Any) -> Any:
        try:
            return await self._within(self.qmp.execute(name, arguments or None))
        except (QMPError, TimeoutError) as error:
            if not isinstance(error, ExecuteError | TimeoutError):  # the connection was lost: QEMU ends
                await asyncio.wait((asyncio.ensure_future(self.process.wait()),), timeout=ANSWER_S)
            if self.process.returncode is not None:
                raise self._ended() from error
            raise MachineError(f"QEMU did not execute {name}: {str(error) or 'no answer'}") from error

    def _ended(self) -> EndedError:
        status = self.process.returncode or 0
        how = f"by signal {-status}" if status < 0 else f"with status {status}"
        hint = "If this host had no memory left, `dmesg` says so." if status == -signal.SIGKILL else ""
        return EndedError(f"QEMU ended {how}. The guest's last output:\n{self.last_output()}", hint=hint)

    async def clock_s(self) -> int:
        """Return the guest's time in seconds, from its real-time clock. The query leaves no trace in a run."""
        now = await self.command("qom-get", path="/machine", property="rtc-time")
        year, month, *rest = (now[f"tm_{name}"] for name in ("year", "mon", "mday", "hour", "min", "sec"))
        return calendar.timegm((year + 1900, month + 1, *rest, 0, 0, 0))

    async def at_timer(self) -> bool:
        """Return True if a paused machine's clock is at the next timer, the local APIC's: at a pause QEMU's main thread
        lets it jump there, if the vCPU is already at rest."""
        shown = await self.command("human-monitor-command", **{"command-line": "info lapic"})
        found = CURRENT_COUNT.search(shown)
        return not found or int(found[1], 0) == 0

    async def nudge(self) -> None:
        """Stop the guest and continue it at the same instruction and time, unless it has paused itself."""
        await self.command("stop")
        if (await self.command("query-status"))["status"] == "paused":
            await self.command("cont")

    async def save(self, handle: int) -> None:
        """Write the devices of the paused machine to the file that QEMU has open as `handle`.

        The command has Xen in its name and writes what any QEMU needs: all but RAM and pmem, which are shared files. A
        migration reads the host's clock in a thread of its own, which a machine that records does not survive.
        """
        await self.command("xen-save-devices-state", filename=f"/dev/fd/{handle}", live=False)

    async def load(self, handle: int) -> None:
        """Read what `save` wrote. Raise StateError on any failure."""
        try:
            await self.command("migrate-set-capabilities", capabilities=[{"capability": "events", "state": True}])
            self.qmp.send_fd_scm(handle)
            await self.command("getfd", fdname="state")
            await self.command("migrate-incoming", uri="fd:state")
            await self._within(self._loaded())
        except TimeoutError:
            raise StateError(f"QEMU was still reading the snapshot after {ANSWER_S:g} s") from None
        except MachineError as error:
            raise StateError(error.message) from error

    async def _loaded(self) -> None:
        while True:
            event = await self.events.get()
            if event["event"] == "MIGRATION":
                status = dict(event["data"])["status"]  # type: ignore[call-overload]
                if status == "completed":
                    return
                if status == "failed":
                    reason = (await self.command("query-migrate")).get("error-desc", "no reason given")
                    raise MachineError(f"QEMU could not read the snapshot: {reason}")

    async def paused(self, look: Callable[[], Awaitable[None]], poll_s: Callable[[], float]) -> None:
        """Return when the guest has paused itself. Call `look` after each `poll_s()` wall seconds; it may raise. QEMU
        reports the pause before it stops: a query in between would find it running."""
        reported = False
        ended = asyncio.ensure_future(self.process.wait())
        event = asyncio.ensure_future(self.events.get())
        try:
            while True:
                await asyncio.wait((ended, event), timeout=poll_s(), return_when=asyncio.FIRST_COMPLETED)
                if event.done():
                    reported |= event.result()["event"] == "GUEST_PANICKED"
                    if reported and event.result()["event"] == "STOP":
                        return
                    if event.result()["event"] == "SHUTDOWN":
                        raise MachineError(f"the guest went down. Its last output:\n{self.last_output()}")
                    event = asyncio.ensure_future(self.events.get())
                elif ended.done():
                    raise self._ended()
                else:
                    self.bound_output()
                    await look()
        finally:
            for task in ended, event:
                task.cancel()


@dataclass(frozen=True)
class Ram:
    """The file a guest's RAM is mapped from: `shared` writes go into the file, others into pages of QEMU's own."""

    handle: int
    shared: bool


def command_line(
    image: Image, flavour: Flavour, ram: Ram, bundle: str, result: str, sizes: tuple[int, int]
) -> list[str]:
    """Return QEMU's command line. It opens the paths `bundle` and `result` as pmem files of `sizes` bytes."""
    pmem = []
    for name, path, size, extra in (
        *((name, str(file), file.stat().st_size, ",readonly=on") for name, file in image.mounted()),
        ("bundle", bundle, sizes[0], ""),
        ("result", result, sizes[1], ""),
    ):
        quoted = path.replace(",", ",,")
        pmem += ["-object", f"memory-backend-file,id={name},share=on,mem-path={quoted},size={size}{extra}"]
        pmem += ["-device", f"nvdimm,memdev={name}" + (",unarmed=on" if extra else "")]
    slots = max(4, len(pmem) // 4)
    return [
        *emulator.emulator().command,
        *("-nodefaults", "-no-user-config", "-nographic", "-no-reboot"),
        *("-M", "q35,memory-backend=ram,nvdimm=on,usb=off,smbus=off,sata=off,hpet=off,suppress-vmdesc=on"),
        *("-m", f"{MEMORY >> 20}M,slots={slots},maxmem=16G"),
        "-object",
        f"memory-backend-file,id=ram,mem-path=/dev/fd/{ram.handle},size={MEMORY},share={'on' if ram.shared else 'off'}",
        *flavour.arguments(),
        *("-kernel", str(image.file("vmlinuz")), "-initrd", str(image.file("initrd"))),
        *("-append", f"{KERNEL_LINE} testbed.clock={flavour.clock}{REAL_LINE if flavour.clock == 'real' else ''}"),
        *("-device", "pvpanic", "-action", "panic=pause", "-global", "migration.send-configuration=off"),
        *pmem,
    ]


def _kill(process: asyncio.subprocess.Process) -> None:
    """Kill a process that may have ended. `process.kill` would take its status from asyncio, which then warns."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)


@contextlib.asynccontextmanager
async def start(command: list[str], *, files: tuple[int, ...], incoming: bool) -> AsyncIterator[Qemu]:
    """Run QEMU with the open `files` inherited. If `incoming`, it waits for `load` and is then paused."""
    # This process and QEMU's main thread must not preempt the vCPU when they wake at its pause: see Qemu.at_timer.
    os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    qmp_here, qmp_there = socket.socketpair()
    bell_here, bell_there = socket.socketpair()
    bell_here.setblocking(False)
    # A file takes all output at once. A socket is full after some 270 unread characters, and then the guest's serial
    # port is busy for as long as this process gets no CPU.
    console = os.fdopen(os.memfd_create("testbed-console"), "rb", buffering=0)
    command = [
        *child_processes.dying("KILL"),
        *command,
        *("-chardev", f"socket,id=qmp,fd={qmp_there.fileno()}", "-mon", "chardev=qmp,mode=control"),
        *("-chardev", f"file,id=console,path=/dev/fd/{console.fileno()},append=on", "-serial", "chardev:console"),
        *("-chardev", f"socket,id=bell,fd={bell_there.fileno()}", "-serial", "chardev:bell"),
        *(["-incoming", "defer", "-S"] if incoming else []),
    ]
    process = await asyncio.create_subprocess_exec(
        *command,
        pass_fds=(qmp_there.fileno(), console.fileno(), bell_there.fileno(), *files),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env={**os.environ, **emulator.emulator().environment},
    )
    for there in qmp_there, bell_there:
        there.close()
    client = QMPClient("testbed")
    try:
        try:
            await patiently(client.connect(qmp_here), ANSWER_S, threads_of(process.pid))
        except (QMPError, TimeoutError, OSError) as error:
            _kill(process)
            assert process.stderr
            wrote = (await process.stderr.read()).decode(errors="replace").strip()
            reason = wrote or str(error) or f"it gave no answer within {ANSWER_S:g} s"
            raise MachineError(f"QEMU did not start: {reason}") from error
        yield Qemu(process, client, console.fileno(), bell_here)
    finally:
        _kill(process)
        await process.wait()
        with contextlib.suppress(Exception):
            await client.disconnect()
        console.close()
        bell_here.close()
