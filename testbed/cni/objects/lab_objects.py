"""The objects of a lab behind `lab.objects`."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from testbed.cni.ipam.address_store import ADDRESSES
from testbed.cni.ipam.address_store import Store as Addresses
from testbed.cni.ipam.pool import Address
from testbed.cni.objects import controllers, manifests
from testbed.cni.objects.autopools import POOL
from testbed.cni.objects.database import Store
from testbed.cni.objects.kinds import IPPool
from testbed.cni.objects.manifests import DEFAULT, KINDS, Object
from testbed.documents.text import choices
from testbed.errors import InputError, did_you_mean
from testbed.protocol import events
from testbed.protocol.events import Emit


class Cluster:
    """The objects in `file`; paths of manifests are relative to `directory`.

    A connection is opened for each call and closed again: agents are forked from this process, and SQLite does not
    survive that.
    """

    def __init__(self, file: Path, directory: Path, emit: Emit) -> None:
        self._file, self._directory, self._emit = file, directory, emit
        file.parent.mkdir(exist_ok=True)

    def apply(self, manifest: str | Path | Mapping[str, Any]) -> list[str]:
        """See `testbed.lab.pods.Objects`."""
        objects = manifests.make(manifest) if isinstance(manifest, Mapping) else None
        found = [objects] if objects else manifests.load(self._directory / Path(str(manifest)))
        self._change(found, [])
        return [str(one) for one in found]

    def get(self, kind: str, name: str, namespace: str = DEFAULT) -> dict[str, Any]:
        return dict(self.find(kind, name, namespace).data)

    def list(self, kind: str) -> list[dict[str, Any]]:
        check_kind(kind)
        return [dict(one.data) for one in self.all(kind)]

    def all(self, kind: str) -> Sequence[Object]:
        """Return all objects of a kind, ordered by namespace and name."""
        with Store(self._file) as store:
            return store.all(kind)

    def delete(self, kind: str, name: str, namespace: str = DEFAULT) -> None:
        there = self.find(kind, name, namespace)
        self._change([], [there])

    def _change(self, applied: Sequence[Object], deleted: Sequence[Object]) -> None:
        """Change objects, and the objects that follow them."""
        with Store(self._file) as store:
            there = {str(one): one for kind in controllers.READ for one in store.all(kind)}
            if any(one.kind == POOL for one in applied):
                check_pools([one for one in there.values() if one.kind == POOL], applied)
            there |= {str(one): one for one in applied}
            for one in deleted:
                there.pop(str(one), None)
            made, gone, notes = controllers.follow(there, self._held())
            again = {str(one) for one in made}
            away = [one for one in [*deleted, *gone] if str(one) not in again]
            store.put([*applied, *made], away)
        for text, objects in (("applied", [*applied, *made]), ("deleted", away)):
            for one in objects:
                self._emit(events.OBJECT(object=str(one)), "", f"{one} is {text}")
        for note in notes:
            self._emit(events.OBJECT(), "", note)

    def _held(self) -> Collection[Address]:
        file = self._file.with_name(ADDRESSES)
        if not file.exists():
            return ()
        with Addresses(file) as store:
            return {lease.address for lease in store.leases()}

    def put(self, *objects: Object) -> None:
        with Store(self._file) as store:
            store.put(objects)

    def remove(self, one: Object) -> None:
        """Delete an object without an event; a second call does nothing."""
        with Store(self._file) as store:
            store.delete(one.kind, one.name, one.namespace)

    def look(self, kind: str, name: str, namespace: str = "") -> Object | None:
        """Return the object, or None. `namespace` is empty if the kind has none."""
        with Store(self._file) as store:
            return store.get(kind, name, namespace)

    def find(self, kind: str, name: str, namespace: str) -> Object:
        """Return the object. InputError if there is none."""
        within = namespace if check_kind(kind).namespaced else ""
        if found := self.look(kind, name, within):
            return found
        known = [one.name for one in self.all(kind) if one.namespace == within]
        hint = f"{did_you_mean(name, known)}There are: {', '.join(known)}." if known else f"Apply a {kind} first."
        raise InputError(f"there is no {Object(kind, name, within, {})}", hint=hint)


def check_kind(kind: str) -> Any:
    if kind not in KINDS:
        raise InputError(f"kind {kind!r} is not supported; supported: {choices(kind, list(KINDS))}")
    return KINDS[kind]


def check_pools(there: Sequence[Object], applied: Sequence[Object]) -> None:
    """Refuse a SpiderIPPool of `applied` with an address of another one, except a pool of `there` that it replaces.
    InputError."""
    wanted = {one.name: one for one in applied if one.kind == "SpiderIPPool"}
    kept = [one for one in there if one.name not in wanted]
    owners: dict[Address, Object] = {}
    for one in [*kept, *wanted.values()]:
        _, addresses = IPPool.model_validate(one.spec).made(one.name)
        if first := next((address for address in addresses if address in owners), None):
            hint = "An address belongs to one pool only; to move a range, put both pools in one file."
            raise InputError(f"{one}: {first} is in {owners[first]}, too", hint=hint)
        owners.update(dict.fromkeys(addresses, one))
