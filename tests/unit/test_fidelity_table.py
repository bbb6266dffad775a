"""docs/fidelity.md has the table of published results, as `make fidelity` measures it with the code as it is."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

TOP = Path(__file__).parents[2]
PAGE = TOP / "docs" / "fidelity.md"
PROGRAM = TOP / "tests" / "fidelity"
LIST = "from experiments import EXPERIMENTS; print(*(experiment.id for experiment in EXPERIMENTS))"
BLOCK = re.compile(r"<!-- published results: make fidelity -->\n(.*?)<!-- /published results -->", re.DOTALL)
LEAST = 20
"""Results that are compared."""
PLACE = re.compile(r"\b(section|figures?|table|abstract|evaluation|press release)\b")


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"fidelity_{name}", PROGRAM / f"{name}.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


rows, made_from = load("rows"), load("made_from")


def block() -> str:
    (found,) = BLOCK.findall(PAGE.read_text().partition("\n## Published results\n")[2])
    return str(found)


def table() -> list[dict[str, str]]:
    head, _, *lines = block().partition("\n\n")[0].splitlines()
    names = cells(head)
    return [dict(zip(names, cells(line), strict=True)) for line in lines]


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.removeprefix("| ").removesuffix(" |").split(" | ")]


def test_it_has_each_experiment_in_its_order() -> None:
    listed = subprocess.run([sys.executable, "-c", LIST], cwd=PROGRAM, capture_output=True, text=True, check=True)
    assert list(dict.fromkeys(row["Id"] for row in table())) == listed.stdout.split()


def test_what_does_not_agree_has_its_reason() -> None:
    assert [row["Result"] for row in table() if row["Agrees"] == "**no**" and not row["Note"]] == []


def test_what_is_published_is_printed_somewhere() -> None:
    assert [row["Result"] for row in table() if row["Published"] and not PLACE.search(row["Source"])] == []


def test_what_is_compared_has_something_to_be_compared_with() -> None:
    compared = [row for row in table() if row["Agrees"]]
    assert len(compared) >= LEAST
    assert [row["Result"] for row in compared if not (row["Published"] or row["Computed"])] == []


def test_it_is_of_the_code_as_it_is() -> None:
    recorded, now = made_from.recorded(block()), made_from.digests()
    newer = sorted(part for part in recorded.keys() | now.keys() if recorded.get(part) != now.get(part))
    assert not newer, f"the table of docs/fidelity.md is older than {', '.join(newer)}: run `make fidelity`"


def test_a_published_result_needs_its_place() -> None:
    with pytest.raises(TypeError):
        rows.Published(0.6)
    row = rows.number("a ratio", 0.5, published=rows.Published(0.6, "section 5.4"), computed=0.5)
    assert (row.published, row.place, row.computed, row.ours) == ("0.60", "section 5.4", "0.50", "0.50")
    assert (round(row.ratio, 2), row.agrees) == (0.83, False)


def test_words_are_not_compared_with() -> None:
    row = rows.number("a ratio", 0.5, published=rows.Published("less", "figure 3"), computed=0.5)
    assert (row.ratio, row.agrees) == (1, True)
    with pytest.raises(ValueError, match="nothing to compare with"):
        rows.number("a ratio", 0.5, published=rows.Published("less", "figure 3"))


def test_the_interval_of_a_mean_is_students() -> None:
    mean = rows.Mean.of([1, 2, 3, 4, 5])
    assert (mean.mean, round(mean.error, 3), round(mean.half, 2)) == (3, 0.707, 1.96)
    assert round(rows.student(119), 2) == 1.98
    assert rows.number("a mean", mean, computed=3).ours == "3.00 ± 1.96"


@pytest.mark.parametrize(("computed", "agrees"), [(3.4, True), (4.9, True), (5.0, False)])
def test_a_mean_agrees_within_its_interval_or_15_percent(computed: float, agrees: bool) -> None:
    assert rows.number("a mean", rows.Mean.of([1, 2, 3, 4, 5]), computed=computed).agrees is agrees


@pytest.mark.parametrize(("computed", "agrees"), [(103, True), (104, False)])
def test_a_mean_of_many_draws_agrees_within_three_errors(computed: float, agrees: bool) -> None:
    mean = rows.Mean(100, 1, 2)
    assert rows.number("a mean", mean, computed=computed, strict=True).agrees is agrees


def test_means_have_intervals_of_their_inverse_and_ratio() -> None:
    mean = rows.Mean(10, 0.1, 0.2)
    assert mean.inverse(5) == pytest.approx((0.5, 0.005, 0.01))
    assert mean.over(rows.Mean(5, 0.05, 0.1)) == pytest.approx((2, 0.02 * 2**0.5, 0.04 * 2**0.5))


def test_a_note_is_the_reason_only_of_what_does_not_agree() -> None:
    near, far = (rows.number("", 1, computed=value, why="a note", known="a reason") for value in (1, 2))
    assert (near.note, far.note) == ("a note", "a reason")


@pytest.mark.parametrize(
    ("name", "before", "same", "other"),
    [
        ("a.py", "x = 1\ndef f():\n    return x\n", '"""Text."""\n\nx = 1  # one\ndef f():\n    return x\n', "x = 2\n"),
        ("a.py", "if x:\n    f()\n    g()\n", "if x:\n    # why\n    f()\n    g()\n", "if x:\n    f()\ng()\n"),
        ("a.yml", "a: 1\n", "# why\na:   1\n", "a: 2\n"),
        ("a.h", "int a;\n", "/* why\n * so */\nint   a; // one\n", "int b;\n"),
    ],
)
def test_only_code_makes_a_digest(name: str, before: str, same: str, other: str, tmp_path: Path) -> None:
    def digest(text: str) -> str:
        (tmp_path / name).write_text(text)
        return str(made_from.digest(tmp_path, [name]))

    assert digest(before) == digest(same) != digest(other)


def test_a_part_without_files_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"made_from\.py"):
        made_from.digest(tmp_path, ["testbed/gone/*.py"])


def test_digests_are_read_from_the_table_that_has_them() -> None:
    found = {"the BPF programs": "0123456789abcdef", "NICs": "fedcba9876543210"}
    assert made_from.recorded(made_from.table(found)) == found
