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
from collections.abc import Mapping, Sequence
from ipaddress import IPv4Address, IPv4Network
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


MASQUERADE = "0x4000"
"""The mark of packets that leave with the node's address, as of kube-proxy (--iptables-masquerade-bit)."""
Of = tuple[IPv4Address, str, int]
"""An address, a protocol and a port."""


def kube_proxy(services: Mapping[Of, Sequence[tuple[IPv4Address, int]]], local: IPv4Network | None) -> str:
    """
    Return the commands for a node's table of services with their endpoints, in the shape of kube-proxy's.

    What its programs send and what it forwards goes to an endpoint, drawn at random. The node's address is its source
    if its sender is not in `local`, the network of pods, or if an endpoint sends to itself. A service without endpoints
    is rejected. The table is replaced at once; connections that are there stay with their endpoints, by conntrack.
    Source: Kubernetes 1.31, pkg/proxy/nftables.
    """
    served = {of: ends for of, ends in services.items() if ends}
    chains = []
    mark = f"meta mark set meta mark or {MASQUERADE}"
    for number, ((_, protocol, _), endpoints) in enumerate(served.items()):
        for place, (address, port) in enumerate(endpoints):
            to = f"meta l4proto {protocol.lower()} counter dnat to {address}:{port}"
            chains.append(f"chain endpoint-{number}-{place} {{ ip saddr {address} {mark}; {to}; }}")
        targets = ", ".join(f"{place} : goto endpoint-{number}-{place}" for place in range(len(endpoints)))
        marked = f"ip saddr != {local} {mark}; " if local else ""
        draw = f"numgen random mod {len(endpoints)} vmap {{ {targets} }}"
        chains.append(f"chain service-{number} {{ {marked}counter; {draw}; }}")
    to_chain = {of: f"goto service-{number}" for number, of in enumerate(served)}
    to_none = {of: "goto reject-it" for of in services if of not in served}
    match = "ip daddr . meta l4proto . th dport vmap"
    nat = [
        f"chain nat-{hook} {{ type nat hook {hook} priority dstnat; {match} @services; }}"
        for hook in ("prerouting", "output")
    ]
    filtered = [
        f"chain filter-{hook} {{ type filter hook {hook} priority filter; ct state new {match} @without-endpoints; }}"
        for hook in ("forward", "output")
    ]
    leave = f"meta mark and {MASQUERADE} != {MASQUERADE} return; meta mark set meta mark xor {MASQUERADE}; masquerade"
    body = [
        *chains,
        "chain reject-it { reject; }",
        _verdicts("services", to_chain),
        _verdicts("without-endpoints", to_none),
        *nat,
        *filtered,
        f"chain postrouting {{ type nat hook postrouting priority srcnat; {leave}; }}",
    ]
    return "\n".join(["table ip kube-proxy {}", "delete table ip kube-proxy", "table ip kube-proxy {", *body, "}"])


def _verdicts(name: str, verdicts: Mapping[Of, str]) -> str:
    entries = ", ".join(f"{of[0]} . {of[1].lower()} . {of[2]} : {verdict}" for of, verdict in verdicts.items())
    elements = f"elements = {{ {entries} }};" if entries else ""
    return f"map {name} {{ type ipv4_addr . inet_proto . inet_service : verdict; {elements} }}"


ROCE = "udp dport 4791"
ND = "icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert, nd-router-advert } accept"
Accepted = tuple[Sequence[str] | None, Sequence[str], Sequence[tuple[str, int, int]] | None]
"""Networks, networks within them that are not meant, and ports: a protocol, the first, the last. None: all."""


def network_policy(
    incoming: Mapping[str, Sequence[Accepted]], outgoing: Mapping[str, Sequence[Accepted]], *, rdma_passes: bool
) -> str:
    """Return the commands for a pod's table of policies: what its interfaces may receive and send, besides answers.
    Interfaces that are not named are free. With `rdma_passes` RoCE passes all of it, as that of a NIC which does RDMA
    itself. The table is replaced at once."""
    lines = []
    for hook, name, end, given in (("input", "iifname", "saddr", incoming), ("output", "oifname", "daddr", outgoing)):
        jumps = [f'{name} "{interface}" goto {hook}-{number}' for number, interface in enumerate(given)]
        passes = [f"{ROCE} counter accept"] if rdma_passes else []
        rules = ["ct state established,related accept", *passes, ND, *jumps]
        for number, accepted in enumerate(given.values()):
            each = [rule for one in accepted for rule in _accepting(one, end)]
            lines.append(f"chain {hook}-{number} {{ {'; '.join([*each, 'counter drop'])}; }}")
        lines.append(f"chain {hook} {{ type filter hook {hook} priority filter; {'; '.join(rules)}; }}")
    table = "inet network-policy"
    return "\n".join([f"table {table} {{}}", f"delete table {table}", f"table {table} {{", *lines, "}"])


def _accepting(accepted: Accepted, end: str) -> list[str]:
    peers, without, ports = accepted
    matches = [""]
    if peers is not None:
        matches = []
        for family, sign in (("ip", "."), ("ip6", ":")):
            own = [one for one in peers if (":" in one) == (sign == ":")]
            others = [one for one in without if (":" in one) == (sign == ":")]
            left = f"{family} {end} != {{ {', '.join(others)} }} " if others else ""
            matches += [f"{family} {end} {{ {', '.join(own)} }} {left}"] if own else []
    if ports is None:
        return [f"{match}accept" for match in matches]
    return [
        f"{match}{protocol.lower()} dport {first}-{last} accept" for match in matches for protocol, first, last in ports
    ]


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
