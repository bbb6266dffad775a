"""Settings that have several changes at once."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any


class Overlay:
    """Changes of a setting: the latest one wins. Each is undone by itself, in any order; the last undo restores it."""

    def __init__(
        self, read: Callable[[Iterable[str]], Mapping[str, Any]], write: Callable[[Mapping[str, Any]], object]
    ) -> None:
        """`read` returns the current settings of these names, `write` sets some."""
        self._read, self._write = read, write
        self._before: dict[str, Any] = {}
        self._changes: list[Mapping[str, Any]] = []

    def change(self, values: Mapping[str, Any]) -> Callable[[], None]:
        """Apply a change. The returned function undoes it."""
        untouched = [name for name in values if not any(name in change for change in self._changes)]
        now = self._read(untouched)
        self._before |= {name: now[name] for name in untouched}
        self._apply([*self._changes, values], values)

        def take_back() -> None:
            self._apply([change for change in self._changes if change is not values], values)

        return take_back

    def rebase(self, values: Mapping[str, Any]) -> None:
        """Set new start values of settings; a setting with a change in force keeps the change's value."""
        changed = {name for change in self._changes for name in change}
        self._before |= {name: value for name, value in values.items() if name in changed}
        self._write({name: value for name, value in values.items() if name not in changed})

    def renew(self) -> None:
        """Write the changes in force again, after something else has set what they change."""
        if self._changes:
            self._write({name: self._now(name) for change in self._changes for name in change})

    def _apply(self, changes: list[Mapping[str, Any]], names: Iterable[str]) -> None:
        before = {name: self._now(name) for name in names}
        previous, self._changes = self._changes, changes
        if other := {name: now for name in names if (now := self._now(name)) != before[name]}:
            try:
                self._write(other)
            except BaseException:
                self._changes = previous
                raise

    def _now(self, name: str) -> Any:
        return next((change[name] for change in reversed(self._changes) if name in change), self._before[name])
