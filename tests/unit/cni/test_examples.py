"""The examples of Spiderpool's documentation: each loads, or is refused with a message that names the reason."""

import re
from pathlib import Path

import pytest

from testbed.cni.objects.lab_objects import Cluster
from testbed.errors import InputError

REFUSED = "# Refused: "


EXAMPLES = [
    pytest.param(text, id=f"{file.stem}-{number}")
    for file in sorted((Path(__file__).parent / "examples").glob("*.yaml"))
    for number, text in enumerate(file.read_text().split("\n---\n"), 1)
]


@pytest.mark.parametrize("text", EXAMPLES)
def test_an_example_loads_or_its_message_says_why_not(tmp_path, text):
    file = tmp_path / "example.yaml"
    file.write_text(text)
    (expected,) = re.findall(f"^{REFUSED}(.*)$", text, re.MULTILINE) or [""]
    cluster = Cluster(tmp_path / "cluster" / "o", tmp_path, lambda *_, **__: None)
    if not expected:
        assert len(cluster.apply(file)) == 1
        return
    with pytest.raises(InputError) as said:
        cluster.apply(file)
    assert expected in str(said.value)
    assert said.value.where.startswith(f"{file}:")
