"""Requests and what comes back survive the way, whatever is in them; what is none of them is one clear error."""

import dataclasses
import json
from types import NoneType
from typing import Any, get_args, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.errors import InputError, MachineError, TestbedError, UnsupportedError
from testbed.machine.jobs import Job, UnansweredError
from testbed.protocol import MESSAGE_BYTES, MESSAGE_DEPTH, live, messages, requests
from testbed.protocol.messages import Channel
from testbed.protocol.requests import KINDS, Request

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 63), 1 << 63) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
OBJECT = st.dictionaries(st.text(), JSON, max_size=3)
SCHEMA = requests.Schema()


def fields_of(kind: type[Request[Any]]) -> st.SearchStrategy[Request[Any]]:
    hints = get_type_hints(kind)
    special = {
        "settings": st.dictionaries(st.text(), st.text() if kind is requests.Describe else JSON),
        "lab": st.fixed_dictionaries({"topology": st.text(), "profiles": st.dictionaries(st.text(), OBJECT)}),
        "chosen": (st.none() if NoneType in get_args(hints.get("chosen")) else st.nothing())
        | st.fixed_dictionaries({"variant": st.text(), "settings": OBJECT, "without_faults": st.lists(st.integers())}),
        **dict.fromkeys(("parameters", "quality", "values"), st.dictionaries(st.text(), st.text())),
        "options": st.dictionaries(st.text(), st.integers() | st.text() | st.booleans()),
    }
    names = [field.name for field in dataclasses.fields(kind)]
    return st.builds(kind, **{name: special.get(name, st.from_type(hints[name])) for name in names})


assert live.Choose in KINDS.values(), "its module adds the requests of labs that live"
REQUESTS = st.one_of(*map(fields_of, KINDS.values()))
ERRORS = st.builds(
    lambda kind, **parts: kind(**parts),
    st.sampled_from([TestbedError, InputError, UnsupportedError, MachineError]),
    message=st.text(),
    where=st.text(),
    hint=st.text(),
    also=st.lists(st.tuples(st.text(), st.text()), max_size=3),
)


def across(message: Any) -> Any:
    """As it arrives."""
    return json.loads(json.dumps(message))


def job_of(*asked: Request[Any], reports: list[Any] | None = None) -> Job[Any]:
    return Job(asked, limit_s=60, listen=(reports if reports is not None else []).append)


def channel_to(job: Job[Any], number: int = 0) -> Channel:
    """The inside's end of a channel whose other end is the job."""
    return Channel(number, lambda line, _: job.receive(messages.load(line)))


@given(REQUESTS, st.integers(0, 1 << 31))
def test_a_request_arrives_as_it_was_sent(request: Request[Any], number: int) -> None:
    message = across(messages.ask(number, request))
    assert message["id"] == number
    assert across(messages.ask(number, messages.parse(message))) == message or "NaN" in json.dumps(message)


@pytest.mark.parametrize("version", [0, 2, "1", None])
def test_a_request_of_another_version_is_refused(version: object) -> None:
    message = {**messages.ask(0, SCHEMA), "protocol": version}
    with pytest.raises(InputError, match=f"has version {version} of the protocol, but this machine has version 1"):
        messages.parse(message)


@pytest.mark.parametrize(
    "request_",
    [
        None,
        {},
        {"kind": "dance"},
        {"kind": "Plan"},
        {"kind": "Plan", "file": 3},
        {"kind": "Plan", "file": "x", "style": "svg"},
        {"kind": "Cni", "command": "eat", "conflist": "x"},
    ],
)
def test_what_is_no_request_is_refused(request_: object) -> None:
    """A key of another kind, among it."""
    with pytest.raises(TestbedError, match="the machine does not know this request"):
        messages.parse({"protocol": messages.VERSION, "id": 0, "request": request_})


@given(JSON.map(lambda value: {"value": value}))
def test_a_report_arrives_as_it_was_sent(record: dict[str, Any]) -> None:
    reports: list[Any] = []
    channel_to(job_of(SCHEMA, reports=reports)).report(record)
    assert reports == [record]


@given(st.dictionaries(st.text(), JSON, max_size=3))
def test_a_response_arrives_as_it_was_sent(response: dict[str, Any]) -> None:
    job = job_of(SCHEMA)
    channel_to(job).respond(response)
    assert job.answer() == response


@given(ERRORS)
def test_an_error_arrives_as_it_was_raised(error: TestbedError) -> None:
    job = job_of(SCHEMA)
    channel_to(job).fail(error)
    with pytest.raises(TestbedError) as raised:
        job.answer()
    found = raised.value
    assert (found.message, found.where, found.hint) == (error.message, error.where, error.hint)
    assert (found.also, found.exit_status) == (error.also, error.exit_status)


def test_the_places_of_an_error_are_written_as_the_user_s() -> None:
    job = job_of(SCHEMA)
    channel_to(job).fail(InputError("no", where="x:1", also=[("", "why"), ("y:2", "no")]))
    with pytest.raises(TestbedError) as raised:
        job.answer(place=lambda inner: inner and f"mine/{inner}")
    assert (raised.value.where, raised.value.also) == ("mine/x:1", (("", "why"), ("mine/y:2", "no")))


@given(st.permutations(range(4)))
def test_answers_come_in_any_order(order: list[int]) -> None:
    job = job_of(*[SCHEMA] * 4)
    for number in order:
        assert number in job.unanswered
        channel_to(job, number).respond({"number": number})
    assert job.unanswered == []
    assert [job.answer(number) for number in range(4)] == [{"number": number} for number in range(4)]


def test_a_request_without_an_answer_is_told_from_one_that_crashed() -> None:
    job = job_of(*[SCHEMA] * 3)
    job.receive(messages.load(messages.ended(1, b"the reason\n")))
    channel_to(job, 2).crash("Traceback …\n")
    with pytest.raises(UnansweredError, match=r"^x: its code ended the process before testbed had finished$"):
        job.answer(0, about="x")
    with pytest.raises(
        UnansweredError, match=r"^x: its code ended the process before testbed had finished:\nthe reason$"
    ):
        job.answer(1, about="x")
    with pytest.raises(TestbedError, match=r"^x: Traceback …$"):
        job.answer(2, about="x")


def test_a_crash_of_the_whole_job_counts_more_than_an_answer() -> None:
    job = job_of(SCHEMA)
    channel_to(job).respond({})
    job.receive(messages.load(messages.crash("still running after 60 virtual seconds")))
    with pytest.raises(TestbedError, match="still running after 60"):
        job.answer()


def test_of_what_an_ended_process_wrote_the_end_is_shown() -> None:
    line = messages.ended(0, b"x" * MESSAGE_BYTES + b"the reason")
    assert len(line) <= messages.LAST_BYTES + 100
    assert messages.load(line)["ended"].endswith("the reason")


@pytest.mark.parametrize(
    "message",
    [
        {},
        {"id": 0},
        {"id": "0", "response": {}},
        {"id": 1, "report": {}},
        {"id": -1, "report": {}},
        {"id": 0, "report": []},
        {"report": {}},
        {"crash": 3},
        {"event": {}},
    ],
)
def test_what_is_no_message_is_one_error(message: dict[str, Any]) -> None:
    with pytest.raises(MachineError, match="a line of progress is not a message: "):
        job_of(SCHEMA).receive(message)


def nested(levels: int) -> bytes:
    return b'{"a":' * levels + b"1" + b"}" * levels


def test_a_message_has_a_greatest_depth() -> None:
    assert messages.load(nested(MESSAGE_DEPTH))
    for line in nested(MESSAGE_DEPTH + 1), nested(100_000), b'{"a": ' + b"[" * 60 + b"]" * 60 + b"}":
        with pytest.raises(MachineError, match="a line of progress is damaged"):
            messages.load(line)


def test_brackets_in_a_text_have_no_depth() -> None:
    assert messages.load(json.dumps({"write": "[" * 1000}).encode())


def test_a_message_has_a_greatest_size() -> None:
    small, large = "x" * (MESSAGE_BYTES - 100), "x" * MESSAGE_BYTES
    with pytest.raises(MachineError, match="a line of progress is damaged"):
        messages.load(json.dumps({"write": large}).encode())
    reports: list[Any] = []
    job = job_of(SCHEMA, reports=reports)
    for text in large, small:
        channel_to(job).report({"write": text})
    assert reports == [{"write": small}]
    with pytest.raises(TestbedError, match="the response has 16 MiB, of at most 16"):
        channel_to(job).respond({"text": large})
    assert job.unanswered == [0]
