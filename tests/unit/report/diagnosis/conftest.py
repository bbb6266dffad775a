from pathlib import Path

import pytest
from diagnosis_runs import Builder


@pytest.fixture
def run(tmp_path: Path) -> Builder:
    return Builder(tmp_path / "run" / "variant")
