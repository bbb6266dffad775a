"""
nftables commands in this process, by libnftables, the library inside `nft`: it saves the fork.

Debian's python3-nftables binds the same library, and is not used: it is no package of PyPI, so the virtual environment
of a machine of the user's does not see it; it brings python3-jsonschema along; and an object of it holds a context, and
with that a netlink socket of one namespace, until it is collected, where a lab needs one for each command.
"""

from __future__ import annotations

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
"""A descriptor kept for the library's socket: it waits with select(), which takes no number from 1024 on, and a lab of
hundreds of nodes has more files open than that."""


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
    """Run `commands` (nft(8) or libnftables-json(5)) in the namespace of the calling thread, all or nothing.

    Return the objects that they list, as libnftables-json(5) describes them.
    """
    loaded = library()
    with _lock:
        os.close(_low.pop())
        # A context keeps a socket, and that its namespace: it must not outlive the command.
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
    the hook of each counter, ingress or egress, and the match that chooses its packets."""
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
    """Return the commands for a table that sends new TCP connections to an address and port elsewhere: those that come
    in, and those of the node's own programs. It replaces the table of that name at once, if there is one. Connections
    that are there keep their way: conntrack has it, and a hook of type nat is passed by the first packet only."""
    rule = f"ip daddr {of[0]} tcp dport {of[1]} counter dnat to {to[0]}:{to[1]}"
    chains = (f"chain {hook} {{ type nat hook {hook} priority dstnat; {rule}; }}" for hook in ("prerouting", "output"))
    return "\n".join([f"table ip {table} {{}}", f"delete table ip {table}", f"table ip {table} {{", *chains, "}"])


def forwarded(table: str) -> int:
    """Return how many connections a table of `forwarding` has sent elsewhere."""
    rules = (entry["rule"]["expr"] for entry in run(f"list table ip {table}") if "rule" in entry)
    return sum(part["counter"]["packets"] for rule in rules for part in rule if "counter" in part)
