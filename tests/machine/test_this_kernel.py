"""`--machine local` in a machine that plays the user's VM, with testbed beside the tests as if it were installed."""

import importlib.util
import shutil
from pathlib import Path

import pytest

import testbed as package
from testbed.version import version

INSIDE = Path(__file__).parent / "this_kernel"
PACKAGES = ("click", "markdown_it", "mdurl", "qemu", "rich")
"""What the command needs beside what the image has; all of it is pure Python."""


@pytest.fixture
def the_users_vm(tmp_path: Path) -> Path:
    """The files of a machine on which testbed is installed."""
    vm, python = tmp_path / "vm", shutil.ignore_patterns("__pycache__")
    shutil.copytree(Path(package.__file__).parent, vm / "installed" / "testbed", ignore=python)
    metadata = vm / "installed" / "testbed.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text(f"Metadata-Version: 2.1\nName: testbed\nVersion: {version()}\n")
    for name in PACKAGES:
        [place] = importlib.util.find_spec(name).submodule_search_locations
        shutil.copytree(place, vm / "packages" / name, ignore=python)
    for name in ("lab", "nics"):
        shutil.copytree(INSIDE / name, vm / name, ignore=python)
    shutil.copy(INSIDE / "inside.py", vm / "test_this_kernel.py")
    for name in ("hardware", "managed"):
        shutil.copy(INSIDE / f"{name}.py", vm / f"test_{name}.py")
    return vm


def test_a_run_on_this_kernel_leaves_it_as_it_was(testbed, the_users_vm):
    files = the_users_vm / "test_this_kernel.py", the_users_vm / "test_hardware.py"
    done = testbed("pytest", *files, "--", "-x", "-m", "not slow")
    assert done.status == 0, done.out + done.err


@pytest.mark.slow
def test_its_commands_at_signals_leave_it_as_it_was(testbed, the_users_vm):
    done = testbed("pytest", the_users_vm / "test_this_kernel.py", "--", "-x", "-m", "slow")
    assert done.status == 0, done.out + done.err


@pytest.mark.slow
def test_systemd_and_network_manager_leave_labs_alone(testbed, the_users_vm):
    done = testbed("pytest", "--with", "network-manager,udev,dbus", the_users_vm / "test_managed.py")
    assert done.status == 0, done.out + done.err
