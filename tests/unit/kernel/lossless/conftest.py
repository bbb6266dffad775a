"""Parts of the BPF programs as libraries of this machine."""

import subprocess
from pathlib import Path

import pytest

from testbed.kernel.lossless.layout import HEADER

SOURCES = HEADER.parent


@pytest.fixture(scope="session")
def mmu(clang: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """bpf/mmu.h as a library of this machine's."""
    return built(clang, "mmu.c", tmp_path_factory)


@pytest.fixture(scope="session")
def rates(clang: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """bpf/dcqcn.h and bpf/timely.h as one."""
    return built(clang, "rates.c", tmp_path_factory)


def built(clang: str, name: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    library = tmp_path_factory.mktemp("library") / f"{name}.so"
    source = Path(__file__).with_name(name)
    subprocess.run([clang, "-O2", "-Wall", "-shared", "-fPIC", f"-I{SOURCES}", "-o", library, source], check=True)
    return library
