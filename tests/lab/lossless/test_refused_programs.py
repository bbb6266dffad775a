"""A kernel that does not take the programs: one message, and the verifier's last lines in the run directory."""

import struct
from pathlib import Path

import pytest

from testbed.errors import UnsupportedError
from testbed.kernel.lossless import ports
from testbed.lab import Lab
from testbed.lab.lossless_network import LOG

FILE = """
name: refused
topology:
  lossless: {dscp: 26, priority: 3}
  nodes:
    leaf: {kind: switch, vlans: {10: 10.0.10.1/24}}
    a: {kind: host}
  links:
    - {endpoints: ["leaf:e1", "a:eth1"], vlan: 10}
"""
EXIT = struct.pack("<Q", 0x95)


def section(elf: bytes, name: str) -> int:
    """Where the contents of a section of a 64-bit ELF file begin."""
    (headers,) = struct.unpack_from("<Q", elf, 40)
    size, number, names = struct.unpack_from("<HHH", elf, 58)
    found = [struct.unpack_from("<I4xQQQQ", elf, headers + each * size) for each in range(number)]
    texts = elf[found[names][3] :]
    return next(one[3] for one in found if texts[one[0] :].split(b"\0", 1)[0] == name.encode())


@pytest.mark.topology(FILE)
def test_what_the_verifier_says_is_in_the_run_directory(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that returns nothing."""
    code = bytearray(ports.OBJECT.read_bytes())
    begin = section(code, "tcx/egress")
    code[begin : begin + len(EXIT)] = EXIT
    broken = tmp_path / "broken.o"
    broken.write_bytes(code)
    monkeypatch.setattr(ports, "OBJECT", broken)
    monkeypatch.setattr(ports, "_loaded", [])
    assert lab.lossless
    with pytest.raises(UnsupportedError, match=r"rejects the .* of broken\.o: libbpf: prog 'waits_in_loopback'"):
        ports.Ports(1, 1, lab.file(LOG).write_text)
    assert "unreachable insn" in lab.file(LOG).read_text()
