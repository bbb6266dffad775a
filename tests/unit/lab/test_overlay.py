"""Changes of settings that lie over each other."""

from collections.abc import Iterable, Mapping
from itertools import permutations

import pytest

from testbed.lab.overlay import Overlay


class Settings(dict[str, int]):
    """What is overlaid; `written` are the changes that reached it."""

    def __init__(self) -> None:
        super().__init__(age=1500, cap=100)
        self.written: list[Mapping[str, int]] = []
        self.overlay = Overlay(self.read, self.write)

    def read(self, names: Iterable[str]) -> dict[str, int]:
        return {name: self[name] for name in names}

    def write(self, values: Mapping[str, int]) -> None:
        if values.get("age") == 0:
            raise ValueError("an age of 0")
        self.written.append(values)
        self.update(values)


def test_the_latest_change_of_each_setting_holds() -> None:
    settings = Settings()
    settings.overlay.change({"age": 60, "cap": 5})
    settings.overlay.change({"age": 30})
    assert settings == {"age": 30, "cap": 5}


@pytest.mark.parametrize("order", [*permutations(range(3))], ids=str)
def test_in_whatever_order_they_are_taken_back_what_was_there_comes_back(order: tuple[int, ...]) -> None:
    settings = Settings()
    changes = [settings.overlay.change(values) for values in ({"age": 60}, {"age": 30, "cap": 5}, {"cap": 5})]
    for number in order:
        changes[number]()
    assert settings == {"age": 1500, "cap": 100}


def test_nothing_is_written_when_a_change_under_another_goes() -> None:
    settings = Settings()
    first = settings.overlay.change({"age": 60})
    settings.overlay.change({"age": 30})
    written = len(settings.written)
    first()
    assert len(settings.written) == written


def test_what_is_set_between_two_changes_by_others_is_what_comes_back() -> None:
    settings = Settings()
    settings.overlay.change({"age": 60})()
    settings["age"] = 1800
    settings.overlay.change({"age": 60})()
    assert settings["age"] == 1800


def test_a_change_that_is_refused_leaves_no_trace() -> None:
    settings = Settings()
    first = settings.overlay.change({"age": 60})
    with pytest.raises(ValueError, match="an age of 0"):
        settings.overlay.change({"age": 0})
    assert settings["age"] == 60
    first()
    assert settings["age"] == 1500
