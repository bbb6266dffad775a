"""The compiler that makes the objects of the BPF programs."""

import shutil
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def clang() -> str:
    needed = shutil.which("clang-16"), shutil.which("llvm-strip-16"), Path("/usr/include/bpf/bpf_helpers.h").exists()
    if not all(needed):
        pytest.skip("the compiler of the BPF programs is not here: apt-get install clang-16 llvm-16 libbpf-dev")
    return "clang-16"
