"""Pictures of traffic matrices."""

from xml.etree import ElementTree as Xml

from testbed.workload.matrix_picture import COLOURS, matrix_svg
from testbed.workload.parallelism import Model, Parallel, Training

SVG = "{http://www.w3.org/2000/svg}"
MODEL = Model(layers=4, hidden=64, sequence=64, vocabulary=128)


def test_a_picture_has_a_cell_for_each_pair_that_talks() -> None:
    training = Training(MODEL, Parallel(tensor=2, pipeline=2, data=2))
    root = Xml.fromstring(matrix_svg(training))  # noqa: S314, it is our own
    titles = [title.text or "" for title in root.iter(f"{SVG}title")]
    assert len(titles) == len(training.matrix())
    assert any(title.startswith("rank 0 to rank 1: tensor ") for title in titles)
    words = [text.text or "" for text in root.iter(f"{SVG}text")]
    assert any("57.1% of the pairs are silent" in line for line in words)
    assert [line.split()[0] for line in words if line.endswith("%") and line.split()[0] in COLOURS] == [
        "tensor",
        "data",
        "pipeline",
    ]


def test_a_picture_of_many_ranks_has_no_titles() -> None:
    root = Xml.fromstring(matrix_svg(Training(MODEL, Parallel(tensor=8, data=16))))  # noqa: S314, it is our own
    assert not list(root.iter(f"{SVG}title"))
