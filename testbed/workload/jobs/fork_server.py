"""The process that ranks are forked from. It has torch imported, so that a rank begins in milliseconds; it waits in a
snapshot of its own.

A launcher starts a rank as a stub (stub.py): it sends its arguments, environment, directory and namespaces here, and a
fork becomes the rank. Each follows the other's end: the stub ends as its rank did, and a rank whose stub is gone is
killed.

This file stands alone: it is in the snapshot below the one that has testbed.
"""

import atexit
import ctypes
import gc
import itertools
import json
import multiprocessing.process
import os
import runpy
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from typing import Any

DIRECTORY = os.path.dirname(os.path.abspath(__file__))
SOCKET = "/run/testbed/ranks.sock"
SHIM = "/run/testbed/shim.so"
MESSAGE = 1 << 18
NAMESPACES = ("net", "uts", "ipc", "mnt", "pid")
"""Those of a rank. The last one it has if its node has one."""
PID_NAMESPACE = "TESTBED_PID_NAMESPACE"
"""The variable of a stub with the file of its node's PID namespace."""
CLONE_NEWNS, MS_PRIVATE = 0x20000, 1 << 18
PR_SET_MM, ARG_END, ENV_END = 35, 9, 11
"""The last two have their starts one below."""

libc = ctypes.CDLL(None, use_errno=True)  # os.setns came with Python 3.12
shown: list[Any] = []
"""What /proc shows of this process, in memory that must stay."""


def prepare(job: object, out: str, emit: object, devices: object = None) -> None:
    """Prepare a snapshot that has the process."""
    start()


def start() -> None:
    """Start the process, if it does not exist yet, and return when it waits for ranks."""
    if os.path.exists(SOCKET):
        return
    build_shim()
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(SOCKET)
    listener.listen(64)
    ready, report = os.pipe()
    environment = {**os.environ, "LD_PRELOAD": SHIM, "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    handles = (listener.fileno(), report)
    subprocess.Popen(
        [sys.executable, __file__, *map(str, handles)],
        env=environment,
        pass_fds=handles,
        cwd="/",
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    )
    os.close(report)
    listener.close()
    with os.fdopen(ready) as end:
        if end.read() != "ready":
            os.unlink(SOCKET)
            raise RuntimeError("the parent process of the ranks could not import torch")


def build_shim() -> None:
    """Compile the library that is preloaded into ranks, if it does not exist yet."""
    if not os.path.exists(SHIM):
        sources = [os.path.join(DIRECTORY, name) for name in ("shim.c", "flight.c", "orders.c")]
        subprocess.run(["tcc", "-shared", "-nostdlib", "-o", SHIM, *sources], check=True)


def warm_up() -> None:
    """Import what a training program uses, and what torch imports only at first use."""
    import mpi4py
    import torch
    import torch.distributed.elastic.rendezvous.static_tcp_rendezvous
    import torch.distributed.run
    from torch.nn.parallel import DistributedDataParallel

    mpi()
    torch.set_num_threads(1)
    leave_libuv()
    complete_mpi()
    # No backward pass: after one torch refuses to go on in a fork.
    weight = torch.nn.Linear(2, 1).requires_grad_(False).weight
    weight.grad = torch.zeros_like(weight)
    torch.optim.SGD([weight], lr=0.1).step()
    _ = mpi4py, DistributedDataParallel
    # A rank's collections would write to all of these objects, and so copy their pages: 32 ranks have no room for that.
    gc.collect()
    gc.freeze()


def leave_libuv() -> None:
    """Let TCPStores be without libuv, which Debian's torch does not have, whatever a caller says: most ask for it.
    Modules that are imported later find it in torch.distributed."""
    import torch.distributed

    original = torch.distributed.TCPStore

    class Store(original):  # type: ignore[misc, valid-type]
        def __init__(self, *arguments: Any, **named: Any) -> None:
            super().__init__(*arguments, **{**named, "use_libuv": False})

    for name, module in list(sys.modules.items()):
        if name.startswith("torch.") and getattr(module, "TCPStore", None) is original:
            module.TCPStore = Store  # type: ignore[attr-defined]


def complete_mpi() -> None:
    """Complete PyTorch's process groups of MPI. A program may have a module of the same name."""
    import process_group  # type: ignore[import-not-found]

    process_group.install()
    del sys.modules["process_group"]


def serve(listener: socket.socket) -> None:
    """Fork a rank for each stub that comes, and report its end to the stub."""
    events = selectors.DefaultSelector()
    events.register(listener, selectors.EVENT_READ)
    while True:
        for key, _ in events.select():
            if key.fileobj is listener:
                stub, _ = listener.accept()
                child = fork_rank(stub, listener)
                ended = os.pidfd_open(child)
                events.register(stub, selectors.EVENT_READ, (child, ended))
                events.register(ended, selectors.EVENT_READ, (child, stub))
            elif isinstance(key.fileobj, socket.socket):  # the stub is gone
                child, ended = key.data
                signal.pidfd_send_signal(ended, signal.SIGKILL)
                events.unregister(key.fileobj)
            else:
                child, stub = key.data
                _, status = os.waitpid(child, 0)
                events.unregister(key.fileobj)
                os.close(key.fd)
                if stub in events.get_map():
                    events.unregister(stub)
                    stub.send(str(os.waitstatus_to_exitcode(status)).encode())
                stub.close()


def fork_rank(stub: socket.socket, listener: socket.socket) -> int:
    data, handles, _, _ = socket.recv_fds(stub, MESSAGE, len(NAMESPACES))
    processes = handles[NAMESPACES.index("pid") :]
    own = [os.open("/proc/self/ns/pid", os.O_RDONLY)] if processes else []
    enter(processes)  # for its children, not for this process
    child = os.fork()
    if child:
        enter(own)
    for handle in own:
        os.close(handle)
    if child:
        for handle in handles:
            os.close(handle)
        return child
    status = 1
    try:
        stub.close()
        listener.close()
        become_rank(json.loads(data), handles)
        status = run_program()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)  # the interpreter's own end takes seconds: it frees what torch made, object by object


def enter(namespaces: list[int]) -> None:
    for handle in namespaces:
        if libc.setns(handle, 0):
            raise OSError(ctypes.get_errno(), "setns")


def become_rank(wanted: dict[str, Any], namespaces: list[int]) -> None:
    """Adopt all that the stub has."""
    os.setsid()
    enter(namespaces)
    for handle in namespaces:
        os.close(handle)
    own_proc()
    os.environ.clear()
    os.environ.update(wanted["environment"])
    os.chdir(wanted["directory"])
    # A child that it spawns begins there.
    multiprocessing.process.ORIGINAL_DIR = wanted["directory"]  # type: ignore[attr-defined]
    rank = os.environ.get("OMPI_COMM_WORLD_RANK") or os.environ.get("RANK")
    if rank and "OMPI_COMM_WORLD_RANK" not in os.environ and "WORLD_SIZE" in os.environ:
        record_gloo(f"{os.environ['TESTBED_RANKS']}/flight-{rank}.bin")
    if rank:
        record_steps(f"{os.environ['TESTBED_RANKS']}/steps-{rank}.jsonl")
    name = f"rank-{rank}" if rank else os.environ["TESTBED_LAUNCHER"]
    log = os.open(f"{os.environ['TESTBED_RANKS']}/{name}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for standard in 1, 2:
        os.dup2(log, standard)
    sys.argv = wanted["arguments"]
    show(ARG_END, ["python3", *sys.argv])
    show(ENV_END, [f"{key}={value}" for key, value in os.environ.items()])
    sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))


def show(end: int, words: list[str]) -> None:
    """Have /proc show the rank's own command line or environment in place of that of the process it was forked from."""
    text = b"".join(os.fsencode(word) + b"\0" for word in words)
    shown.append(buffer := ctypes.create_string_buffer(text, len(text)))
    place = ctypes.addressof(buffer)
    edges = [(end, place + len(text)), (end - 1, place)]
    # The kernel takes no start behind the end: which of them is first depends on where the buffer is.
    if any(set_mm(*edge) for edge in edges) and any(set_mm(*edge) for edge in reversed(edges)):
        raise OSError(ctypes.get_errno(), "prctl PR_SET_MM")


def set_mm(edge: int, address: int) -> int:
    return int(
        libc.prctl(PR_SET_MM, ctypes.c_ulong(edge), ctypes.c_ulong(address), ctypes.c_ulong(0), ctypes.c_ulong(0))
    )


def record_gloo(path: str) -> None:
    """Record the calls of groups of gloo. A program may have modules of the same names."""
    sys.path.insert(0, DIRECTORY)
    import gloo_calls  # type: ignore[import-not-found]

    gloo_calls.begin(path)
    sys.path.remove(DIRECTORY)
    for name in "gloo_calls", "flight_file":
        del sys.modules[name]


def record_steps(path: str) -> None:
    """Append a line to a file at each step() of an optimizer of torch: its number, from 1, and when it and the one
    before it ended, or the program began, in nanoseconds of CLOCK_MONOTONIC. The program needs no change."""
    from torch.optim.optimizer import register_optimizer_step_post_hook

    numbers, began_ns = itertools.count(1), time.monotonic_ns()

    def record(*_: object) -> None:
        nonlocal began_ns
        ended_ns = time.monotonic_ns()
        line = json.dumps({"number": next(numbers), "began_ns": began_ns, "ended_ns": ended_ns})
        with open(path, "a") as file:
            file.write(f"{line}\n")
        began_ns = ended_ns

    register_optimizer_step_post_hook(record)


def own_proc() -> None:
    """Keep the stub's mounts, but with a /proc that has this process, which is not in the launcher's PID namespace."""
    if (
        libc.unshare(CLONE_NEWNS)
        or libc.mount(b"none", b"/proc", b"none", MS_PRIVATE, None)
        or libc.mount(b"proc", b"/proc", b"proc", 0, None)
    ):
        raise OSError(ctypes.get_errno(), "mount /proc")


def run_program() -> int:
    """Run the program and the rest of its work at its end; return the exit status.

    A program that failed does not finalise MPI, which would wait for its peers: mpirun ends the job.
    """
    try:
        runpy.run_path(sys.argv[0], run_name="__main__")
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        return 1
    else:
        status = 0
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    if status == 0 and query_mpi("MPI_Initialized") and not query_mpi("MPI_Finalized"):
        mpi().MPI_Finalize()
    return status


def mpi() -> ctypes.CDLL:
    return ctypes.CDLL("libmpi.so.40", ctypes.RTLD_GLOBAL)


def query_mpi(question: str) -> bool:
    answer = ctypes.c_int()
    getattr(mpi(), question)(ctypes.byref(answer))
    return bool(answer.value)


if __name__ == "__main__":
    _listener, _told = map(int, sys.argv[1:])
    warm_up()
    os.write(_told, b"ready")
    os.close(_told)
    serve(socket.socket(fileno=_listener))
