"""Files that ship with testbed: in a checkout beside the package, once installed in its directory `shipped`."""

from pathlib import Path

PACKAGE = Path(__file__).parents[1]
INSTALLED = PACKAGE / "shipped"
PLACE = INSTALLED if INSTALLED.is_dir() else PACKAGE.parent

SCENARIOS = PLACE / "scenarios"
DOCS = PLACE / "docs"
LOCK = PLACE / "requirements.lock"
