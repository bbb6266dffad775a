from pathlib import Path

import pytest
from report_samples import make_run


@pytest.fixture
def run_directory(tmp_path: Path) -> Path:
    return make_run(tmp_path / "runs/tiny/20260101-120000")
