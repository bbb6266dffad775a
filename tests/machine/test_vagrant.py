"""The Vagrantfile's provisioning, in a root of the box's distribution: the box itself needs a hypervisor."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from elsewhere import USER, make_root, run_in

CHECKOUT = Path(__file__).parents[2]
SUITE = "trixie"
OWN = "/etc/resolv.conf", "/etc/hosts", "/etc/ssl/certs/ca-certificates.crt", "/etc/pip.conf"
"""How this machine reaches the network."""
RELEASE = 7, 1
NEEDED = "root", "tools", "pyverbs", "CNI plugins"
"""What `testbed doctor --machine local` has a line for, but for the kernel, which is this machine's."""
pytestmark = pytest.mark.slow


@pytest.fixture
def box(tmp_path):
    """The root of a box: a user who may use sudo, and this checkout in /vagrant."""
    root = tmp_path / "root"
    make_root(SUITE, ("ca-certificates", "sudo"), root)
    for path in filter(os.path.exists, OWN):
        shutil.copy(path, f"{root}{path}")
    dumped = subprocess.run(["apt-config", "dump"], capture_output=True, text=True, check=True).stdout
    acquire = [line for line in dumped.splitlines() if line.startswith("Acquire::")]
    (root / "etc/apt/apt.conf.d/99here").write_text("\n".join(acquire) + "\n")
    (root / "usr/sbin/policy-rc.d").write_text("#!/bin/sh\nexit 101\n")  # no service is started in a mere root
    (root / "usr/sbin/policy-rc.d").chmod(0o755)
    (root / "etc/sudoers.d/vagrant").write_text("vagrant ALL=(ALL) NOPASSWD: ALL\n")
    subprocess.run(["chroot", root, "useradd", "--create-home", f"--uid={USER}", "vagrant"], check=True)
    shutil.copytree(CHECKOUT, root / "vagrant", ignore=shutil.ignore_patterns(".venv", "build", "runs", "__pycache__"))
    subprocess.run(["chown", "--recursive", "--no-dereference", f"{USER}:{USER}", root / "vagrant"], check=True)

    def call(*words, user=0):
        home = "/home/vagrant" if user else "/root"
        done = run_in(root, *words, user=user, home=home, directory="/vagrant")
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return root, call


def test_provisioning_makes_a_vm_for_labs_on_its_own_kernel(box):
    root, call = box
    file = (CHECKOUT / "Vagrantfile").read_text()
    [script] = re.findall(r'"kernel", type: "shell", path: "(.*?)"', file)
    [set_up] = re.findall(r'"testbed", type: "shell", inline: "(.*?)"', file)
    call("sh", script)
    [module] = root.glob("usr/lib/modules/*/kernel/drivers/infiniband/sw/rxe/rdma_rxe.ko*")
    release = module.relative_to(root).parts[3]
    assert tuple(map(int, re.findall(r"\d+", release)[:2])) >= RELEASE
    call("sh", "-c", set_up, user=USER)
    found = json.loads(call("sh", "-c", ".venv/bin/testbed doctor --machine local --json || true"))["local"]
    states = {line["subject"]: line["state"] for line in found}
    assert {subject: states[subject] for subject in NEEDED} == dict.fromkeys(NEEDED, "works")
    call("sh", "-c", set_up, user=USER)  # there is nothing left to do


def test_the_dev_container_s_commands_leave_only_the_image_to_be_built(box):
    _, call = box
    given = json.loads((CHECKOUT / ".devcontainer/devcontainer.json").read_text())
    assert given["image"] == f"debian:{SUITE}"
    call("sh", "-c", given["onCreateCommand"])
    set_up, build = given["postCreateCommand"].split(" && ")
    assert build == ".venv/bin/testbed image build"
    call("sh", "-c", set_up)
    found = json.loads(call("sh", "-c", ".venv/bin/testbed doctor --json || true"))["vm"]
    states = {line["subject"]: line["state"] for line in found}
    assert (states["image tools"], states["image"]) == ("works", "note")
