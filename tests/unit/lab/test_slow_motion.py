"""Warnings about times that do not fit the rates of their links."""

import pytest

from testbed.lab.slow_motion import Watched, pause_s, scale_warnings, timeout_warnings, watchdog_warnings


def test_a_pause_lasts_as_long_as_its_bits_take() -> None:
    assert pause_s(40_000_000_000) == pytest.approx(0.84e-3, rel=0.01)
    assert pause_s(100_000_000) == pytest.approx(0.336, rel=0.01)


def test_a_watchdog_that_polls_faster_than_pauses_are_sent_again_gets_a_warning() -> None:
    fast = Watched("leaf:e1", 24_000_000, 0.3, 0.2)
    [text] = watchdog_warnings([fast, fast._replace(port="leaf:e2"), Watched("leaf:e3", 1_000_000_000, 0.3, 0.2)])
    assert "leaf:e1: at 24 Mbit/s a pause is sent again after 0.699 s" in text
    assert "it polls every 0.699 s" in text
    assert watchdog_warnings([fast._replace(detect=0)]) == []
    assert len(watchdog_warnings([fast, fast._replace(port="spine:e1")])) == 2


def test_hosts_with_different_scales_get_a_warning() -> None:
    assert scale_warnings({"a": 400, "b": 400}) == []
    [text] = scale_warnings({"a": 400, "b": 100, "c": 400})
    assert text.endswith("100 of b; 400 of a, c")


def test_an_ack_timeout_that_is_shorter_than_a_pause_is_told_once_for_each_rate():
    """50 Mbit/s: 0.671 s; 4.096 us * 2^18 is 1.07 s, * 2^17 0.537 s."""
    [text] = timeout_warnings([(50_000_000, 14), (50_000_000, 14)])
    assert "at 50 Mbit/s one pause frame stops a link for 0.671 s" in text
    assert "an ACK timeout of 0.0671 s (14)" in text
    assert text.endswith("18 or more")
    assert len(timeout_warnings([(50_000_000, 14), (10_000_000, 14), (50_000_000, 16)])) == 3
