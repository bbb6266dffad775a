"""Which testbed this is."""

from __future__ import annotations

from pathlib import Path


def version() -> str:
    """The version of the code that runs: a checkout's own, installed or not, else that of the installed package."""
    project = Path(__file__).parents[1] / "pyproject.toml"
    if project.is_file():
        import tomllib

        return str(tomllib.loads(project.read_text())["project"]["version"])
    from importlib import metadata

    return metadata.version("testbed")
