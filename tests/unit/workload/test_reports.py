"""What is read out of the words of perftest and rping."""

import pytest

from testbed.errors import TestbedError
from testbed.workload.tools import error_in, figures_in

REPORT = """{
"test_info": {
"test": "Send_BW_Test"
},
"results": {
"MsgSize": 65536,
"n_iterations": 100,
"BW_peak": 64.54,
"BW_average": 64.53,
"MsgRate": 0.001033
}
}
"""


def test_figures_are_those_of_the_results() -> None:
    assert figures_in(REPORT) == {
        "MsgSize": 65536,
        "n_iterations": 100,
        "BW_peak": 64.54,
        "BW_average": 64.53,
        "MsgRate": 0.001033,
    }


@pytest.mark.parametrize("report", ["", "{", "[]", "{}", '{"results": []}', '{"results": {"BW_peak": "fast"}}'])
def test_a_report_without_figures_is_an_error(report: str) -> None:
    with pytest.raises(TestbedError, match="report of perftest cannot be read"):
        figures_in(report)


@pytest.mark.parametrize(
    ("output", "error"),
    [
        (" Completion with error at client\n Failed status 12: wr_id 0 syndrom 0x81\nscnt=128", "RETRY_EXC_ERR"),
        ("cma event RDMA_CM_EVENT_ADDR_ERROR, error -110\n", "RDMA_CM_EVENT_ADDR_ERROR"),
        ("\nFailed to modify QP 17 to RTR\n Unable to Connect\n-----\n", "Failed to modify QP 17 to RTR"),
        ("", "ended without a word"),
    ],
)
def test_the_reason_of_a_failure(output: str, error: str) -> None:
    assert error_in(output) == error
