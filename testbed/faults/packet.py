"""
Exact packets, chosen as testers with programmable switches do: the n-th, a PSN, an opcode, of one queue pair.

The ICRC stays valid for what it does not cover (MAC, ToS, TTL).
"""

import zlib
from contextlib import ExitStack
from typing import Annotated, ClassVar, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from testbed.errors import InputError
from testbed.faults.rule import Hook, Rule
from testbed.lab import Interface, Lab
from testbed.topology import Family

ROCE_PORT = 4791
OPCODE, DEST_QP, PSN, PAYLOAD = "@th,64,8", "@th,104,24", "@th,136,24", "@th,160,8"
"""Fields of the BTH and the byte after it, in bits from the start of the UDP header, which has 64 (IBTA 9.2)."""
ENDLESS = 1 << 31
CE6 = "@nh,0,16 set @nh,0,16 | 0x0030"
"""Statement for both ECN bits among the first 16 of an IPv6 header (RFC 8200 section 3, RFC 3168 section 5):
`ip6 ecn set ce` writes the header's second byte alone, which Linux 7.3 does not execute."""
OPCODES = {
    "SEND_FIRST": 0x00, "SEND_MIDDLE": 0x01, "SEND_LAST": 0x02, "SEND_ONLY": 0x04,
    "WRITE_FIRST": 0x06, "WRITE_MIDDLE": 0x07, "WRITE_LAST": 0x08, "WRITE_ONLY": 0x0A,
    "READ_REQUEST": 0x0C, "READ_RESPONSE_FIRST": 0x0D, "READ_RESPONSE_MIDDLE": 0x0E, "READ_RESPONSE_LAST": 0x0F,
    "READ_RESPONSE_ONLY": 0x10, "ACKNOWLEDGE": 0x11, "ATOMIC_ACKNOWLEDGE": 0x12, "COMPARE_SWAP": 0x13,
    "FETCH_ADD": 0x14,
}  # fmt: skip
"""RC opcodes of the BTH (IBTA table 38)."""


def check_opcode(value: str) -> str:
    if value not in OPCODES:
        raise ValueError(f"it is one of {', '.join(OPCODES)}")
    return value


Opcode = Annotated[str, AfterValidator(check_opcode)]


class ExactPacket(Rule):
    """Chosen RoCE packets are dropped, marked CE, corrupted or delayed, and counted.

    A packet must match every given field: its PSN, its opcode, its destination queue pair; `number`, from 1, then
    selects one of the matching packets. To reorder a packet, delay it: later packets overtake it.
    """

    name: ClassVar[str] = "exact-packet"
    action: Literal["drop", "mark-ce", "corrupt", "delay"]
    """`drop`, `mark-ce`, `corrupt` (a byte behind the BTH) or `delay`."""
    number: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    """Position among the packets that match the other fields, from 1. Default: all of them."""
    psn: Annotated[int, Field(ge=0, lt=1 << 24)] | None = None
    """The packet sequence number."""
    opcode: Opcode | None = None
    """The BTH's opcode for RC, such as `WRITE_ONLY` or `ACKNOWLEDGE`."""
    dest_qp: Annotated[int, Field(ge=0, lt=1 << 24)] | None = None
    """The destination queue pair number."""
    delay: Annotated[float, Field(gt=0, le=100)] = 1e-3
    """Delay in seconds, for `delay`."""
    family: Family = 4
    """Address family of packets to mark CE: 4 for IPv4, 6 for IPv6; the other family is ignored."""

    @model_validator(mode="after")
    def _something_is_chosen(self) -> Self:
        if (self.number, self.psn, self.opcode, self.dest_qp) == (None, None, None, None):
            raise ValueError("choose packets by number, psn, opcode or dest_qp; for any packet use link-loss")
        return self

    def inject(self, lab: Lab, undo: ExitStack) -> None:
        if self.action == "delay":
            self._prepare_delay(*self.place(lab), undo)
        super().inject(lab, undo)

    def chosen(self) -> str:
        ip = f"meta protocol {'ip' if self.family == 4 else 'ip6'} " if self.action == "mark-ce" else ""
        given = {OPCODE: OPCODES.get(self.opcode or ""), DEST_QP: self.dest_qp, PSN: self.psn}
        fields = [f"{place} {value}" for place, value in given.items() if value is not None]
        # The generator counts what comes so far in the rule, from 0.
        fields += [f"numgen inc mod {ENDLESS} {self.number - 1}"] if self.number is not None else []
        return f"{ip}udp dport {ROCE_PORT} {' '.join(fields)}"

    def act(self) -> str:
        match self.action:
            case "drop":
                return "drop"
            case "mark-ce":
                return "ip ecn set ce" if self.family == 4 else CE6
            case "corrupt":
                return f"{PAYLOAD} set 0xa5"
            case "delay":
                return f"meta mark set {self._mark}"

    @property
    def _mark(self) -> int:
        return zlib.crc32(str(self).encode()) or 1

    def _prepare_delay(self, port: Interface, hooks: tuple[Hook, ...], undo: ExitStack) -> None:
        """Send marked packets through a device that delays them."""
        node = port.node
        if "prerouting" in hooks:
            raise InputError(f"fault {self}: only packets that a switch sends can be delayed, not received ones")
        device = f"hold-{self._mark:x}"
        node.use("ip", "link", "add", device, "type", "ifb")
        undo.callback(node.run, "ip", "link", "delete", device)
        node.use("ip", "link", "set", device, "up")
        node.use("tc", "qdisc", "add", "dev", device, "root", "netem", "delay", f"{self.delay * 1e6:g}us")
        port.add_clsact()
        at = ("dev", port.name, "egress", "protocol", "all", "pref", "7", "handle", str(self._mark), "fw")
        undo.callback(node.run, "tc", "filter", "delete", *at)
        redirect = ("action", "mirred", "egress", "redirect", "dev", device)
        node.use("tc", "filter", "add", *at, *redirect)
