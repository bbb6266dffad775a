"""Streams: what a queue pair is given to do, and how several share."""

from types import SimpleNamespace

import pytest

from testbed.workload.write_streams import AHEAD, Stream, fairness


class FakeEnd:
    """An endpoint whose requests complete when the test says so."""

    def __init__(self) -> None:
        self.posted: list[int] = []
        self.over: dict[int, str] = {}

    def post_write(self, _: int) -> int:
        self.posted.append(len(self.posted))
        return self.posted[-1]

    def done(self, request: int) -> bool:
        return request in self.over

    def wait(self, request: int, within: float) -> SimpleNamespace:
        status = self.over.pop(request)
        return SimpleNamespace(status=status, ok=status == "SUCCESS")


def test_a_stream_is_kept_busy_and_counts_what_succeeded() -> None:
    end = FakeEnd()
    stream = Stream(end, 1000)  # type: ignore[arg-type]
    stream.feed()
    assert len(end.posted) == AHEAD
    end.over = {0: "SUCCESS", 1: "SUCCESS"}
    stream.feed()
    assert (stream.done_bytes, len(end.posted), stream.status) == (2000, AHEAD + 2, "SUCCESS")


def test_a_stream_has_as_many_messages_under_way_as_it_is_told() -> None:
    end = FakeEnd()
    Stream(end, 1000, ahead=7).feed()  # type: ignore[arg-type]
    assert len(end.posted) == 7


def test_a_stream_that_failed_says_how_and_posts_no_more() -> None:
    end = FakeEnd()
    stream = Stream(end, 1000)  # type: ignore[arg-type]
    stream.feed()
    end.over = {0: "RETRY_EXC_ERR", 1: "WR_FLUSH_ERR"}
    stream.feed()
    assert (stream.done_bytes, len(end.posted), stream.status) == (0, AHEAD, "RETRY_EXC_ERR")


def test_a_stream_finishes_what_is_posted_and_says_which_message_failed_first() -> None:
    end = FakeEnd()
    stream = Stream(end, 1000)  # type: ignore[arg-type]
    stream.post(3)
    end.over = {0: "SUCCESS", 1: "RETRY_EXC_ERR", 2: "WR_FLUSH_ERR"}
    assert stream.finish(within=1).status == "RETRY_EXC_ERR"
    assert (stream.done_bytes, stream.status) == (1000, "RETRY_EXC_ERR")


@pytest.mark.parametrize(
    ("rates", "index"), [([1, 1, 1, 1], 1), ([4, 0, 0, 0], 0.25), ([3, 1], 0.8), ([0, 0], 0), ([7], 1)]
)
def test_jains_index(rates: list[float], index: float) -> None:
    assert fairness(rates) == pytest.approx(index)
