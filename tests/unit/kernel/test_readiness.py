"""Files become readable or time is over, whatever their descriptors are."""

import os
import resource
import signal
import time

import pytest

from testbed.kernel.syscalls import readable

HIGH = 1500
"""More than select() takes."""


@pytest.fixture
def pipe():
    ends = os.pipe()
    yield ends
    for end in ends:
        os.close(end)


def test_a_file_is_readable_when_something_is_in_it(pipe):
    near, far = pipe
    assert not readable([near], 0)
    os.write(far, b"x")
    assert readable([near], 10)


def test_time_passes_in_fractions_of_a_millisecond(pipe):
    began = time.monotonic()
    assert not readable([pipe[0]], 0.0025)
    assert 0.0025 <= time.monotonic() - began < 0.5


def test_descriptors_may_be_high(pipe):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, HIGH + 1), hard))
    os.dup2(pipe[0], HIGH)
    try:
        os.write(pipe[1], b"x")
        assert readable([HIGH], 0)
    finally:
        os.close(HIGH)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_signal_does_not_end_the_wait(pipe):
    heard = []
    before = signal.signal(signal.SIGALRM, lambda *_: heard.append(os.write(pipe[1], b"x")))
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.01)
        assert readable([pipe[0]], 10)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert heard == [1]
