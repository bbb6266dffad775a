"""The version of testbed."""

from pathlib import Path


def version() -> str:
    """Return the running code's version: that of a checkout, installed or not, else of the installed package."""
    project = Path(__file__).parents[1] / "pyproject.toml"
    if project.is_file():
        import tomllib

        return str(tomllib.loads(project.read_text())["project"]["version"])
    from importlib import metadata

    return metadata.version("testbed")
