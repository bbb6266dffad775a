"""The programs that a container's root has, whose links lead nowhere else."""

from pathlib import Path

import pytest

from testbed.lab.docker.client import program_in


@pytest.fixture
def root(tmp_path: Path) -> Path:
    top = tmp_path / "root"
    for name in ("usr/bin/tool", "opt/own"):
        (top / name).parent.mkdir(parents=True)
        (top / name).write_text("")
        (top / name).chmod(0o755)
    (top / "bin").symlink_to("usr/bin")
    (top / "usr/bin/text").write_text("")
    (top / "usr/bin/absolute").symlink_to("/opt/own")
    (top / "usr/bin/outside").symlink_to("../../../../../outside")
    (top / "usr/bin/loop").symlink_to("loop")
    (tmp_path / "outside").write_text("")
    (tmp_path / "outside").chmod(0o755)
    return top


@pytest.mark.parametrize(
    ("program", "path"),
    [
        ("tool", "/bin/tool"),
        ("absolute", "/bin/absolute"),
        ("/opt/own", "/opt/own"),
        ("own", None),
        ("text", None),
        ("/usr", None),
        ("outside", None),
        ("loop", None),
        ("/nowhere/tool", None),
    ],
)
def test_a_program_is_looked_for_in_the_containers_root(root: Path, program: str, path: str | None) -> None:
    assert program_in(root, program, "/sbin:/bin") == path


def test_a_root_that_is_a_link_is_taken_as_it_is(root: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(root)
    assert program_in(tmp_path / "link", "tool", "/bin") == "/bin/tool"
    assert program_in(tmp_path / "link", "../usr/bin/tool", "/bin") == "/../usr/bin/tool"
