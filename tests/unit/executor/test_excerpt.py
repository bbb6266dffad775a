"""What came back from a command is kept as a text: its begin and its end, without what a terminal is told."""

import pytest

from testbed.executor.live.excerpt import MOST, Excerpt


def of(*pieces: bytes) -> str:
    excerpt = Excerpt()
    for piece in pieces:
        excerpt.add(piece)
    return excerpt.text()


@pytest.mark.parametrize("size", [1, 7, MOST, 10 * MOST])
def test_a_long_output_has_its_begin_and_its_end_however_it_comes(size: int) -> None:
    output = b"".join(b"%06d\n" % number for number in range(2000))
    text = of(*(output[at : at + size] for at in range(0, len(output), size)))
    left_out = len(output) - 2 * MOST
    begin, _, end = text.partition(f"\n… {left_out} bytes left out …\n")
    assert output.startswith(begin.encode())
    assert output.rstrip().endswith(end.encode())
    assert len(begin) == MOST
    assert MOST - 1 <= len(end) <= MOST


@pytest.mark.parametrize("length", [0, MOST, MOST + 1, 2 * MOST])
def test_what_fits_is_whole(length: int) -> None:
    assert of(b"x" * length) == "x" * length


def test_colours_titles_and_ends_of_lines_of_a_terminal_are_left_out() -> None:
    typed = b"\x1b[1;32mhost1\x1b[0m:~# ping\r\n\x1b]0;title\x07\x1b]2;other\x1b\\1 received\r\n\x1b[?2004h"
    assert of(typed) == "host1:~# ping\n1 received"


def test_bytes_that_are_no_text_are_shown_as_such() -> None:
    assert of(b"\xff\xfe ok\n") == "\ufffd\ufffd ok"
