"""
nftables commands in this process, by libnftables, the library of `nft`: it saves the fork.

Debian's python3-nftables binds the same library. It is not used for three reasons: it is not on PyPI, so a virtual
environment on a user's machine does not have it; it depends on python3-jsonschema; its object holds a context, and so
a netlink socket of one namespace, until it is collected, while a lab needs one for each command.
"""

import ctypes
import functools
import json
import os
import threading
from collections.abc import Mapping
from ipaddress import IPv4Address
from typing import Any

from testbed.errors import TestbedError, UnsupportedError

LIBRARY = "libnftables.so.1"
JSON = 1 << 4
"""NFT_CTX_OUTPUT_JSON"""
_lock = threading.Lock()
_low = [os.open(os.devnull, os.O_RDONLY)]
"""A spare descriptor for the library's socket: it waits with select(), which takes descriptors below 1024 only, and a
lab of hundreds of nodes has more files open."""


@functools.cache
def library() -> ctypes.CDLL:
    """Load libnftables and declare its functions."""
    try:
        library = ctypes.CDLL(LIBRARY)
    except OSError as error:
        raise UnsupportedError(f"no {LIBRARY}: {error}", hint="apt-get install nftables") from error
    context = ctypes.c_void_p
    library.nft_ctx_new.argtypes, library.nft_ctx_new.restype = [ctypes.c_uint32], context
    for function in library.nft_ctx_free, library.nft_ctx_buffer_error, library.nft_ctx_buffer_output:
        function.argtypes = [context]
    for function in library.nft_ctx_get_output_buffer, library.nft_ctx_get_error_buffer:
        function.argtypes, function.restype = [context], ctypes.c_char_p
    library.nft_ctx_output_set_flags.argtypes = [context, ctypes.c_uint]
    library.nft_run_cmd_from_buffer.argtypes = [context, ctypes.c_char_p]
    return library


def run(commands: str) -> list[dict[str, Any]]:
    """Run `commands` (nft(8) or libnftables-json(5)) in the calling thread's namespace, all or nothing.

    Return the listed objects as in libnftables-json(5).
    """
    loaded = library()
    with _lock:
        os.close(_low.pop())
        # A context holds a socket and so its namespace: it must not outlive the command.
        context = loaded.nft_ctx_new(0)
        try:
            loaded.nft_ctx_buffer_error(context)
            loaded.nft_ctx_buffer_output(context)
            loaded.nft_ctx_output_set_flags(context, JSON)
            if loaded.nft_run_cmd_from_buffer(context, commands.encode()):
                reason = loaded.nft_ctx_get_error_buffer(context).decode(errors="replace").strip()
                raise TestbedError(f"nftables: {reason}")
            output = loaded.nft_ctx_get_output_buffer(context).decode()
            return json.loads(output)["nftables"] if output else []
        finally:
            loaded.nft_ctx_free(context)
            _low.append(os.open(os.devnull, os.O_RDONLY))


def counting(table: str, interface: str, counted: Mapping[str, tuple[str, str]]) -> str:
    """Return the commands for a table that counts packets on an interface, at hooks that rxe's pass too. `counted` has
    each counter's hook, ingress or egress, and the match that selects its packets."""
    lines = [f"counter {name} {{}}" for name in counted]
    for hook in "egress", "ingress":
        rules = [f"{match} counter name {name}" for name, (at, match) in counted.items() if at == hook]
        begin = f'chain {hook} {{\ntype filter hook {hook} device "{interface}" priority 10;'
        lines += [begin, *rules, "}"] if rules else []
    return "\n".join([f"table netdev {table} {{", *lines, "}"])


def counters(table: str) -> dict[str, dict[str, int]]:
    """Return the counters of a table of `counting`: `packets` and `bytes` of each."""
    found = run(f"list counters table netdev {table}")
    return {entry["counter"]["name"]: entry["counter"] for entry in found if "counter" in entry}


def forwarding(table: str, of: tuple[IPv4Address, int], to: tuple[IPv4Address, int]) -> str:
    """Return the commands for a table that redirects new TCP connections to an address and port: incoming ones and
    those of the node's own programs. It replaces a table of that name atomically. Existing connections keep their
    destination: conntrack has it, and only the first packet passes a hook of type nat."""
    rule = f"ip daddr {of[0]} tcp dport {of[1]} counter dnat to {to[0]}:{to[1]}"
    chains = (f"chain {hook} {{ type nat hook {hook} priority dstnat; {rule}; }}" for hook in ("prerouting", "output"))
    return "\n".join([f"table ip {table} {{}}", f"delete table ip {table}", f"table ip {table} {{", *chains, "}"])


def forwarded(table: str) -> int:
    """Return the number of connections that a table of `forwarding` has redirected."""
    rules = (entry["rule"]["expr"] for entry in run(f"list table ip {table}") if "rule" in entry)
    return sum(part["counter"]["packets"] for rule in rules for part in rule if "counter" in part)
