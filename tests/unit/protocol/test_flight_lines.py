"""The lines of flight.jsonl."""

import json
from typing import Any

import pytest

from testbed.protocol import flight

CALL = flight.Call(3, "n3", 214, "Allreduce", "0-3", 207, 33280, None, 3310482211, None)


@pytest.mark.parametrize("call", [CALL, flight.Call(0, "n0", 215, "Recv", "0,2", 0, 8, 2, 10, 20)])
def test_a_line_is_read_as_the_call_that_was_written(call: flight.Call) -> None:
    assert flight.read(json.loads(json.dumps(call.json()))) == call


@pytest.mark.parametrize(
    "line", [None, [], {}, {**CALL.json(), "peer": "0"}, {**CALL.json(), "ended": 0.5}, {**CALL.json(), "host": None}]
)
def test_anything_else_is_refused(line: Any) -> None:
    with pytest.raises(ValueError, match="not a line of a flight record"):
        flight.read(line)
