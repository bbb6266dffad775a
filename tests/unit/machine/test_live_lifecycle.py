"""Every input in every state of a lab that lives, and every moment for every stop of a run."""

import itertools

import pytest

from testbed.errors import InputError, TestbedError
from testbed.machine.live.lifecycle import (
    DEAD,
    DISCARDED,
    ENDING,
    OVER,
    RUNNING,
    STARTING,
    STAY,
    STOPPED,
    TRANSITIONS,
    UP,
    Input,
    Lifecycle,
    State,
)
from testbed.machine.live.stops import Act, Stop
from testbed.machine.moments import Moment

FINAL = {OVER, DISCARDED, DEAD}
CELLS = [*itertools.product(State, Input)]


def in_state(state: State) -> Lifecycle:
    life = Lifecycle("mine")
    life.state = state
    return life


def after(state: State, given: Input) -> State:
    """The state behind an input, which may be refused."""
    life = in_state(state)
    try:
        life.apply(given)
    except TestbedError:
        assert life.state is state, "what is refused changes nothing"
    return life.state


def reached_from(first: State, *inputs: Input) -> set[State]:
    found = {first}
    while more := {after(state, given) for state in found for given in inputs} - found:
        found |= more
    return found


@pytest.mark.parametrize(("state", "given"), CELLS, ids=lambda one: one.name)
def test_each_input_in_each_state_is_a_transition_nothing_or_a_refusal_with_a_reason(
    state: State, given: Input
) -> None:
    assert len(TRANSITIONS[given]) == len(State)
    life = in_state(state)
    match TRANSITIONS[given][[*State].index(state)]:
        case State() as following:
            assert following is not state
            assert life.apply(given) is following is life.state
        case str(reason):
            with pytest.raises(TestbedError, match=f"mine {reason}"):
                life.apply(given)
            assert life.state is state
        case nothing:
            assert nothing is STAY
            assert life.apply(given) is None
            assert life.state is state


def test_no_state_is_out_of_reach() -> None:
    assert reached_from(STARTING, *Input) == {*State}


@pytest.mark.parametrize("state", [state for state in State if state in FINAL])
def test_what_has_ended_stays_so(state: State) -> None:
    assert reached_from(state, *Input) == {state}


@pytest.mark.parametrize("state", [state for state in State if state not in FINAL])
def test_down_and_then_the_end_of_the_job_end_everything_and_so_does_a_failure(state: State) -> None:
    assert after(after(state, Input.DOWN), Input.FINISHED) in {OVER, DISCARDED}
    assert after(state, Input.FAILED) in FINAL


def test_a_request_is_served_where_a_lab_is_up_or_a_run_stands() -> None:
    assert {state for state in State if TRANSITIONS[Input.REQUEST][[*State].index(state)] is STAY} == {UP, STOPPED}


def test_a_lab_that_is_taken_down_does_not_go_on() -> None:
    assert after(ENDING, Input.CONTINUE) is ENDING
    assert after(STOPPED, Input.CONTINUE) is RUNNING


def test_continue_of_what_is_not_stopped_is_wrong_input_with_a_hint() -> None:
    for state in STARTING, UP, RUNNING:
        with pytest.raises(InputError, match="mine is not stopped") as refused:
            in_state(state).apply(Input.CONTINUE)
        assert "is for a stopped run" in refused.value.hint


# Stops

STEP, TIME = Moment(4, 2_000_000_000, "step", "pod B gets the address"), Moment(5, 3_000_000_000, "time", "")
FAULT, FAILED = (
    Moment(6, 4_000_000_000, "fault.injected", "link-down"),
    Moment(7, 5_000_000_000, "expect", "it arrives"),
)
MOMENTS = {"step": STEP, "time": TIME, "fault": FAULT, "failure": FAILED}


@pytest.mark.parametrize(
    ("text", "held"),
    [
        ("pod B", {"step"}),
        ("POD b", {"step"}),
        ("4", {"step"}),
        ("6", set()),
        ("fault", {"fault"}),
        ("first-failure", {"failure"}),
        ("pod C", set()),
    ],
)
@pytest.mark.parametrize("kept", [False, True])
def test_a_stop_by_name_holds_at_its_moment_and_passes_all_others(text: str, held: set[str], kept: bool) -> None:
    stop = Stop.of(text)
    acts = {name: stop.at(moment, kept=kept) for name, moment in MOMENTS.items()}
    assert acts == {name: Act.KEEP_AND_HOLD if name in held else Act.PASS for name in MOMENTS}
    assert not stop.far


def test_a_time_is_come_to_from_the_last_moment_before_it() -> None:
    stop = Stop.of("T=3s")
    assert stop.far
    assert stop.at(STEP, kept=False) is Act.KEEP
    assert stop.at(STEP, kept=True) is Act.KEEP
    assert stop.at(FAULT, kept=True) is Act.GO_BACK
    near = stop.nearer()
    assert not near.far
    assert near.at(STEP, kept=True) is Act.PASS
    assert near.at(TIME, kept=True) is Act.HOLD
    assert near.at(FAULT, kept=True) is Act.HOLD, "a step that kept the CPU busy beyond the time"


def test_a_time_before_the_run_is_its_first_moment() -> None:
    assert Stop.of("T=0.001s").at(STEP, kept=False) is Act.KEEP_AND_HOLD
