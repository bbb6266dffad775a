"""The address at which the metrics of a lab are scraped, without the lab."""

import asyncio
import contextlib
import socket
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from testbed.errors import InputError, TestbedError
from testbed.machine.live import endpoint
from testbed.machine.live.endpoint import Endpoint
from testbed.protocol import Event
from testbed.protocol.live import Metrics
from testbed.protocol.requests import Request

EMPTY: dict[str, Any] = {
    "name": "pair",
    "now_s": 1.5,
    "nodes": [],
    "faults": [],
    "counters": {},
    "tables": {},
    "jobs": [],
    "missing": [],
}
Answer = Callable[[int], dict[str, Any] | None]


class Lab:
    """What is asked of a lab, and its answers: messages without their number."""

    def __init__(self, answer: Answer = lambda _: None) -> None:
        self.asked: list[Request[Any]] = []
        self._answer = answer
        self.endpoint: Endpoint
        self.address = ""

    def ask(self, request: Request[Any]) -> int:
        self.asked.append(request)
        number = len(self.asked)
        if answer := self._answer(number):
            asyncio.get_running_loop().call_soon(self.endpoint.receive, {"id": number, **answer})
        return number

    async def scraped(self) -> tuple[int, str]:
        return await asyncio.to_thread(get, self.address)


def get(address: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


@contextlib.asynccontextmanager
async def served(lab: Lab, *, follows: bool) -> AsyncIterator[Lab]:
    listening = endpoint.listen(0)
    lab.address = endpoint.address(listening)
    lab.endpoint = Endpoint(listening, lab.ask, follows=follows)
    try:
        yield lab
    finally:
        lab.endpoint.close()


def test_on_the_real_clock_each_scrape_asks_the_lab() -> None:
    async def scrape() -> None:
        async with served(Lab(lambda number: {"response": {**EMPTY, "now_s": float(number)}}), follows=False) as lab:
            lab.endpoint.begin()
            assert lab.asked == []
            for number in 1, 2:
                status, text = await lab.scraped()
                assert status == 200
                assert f"testbed_time_seconds_total {number}.0" in text
            assert lab.asked == [Metrics(), Metrics()]

    asyncio.run(scrape())


def test_on_the_virtual_clock_it_gets_what_the_lab_reported_last() -> None:
    async def scrape() -> None:
        async with served(Lab(), follows=True) as lab:
            lab.endpoint.begin()
            for now_s in 2.0, 3.0:
                assert lab.endpoint.receive({"id": 1, "report": {"measured": {**EMPTY, "now_s": now_s}}})
            for _ in range(3):
                assert "testbed_time_seconds_total 3.0" in (await lab.scraped())[1]
            assert lab.asked == [Metrics(follow=True)], "no scrape came to the lab"

    asyncio.run(scrape())


def test_a_scrape_right_after_a_stop_waits_for_its_values() -> None:
    async def scrape() -> None:
        async with served(Lab(), follows=True) as lab:
            lab.endpoint.begin()
            report = {"id": 1, "report": {"measured": {**EMPTY, "now_s": 4.0}}}
            asyncio.get_running_loop().call_later(0.3, lab.endpoint.receive, report)
            status, text = await lab.scraped()
            assert status == 200
            assert "testbed_time_seconds_total 4.0" in text

    asyncio.run(scrape())


def event(t_s: float, kind: str, **data: Any) -> Event:
    return {"t": round(t_s * 1e9), "kind": kind, "node": "", "text": "", "data": data}


def test_while_a_run_goes_on_a_scrape_has_what_its_events_tell_of_jobs() -> None:
    async def scrape() -> None:
        async with served(Lab(), follows=True) as lab:
            lab.endpoint.begin()
            lab.endpoint.receive({"id": 1, "report": {"measured": {**EMPTY, "now_s": 1.0}}})
            lab.endpoint.go_on()
            assert (await lab.scraped())[0] == 503, "what was measured at the stop is old"
            lab.endpoint.event(event(2, "job", name="job", ranks=2, hosts=["h1", "h2"], devices=["d1", "d2"]))
            lab.endpoint.event(event(3, "job.step", name="job", number=1, seconds=[0.5, 0.25]))
            lab.endpoint.event(event(9, "job.stalled", name="job", since_ns=4, waiting=[], queue_pairs={}))
            text = (await lab.scraped())[1]
            for line in (
                "testbed_time_seconds_total 9.0",
                'testbed_job_running{job_name="job"} 1.0',
                'testbed_job_stalled{job_name="job"} 1.0',
                'testbed_job_step_seconds{job_name="job"} 0.5',
                'testbed_rank_step_seconds{job_name="job",node="h2",pod="",rank="1"} 0.25',
            ):
                assert line in text
            lab.endpoint.event(event(10, "job.resumed", name="job"))
            lab.endpoint.event(event(11, "job", name="job", ok=False))
            text = (await lab.scraped())[1]
            assert 'testbed_job_stalled{job_name="job"} 0.0' in text
            assert 'testbed_job_failed{job_name="job"} 1.0' in text

    asyncio.run(scrape())


def test_what_the_lab_sends_to_others_is_left_to_them() -> None:
    async def take() -> None:
        async with served(Lab(), follows=True) as lab:
            lab.endpoint.begin()
            assert not lab.endpoint.receive({"id": 7, "response": None})
            assert not lab.endpoint.receive({"id": 7, "report": {"measured": EMPTY}})

    asyncio.run(take())


def refuse(_: int) -> dict[str, Any]:
    raise TestbedError("lab pair is being taken down")


FAILURE = {"message": "the agent has gone", "where": "", "hint": "", "also": [], "status": 1}


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (refuse, "lab pair is being taken down"),
        (lambda _: {"error": FAILURE}, "the agent has gone"),
        (lambda _: {"crash": "Traceback: ZeroDivisionError"}, "ZeroDivisionError"),
        (lambda _: {"response": {**EMPTY, "nodes": 7}}, "the measurement is damaged: nodes"),
    ],
    ids=["ending", "refused", "crashed", "damaged"],
)
def test_a_scrape_that_gets_no_answer_fails_with_the_reason_and_the_next_one_is_served(
    answer: Answer, text: str
) -> None:
    async def scrape() -> None:
        answers = {1: answer, 2: lambda _: {"response": EMPTY}}
        async with served(Lab(lambda number: answers[number](number)), follows=False) as lab:
            status, body = await lab.scraped()
            assert (status, text in body) == (503, True), body
            assert (await lab.scraped())[0] == 200

    asyncio.run(scrape())


def test_before_the_lab_is_up_there_is_nothing_to_scrape() -> None:
    async def scrape() -> None:
        async with served(Lab(), follows=True) as lab:
            status, body = await lab.scraped()
            assert (status, "the lab is being made" in body) == (503, True)

    asyncio.run(scrape())


def test_a_lab_that_does_not_answer_in_time_fails_the_scrape(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "ANSWER_S", 0.05)

    async def scrape() -> None:
        async with served(Lab(), follows=False) as lab:
            status, body = await lab.scraped()
            assert (status, "did not answer" in body) == (503, True)

    asyncio.run(scrape())


def test_somebody_who_connects_and_says_nothing_keeps_nobody_waiting() -> None:
    async def scrape() -> None:
        async with served(Lab(lambda _: {"response": EMPTY}), follows=False) as lab:
            host, _, port = lab.address.partition(":")
            with socket.create_connection((host, int(port))):
                assert (await lab.scraped())[0] == 200

    asyncio.run(scrape())


def test_when_it_is_closed_the_port_is_free() -> None:
    async def serve() -> int:
        async with served(Lab(lambda _: {"response": EMPTY}), follows=False) as lab:
            await lab.scraped()
            return int(lab.address.partition(":")[2])

    port = asyncio.run(serve())
    endpoint.listen(port).close()


def test_a_port_that_is_taken_is_a_clear_error() -> None:
    with socket.create_server((endpoint.LOOPBACK, 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(InputError, match=f"at 127.0.0.1:{port}: Address already in use") as error:
            endpoint.listen(port)
    assert "--metrics 0" in str(error.value)
