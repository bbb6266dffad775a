"""BPF objects, loaded and attached by this machine's libbpf. Attachments end with the process."""

import ctypes
import mmap
import os
import socket
import struct
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from testbed.errors import UnsupportedError
from testbed.kernel.syscalls import closing_fd

LIBRARY = "libbpf.so.1"
LOG_LINES = 60
_SO_ATTACH_BPF = 50
_WARNING = 1
"""libbpf_print_level: warnings and errors."""
Record = TypeVar("Record", bound=ctypes.Structure)
_Print = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)
_POINTERS: dict[str, tuple[Any, ...]] = {
    "bpf_object__open_file": (ctypes.c_char_p, ctypes.c_void_p),
    "bpf_object__find_map_by_name": (ctypes.c_void_p, ctypes.c_char_p),
    "bpf_object__find_program_by_name": (ctypes.c_void_p, ctypes.c_char_p),
    "bpf_map__attach_struct_ops": (ctypes.c_void_p,),
    "bpf_program__attach": (ctypes.c_void_p,),
    "bpf_program__attach_cgroup": (ctypes.c_void_p, ctypes.c_int),
    "bpf_program__attach_tcx": (ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p),
}
_NUMBERS: dict[str, tuple[Any, ...]] = {
    "bpf_object__load": (ctypes.c_void_p,),
    "bpf_link__destroy": (ctypes.c_void_p,),
    "bpf_map__fd": (ctypes.c_void_p,),
    "bpf_map_get_fd_by_id": (ctypes.c_uint32,),
    "bpf_map_delete_elem": (ctypes.c_int, ctypes.c_char_p),
    "bpf_map_lookup_elem": (ctypes.c_int, ctypes.c_char_p, ctypes.c_char_p),
    "bpf_map_update_elem": (ctypes.c_int, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_uint64),
    "bpf_program__fd": (ctypes.c_void_p,),
    "bpf_map__pin": (ctypes.c_void_p, ctypes.c_char_p),
    "bpf_map__set_max_entries": (ctypes.c_void_p, ctypes.c_uint32),
}


@cache
def _library() -> ctypes.CDLL:
    try:
        library = ctypes.CDLL(LIBRARY, use_errno=True)
    except OSError as error:
        raise UnsupportedError(f"{LIBRARY} is missing", hint="apt-get install libbpf1") from error
    for name, arguments in _POINTERS.items():
        getattr(library, name).restype = ctypes.c_void_p
        getattr(library, name).argtypes = arguments
    for name, arguments in _NUMBERS.items():
        getattr(library, name).argtypes = arguments
    return library


class _Log:
    """The log of libbpf, with the verifier's, while `bpf_object__load` runs."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._format = ctypes.CDLL(None).vsnprintf
        self._callback = _Print(self._print)
        _library().libbpf_set_print(self._callback)

    def _print(self, level: int, text: bytes, arguments: int) -> int:
        if level < _WARNING:
            buffer = ctypes.create_string_buffer(1 << 16)
            self._format(buffer, ctypes.c_size_t(len(buffer)), ctypes.c_char_p(text), ctypes.c_void_p(arguments))
            self.lines += buffer.value.decode(errors="replace").splitlines()
        return 0


class Link:
    """An attached program, or registered operations, until `close`."""

    def __init__(self, handle: int) -> None:
        self._handle = handle

    def close(self) -> None:
        _library().bpf_link__destroy(self._handle)


class BpfObject:
    """The programs and maps of a file, loaded as long as this process lives. `entries` overrides map sizes of the file.

    UnsupportedError with the reason if this kernel refuses it; `failed` gets the last lines of the verifier's log.
    """

    def __init__(self, file: Path, entries: Mapping[str, int], failed: Callable[[str], None]) -> None:
        log = _Log()
        self._object = self._checked("bpf_object__open_file", str(file).encode(), None)
        for name, number in entries.items():
            _library().bpf_map__set_max_entries(self._map(name), number)
        status = _library().bpf_object__load(self._object)
        if status:
            failed("\n".join(log.lines[-LOG_LINES:]) + "\n")
            reason = next(
                (line for line in reversed(log.lines) if line.startswith("libbpf: prog")), os.strerror(-status)
            )
            raise UnsupportedError(f"this kernel rejects the BPF programs of {file.name}: {reason}")

    def _checked(self, function: str, *arguments: Any) -> int:
        found = getattr(_library(), function)(*arguments)
        if not found:
            number = ctypes.get_errno()
            shown = next((argument.decode() for argument in arguments if isinstance(argument, bytes)), "")
            raise UnsupportedError(f"{function} {shown}: {os.strerror(number)}")
        return int(found)

    def _map(self, name: str) -> int:
        return self._checked("bpf_object__find_map_by_name", self._object, name.encode())

    def _program(self, name: str) -> int:
        return self._checked("bpf_object__find_program_by_name", self._object, name.encode())

    def attach(self, program: str) -> Link:
        """Attach a program where its section says, such as the entry of a function."""
        return Link(self._checked("bpf_program__attach", self._program(program)))

    def attach_tcx(self, program: str, ifindex: int) -> Link:
        """Attach a program to an interface of the calling thread's namespace."""
        return Link(self._checked("bpf_program__attach_tcx", self._program(program), ifindex, None))

    def attach_cgroup(self, program: str, group: Path) -> Link:
        """Attach a program to the sockets of the processes in a control group, and in those below it."""
        with closing_fd(os.open(group, os.O_RDONLY)) as handle:
            return Link(self._checked("bpf_program__attach_cgroup", self._program(program), handle))

    def filter(self, program: str, packets: socket.socket) -> None:
        """Have a program decide which packets a socket gets, as long as the socket is open."""
        number = _library().bpf_program__fd(self._program(program))
        packets.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_BPF, struct.pack("=i", number))

    def pin(self, name: str, file: Path) -> None:
        """Make a map a file of a BPF file system, which others can open."""
        status = _library().bpf_map__pin(self._map(name), os.fsencode(file))
        if status:
            raise OSError(-status, os.strerror(-status), str(file))

    def update(self, name: str, key: bytes, value: bytes) -> None:
        """Set an entry of a map."""
        status = _library().bpf_map_update_elem(_library().bpf_map__fd(self._map(name)), key, value, 0)
        if status:
            raise OSError(-status, os.strerror(-status), name)

    def read(self, name: str, key: bytes, size: int) -> bytes | None:
        """Return an entry of a map, whose values have `size` bytes; None if it is not there."""
        value = ctypes.create_string_buffer(size)
        found = _library().bpf_map_lookup_elem(_library().bpf_map__fd(self._map(name)), key, value)
        return None if found else value.raw

    def delete(self, name: str, key: bytes) -> None:
        """Delete an entry of a map, if it is there."""
        _library().bpf_map_delete_elem(_library().bpf_map__fd(self._map(name)), key)

    def register(self, operations: str) -> Link:
        """Register operations that the kernel calls, such as a qdisc's."""
        return Link(self._checked("bpf_map__attach_struct_ops", self._map(operations)))

    def array(self, name: str, record: type[Record], number: int) -> ctypes.Array[Record]:
        """Return the records of an array map: kernel memory, which forks of this process do not have."""
        return _mapped(_library().bpf_map__fd(self._map(name)), record, number)

    def number(self, name: str) -> int:
        """Return the number that the kernel gave a map."""
        lines = Path(f"/proc/self/fdinfo/{_library().bpf_map__fd(self._map(name))}").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("map_id:"))


def shared_array(map_number: int, record: type[Record], number: int) -> ctypes.Array[Record]:
    """Return the records of an array map of another process, by the number that the kernel gave it."""
    handle = _library().bpf_map_get_fd_by_id(map_number)
    if handle < 0:
        raise OSError(-handle, os.strerror(-handle), f"BPF map {map_number}")
    with closing_fd(handle):
        return _mapped(handle, record, number)


def _mapped(handle: int, record: type[Record], number: int) -> ctypes.Array[Record]:
    size = ctypes.sizeof(record)
    assert size % 8 == 0, f"the kernel rounds the size of a value up to 8 bytes, {record.__name__} has {size}"
    length = -(-size * number // mmap.PAGESIZE) * mmap.PAGESIZE
    memory = mmap.mmap(handle, length)
    memory.madvise(mmap.MADV_DONTFORK)  # a fork would copy an entry for each of its pages
    return (record * number).from_buffer(memory)
