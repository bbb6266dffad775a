from collections.abc import Iterator

import pytest
from wire_lab import Wire


@pytest.fixture
def wire(request: pytest.FixtureRequest) -> Iterator[Wire]:
    with Wire(exclusive=getattr(request, "param", "shared") == "exclusive") as wire:
        yield wire
