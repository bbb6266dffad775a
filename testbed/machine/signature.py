"""Signatures of publishers, by openssl: with Ed25519, ECDSA (as cosign has them) and RSA keys in PEM."""

import subprocess
from pathlib import Path

from testbed.errors import InputError, UnsupportedError
from testbed.machine import processes


def sign(data: bytes, key: Path) -> bytes:
    """Return the signature with a private key; openssl asks for its passphrase at the terminal."""
    with processes.scratch() as work:
        (work / "data").write_bytes(data)
        done = _openssl("pkeyutl", "-sign", "-rawin", "-inkey", key, "-in", work / "data", "-out", work / "signature")
        if done.returncode:
            raise InputError("openssl cannot sign with this key", where=str(key), hint=_said(done))
        return (work / "signature").read_bytes()


def verify(data: bytes, signature: bytes, key: Path) -> bool:
    """Return True if `signature` of `data` is by the owner of the public `key`."""
    readable = _openssl("pkey", "-pubin", "-in", key, "-noout")
    if readable.returncode:
        raise InputError("openssl finds no public key in it", where=str(key), hint=_said(readable))
    with processes.scratch() as work:
        (work / "data").write_bytes(data)
        (work / "signature").write_bytes(signature)
        signed = ("-in", work / "data", "-sigfile", work / "signature")
        return _openssl("pkeyutl", "-verify", "-rawin", "-pubin", "-inkey", key, *signed).returncode == 0


def _openssl(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(["openssl", *map(str, arguments)], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        hint = "Run: sudo apt-get install openssl"
        raise UnsupportedError("signatures need openssl, which is not installed", hint=hint) from None


def _said(done: subprocess.CompletedProcess[str]) -> str:
    return f"It says: {done.stderr.strip().splitlines()[0]}" if done.stderr.strip() else "Its exit status is not 0."
