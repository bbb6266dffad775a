"""The directory of labs that live, whose keepers are locks here."""

import io
import json
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from testbed.cli.live.up import wait_up
from testbed.errors import InputError, TestbedError, UnsupportedError
from testbed.machine.live import connection, labs
from testbed.machine.live.connection import Connection, EndedError
from testbed.machine.live.order import Order


@pytest.fixture(autouse=True)
def state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path / "testbed" / "labs"


def lab(name="mine", **more):
    return labs.Lab(name, "x.yml", "real", 1.0, 7, "0.1", "/runs", **{"state": "up", **more})


def test_a_lab_lives_as_long_as_its_lock(state):
    with labs.claimed(lab()):
        assert labs.read("mine") == lab()
        assert labs.living("") == lab()
    dead = labs.read("mine")
    assert (dead.state, dead.why) == ("dead", labs.KILLED)
    with pytest.raises(TestbedError, match="is dead"):
        labs.living("mine")
    labs.remove(dead)
    assert labs.read("mine") is None
    assert list(state.iterdir()) == []


def test_a_lab_that_could_not_start_leaves_nothing(state):
    with pytest.raises(KeyError), labs.claimed(lab()):
        raise KeyError
    assert list(state.iterdir()) == []


def test_a_name_is_taken_once():
    with labs.claimed(lab()):
        with pytest.raises(InputError, match="a lab mine is there"), labs.claimed(lab()):
            pass
        assert labs.read("mine") == lab()
    with pytest.raises(InputError, match="a lab mine is dead"):
        labs.require_free("mine")


@pytest.fixture
def looked(monkeypatch):
    """Set once somebody has read the record of a lab."""
    read, event = labs.read, threading.Event()

    def note(name):
        found = read(name)
        event.set()
        return found

    monkeypatch.setattr(labs, "read", note)
    return event


def test_a_command_waits_for_a_lab_that_begins_to_listen(looked):
    begun = lab(state="starting")
    with labs.claimed(begun), ThreadPoolExecutor() as threads:
        connection = threads.submit(Connection, begun)
        assert looked.wait(10)
        with labs.listener(begun) as listener:
            listener.listen()
            with connection.result(10) as made:
                assert made.lab == begun


def test_a_command_learns_that_a_lab_ended_before_it_listened(looked):
    begun = lab(state="starting")
    with labs.claimed(begun), ThreadPoolExecutor() as threads:
        connection = threads.submit(Connection, begun)
        assert looked.wait(10)
        labs.remove(begun)
        with pytest.raises(EndedError):
            connection.result(10)


def test_the_command_that_starts_a_lab_learns_that_another_ended_it_before_they_were_connected():
    begun = lab(state="starting")
    with labs.claimed(begun), io.StringIO() as order:
        labs.remove(begun)
        with pytest.raises(EndedError, match="lab mine was ended before it was up"):
            Connection(begun, order)


def test_the_command_that_starts_a_lab_learns_that_another_ended_it_when_they_were_connected():
    begun = lab(state="starting")
    with labs.claimed(begun), labs.listener(begun) as listener:
        listener.listen()
        with io.StringIO() as order, Connection(begun, order) as starter:
            listener.accept()[0].close()
            labs.remove(begun)
            with pytest.raises(EndedError, match="lab mine was ended before it was up"):
                wait_up(starter, str)


def test_a_lab_that_does_not_begin_to_listen_is_given_up(monkeypatch):
    monkeypatch.setattr(connection, "START_S", 0)
    begun = lab(state="starting")
    with labs.claimed(begun), pytest.raises(TestbedError, match="lab mine does not answer"):
        Connection(begun)


def test_many_who_look_and_claim_at_once_never_take_each_other_for_a_keeper():
    """One thread claims and gives up, others look: no lab is up, or it lives."""
    seen, done = set(), threading.Event()

    def look():
        while not done.is_set():
            seen.update((one.state, one.why) for one in labs.every())

    threads = [threading.Thread(target=look) for _ in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(100):
        with labs.claimed(lab()):
            pass_by = labs.read("mine")
            assert pass_by.state == "up"
            labs.remove(lab())
    done.set()
    for thread in threads:
        thread.join()
    assert seen <= {("up", "")}


@pytest.mark.parametrize(
    ("record", "why"),
    [("{", labs.DAMAGED), ("[]", labs.DAMAGED), ('{"since": "then"}', labs.DAMAGED), ('{"new": 1}', labs.KILLED)],
)
def test_any_record_makes_a_lab_of_the_directorys_name(state, record, why):
    with labs.claimed(lab()):
        pass
    (state / "mine" / "lab.json").write_text(record)
    found = labs.read("mine")
    assert (found.name, found.state, found.why) == ("mine", "dead", why)
    assert labs.every() == [found]


def test_a_record_cannot_lead_to_another_directory(state):
    with labs.claimed(lab()):
        pass
    (state / "mine" / "lab.json").write_text(json.dumps({"name": "../../.."}))
    assert labs.read("mine").directory == state / "mine"


def test_directories_are_the_users_alone(state):
    with labs.claimed(lab()):
        assert state.stat().st_mode & 0o777 == (state / "mine").stat().st_mode & 0o777 == 0o700


def test_a_place_that_is_none_is_named(state):
    state.parent.parent.rmdir()
    state.parent.parent.write_text("")
    with pytest.raises(UnsupportedError, match="labs cannot use it") as caught:
        labs.every()
    assert "XDG_STATE_HOME" in caught.value.hint


def test_which_lab_is_meant():
    with pytest.raises(InputError, match="no lab is up") as caught:
        labs.named("")
    assert "testbed up FILE" in caught.value.hint
    with labs.claimed(lab("one")), labs.claimed(lab("two")):
        with pytest.raises(InputError, match="several labs are up") as caught:
            labs.named("")
        assert "one, two" in caught.value.hint
        with pytest.raises(InputError, match="lab tow does not exist") as caught:
            labs.named("tow")
        assert "Did you mean two?" in caught.value.hint


def test_an_order_arrives_as_it_was_given():
    order = Order(lab(), {"kind": "Live"}, {"a": b"\x00\xff\n"}, ["a"], None, 3, ["p"], ["i:1"], None, attached=True)
    assert "\n" not in order.text()
    assert Order.of(order.text()) == order
