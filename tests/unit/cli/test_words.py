"""Numbers and foreign text as people read them."""

import pytest

from testbed.cli.words import clock, duration, plain, plain_lines, size

DAY_S = 86400


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (3, "3 s"),
        (0.0, "0 s"),
        (3.0, "3.00 s"),
        (12e-6, "12 µs"),
        (0.9994e-3, "999 µs"),
        (0.9996e-3, "1 ms"),
        (0.085, "85 ms"),
        (0.9994, "999 ms"),
        (0.9996, "1.00 s"),
        (1.24, "1.24 s"),
        (59.994, "59.99 s"),
        (59.996, "1 min 00 s"),
        (25 * 60 + 3, "25 min 03 s"),
        (3599.4, "59 min 59 s"),
        (3599.6, "1 h 00 min 00 s"),
        (4 * 3600 + 3, "4 h 00 min 03 s"),
        (DAY_S - 0.4, "1 d 00 h 00 min"),
        (7 * DAY_S + 59, "7 d 00 h 00 min"),
    ],
)
def test_a_duration_has_the_unit_people_would_use(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("nanoseconds", "text"),
    [
        (0, "0:00:00.000"),
        (999_999, "0:00:00.000"),
        (1_240_000_000, "0:00:01.240"),
        (59_999_999_999, "0:00:59.999"),
        ((4 * 3600 + 3) * 10**9 + 124_000_000, "4:00:03.124"),
        (7 * DAY_S * 10**9, "168:00:00.000"),
    ],
)
def test_a_clock_counts_hours_and_never_rounds_up(nanoseconds: int, text: str) -> None:
    assert clock(nanoseconds) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (9_940, "9.9 kB"),
        (9_960_000, "10 MB"),
        (12_345, "12 kB"),
        (999_400, "999 kB"),
        (999_999, "1.0 MB"),
        (250_000_000, "250 MB"),
        (999_600_000, "1.0 GB"),
        (1_300_000_000, "1.3 GB"),
        (40_000_000_000, "40 GB"),
    ],
)
def test_a_size_has_at_most_three_digits(count: int, text: str) -> None:
    assert size(count) == text


@pytest.mark.parametrize("code", [*range(0x20), *range(0x7F, 0xA0), 0x200B, 0x2028, 0x202E, 0x2066, 0xFEFF])
def test_a_character_that_a_terminal_obeys_becomes_a_space(code: int) -> None:
    assert plain(f"a{chr(code)}b") == "a b"


def test_a_lone_surrogate_becomes_a_space_so_that_it_can_be_written() -> None:
    assert plain(b"\xff!".decode(errors="surrogateescape")) == " !"


def test_plain_text_of_any_language_stays() -> None:
    assert plain("µs, 4 h → Zürich 网络 ✓") == "µs, 4 h → Zürich 网络 ✓"
    assert plain(16) == "16"


def test_plain_lines_keeps_lines_and_spreads_tabs() -> None:
    assert plain_lines("a\tb\x1b[31m\n\r\nc") == "a       b [31m\n\nc"
