"""What a block of system calls leaves: no descriptor, and an error that says what failed."""

import os

import pytest

from testbed.errors import TestbedError
from testbed.kernel.syscalls import closing_fd, explained


def test_a_descriptor_is_closed_with_its_block_also_when_that_fails() -> None:
    handle = os.open(os.devnull, os.O_RDONLY)
    with pytest.raises(KeyError), closing_fd(handle):
        raise KeyError
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(handle)


def test_a_failed_call_is_explained_by_what_was_tried_and_the_kernels_reason() -> None:
    with pytest.raises(TestbedError) as caught, explained("mount /data"):
        os.stat("/no/such/file")
    assert str(caught.value) == "mount /data: No such file or directory"
    assert isinstance(caught.value.__cause__, FileNotFoundError)


def test_other_errors_pass_as_they_are() -> None:
    with pytest.raises(ValueError, match="kept"), explained("mount /data"):
        raise ValueError("kept")
