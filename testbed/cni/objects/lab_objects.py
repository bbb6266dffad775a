"""The objects of a lab behind `lab.objects`."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from testbed.cni.ipam import reclaim
from testbed.cni.ipam.address_store import ADDRESSES, Lease
from testbed.cni.ipam.address_store import Store as Addresses
from testbed.cni.ipam.pool import Address
from testbed.cni.objects import controllers, manifests
from testbed.cni.objects.autopools import POOL
from testbed.cni.objects.database import Store
from testbed.cni.objects.manifests import DEFAULT, KINDS, NAMESPACES, Manifest, Object, bare, deleting, is_terminating
from testbed.cni.objects.webhook.review import Review
from testbed.cni.objects.webhook.rules import RULES, admitted
from testbed.documents.text import choices
from testbed.errors import InputError, did_you_mean
from testbed.protocol import events
from testbed.protocol.events import Emit

READ = tuple(dict.fromkeys((*controllers.READ, *RULES)))
"""The kinds that decide what an object becomes, and whether it may."""


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
        found, notes = self.read(manifest)
        self.take(found, notes)
        return [str(one) for one in found]

    def read(self, manifest: str | Path | Mapping[str, Any]) -> Manifest:
        """Return the objects of a manifest, which are not applied. InputError."""
        if isinstance(manifest, Mapping):
            return Manifest([manifests.given(manifest)], [])
        return manifests.load(self._directory / Path(str(manifest)))

    def take(self, found: Sequence[Object], notes: Sequence[str]) -> None:
        """Add objects, or replace existing ones, and report the notes. InputError, and no object has changed."""
        self._change(found, [])
        for note in notes:
            self._emit(events.OBJECT(), "", note)

    def get(self, kind: str, name: str, namespace: str = DEFAULT) -> dict[str, Any]:
        return dict(self.find(kind, name, namespace).data)

    def held(self) -> dict[str, dict[Address, str]]:
        """Return the addresses that pods have, with their names, by pools."""
        return held_of(self._leases())

    def list(self, kind: str) -> list[dict[str, Any]]:
        check_kind(kind)
        return [dict(one.data) for one in self.all(kind)]

    def all(self, kind: str) -> Sequence[Object]:
        """Return all objects of a kind, ordered by namespace and name."""
        if kind == POOL:
            self._settle()
        with Store(self._file) as store:
            return store.all(kind)

    def delete(self, kind: str, name: str, namespace: str = DEFAULT) -> None:
        self.delete_all([self.find(kind, name, namespace)])

    def delete_all(self, objects: Sequence[Object]) -> Sequence[Object]:
        """Delete objects. Return those that stay until others let them go: pools whose addresses pods have, and claims
        whose devices they have (finalizers of Spiderpool and of the resource claim controller)."""
        held = self.held()
        staying = []
        for one in objects:
            users = set(held.get(one.name, {}).values()) if one.kind == POOL else set()
            if one.kind == "ResourceClaim":
                users = {user["name"] for user in (one.data.get("status") or {}).get("reservedFor") or ()}
            if users:
                staying.append(deleting(one))
                text = f"{one} is deleted when nobody uses it: {', '.join(sorted(users))}"
                self._emit(events.OBJECT(object=str(one)), "", text)
        self.put(*staying)
        names = {str(one) for one in staying}
        self._change([], [one for one in objects if str(one) not in names])
        return staying

    def _settle(self) -> None:
        """Delete the pools that were to go when their addresses are free."""
        with Store(self._file) as store:
            leaving = [one for one in store.all(POOL) if is_terminating(one)]
            held = self.held() if leaving else {}
            gone = [one for one in leaving if not held.get(one.name)]
            if gone:
                store.put([], gone)
        for one in gone:
            self._emit(events.OBJECT(object=str(one)), "", f"{one} is deleted")

    def _change(self, applied: Sequence[Object], deleted: Sequence[Object]) -> None:
        """Change objects, and the objects that follow them."""
        self._settle()
        leases = self._leases()
        with Store(self._file) as store:
            there = {str(one): one for kind in READ for one in store.all(kind)}
            for one in deleted:
                there.pop(str(one), None)
            held = held_of(leases)
            changed = [self._admitted(one, there, held) for one in applied]
            made, gone, notes = controllers.follow(there, [lease.address for lease in leases])
            again = {str(one) for one in made}
            away = [one for one in [*deleted, *gone] if str(one) not in again]
            store.put([*changed, *made], away)
        for text, objects in (("applied", [*changed, *made]), ("deleted", away)):
            for one in objects:
                self._emit(events.OBJECT(object=str(one)), "", f"{one} is {text}")
        for note in notes:
            self._emit(events.OBJECT(), "", note)

    @staticmethod
    def _admitted(one: Object, there: dict[str, Object], held: Mapping[str, Mapping[Address, str]]) -> Object:
        """Put an object into `there`, as the webhooks change it. InputError."""
        others = [other for name, other in there.items() if name != str(one)]
        there[str(one)] = found = admitted(Review(one, there.get(str(one)), others, held))
        return found

    def _leases(self) -> Sequence[Lease]:
        file = self._file.with_name(ADDRESSES)
        if not file.exists():
            return ()
        with Addresses(file) as store:
            return store.leases()

    def give_back(self, pod: Object) -> None:
        """Free the addresses that are kept for the next container of a pod that is deleted."""
        for lease in self._leases():
            holder = lease.holder
            if (holder.namespace, holder.pod, holder.container) == (pod.namespace, pod.name, ""):
                with Addresses(self._file.with_name(ADDRESSES)) as store, Store(self._file) as objects:
                    if not reclaim.is_wanted_again(holder, objects):
                        store.give_back(holder)

    def put(self, *objects: Object) -> None:
        with Store(self._file) as store:
            store.put(objects)

    def remove(self, one: Object) -> None:
        """Delete an object without an event; a second call does nothing."""
        with Store(self._file) as store:
            store.delete(one.kind, one.name, one.namespace)

    def look(self, kind: str, name: str, namespace: str = "") -> Object | None:
        """Return the object, or None. `namespace` is empty if the kind has none."""
        if kind == POOL:
            self._settle()
        with Store(self._file) as store:
            return store.get(kind, name, namespace)

    def find(self, kind: str, name: str, namespace: str) -> Object:
        """Return the object. InputError if there is none."""
        within = namespace if check_kind(kind).namespaced else ""
        if found := self.look(kind, name, within):
            return found
        if kind == "Namespace" and name in NAMESPACES:
            return bare(kind, name)
        known = [one.name for one in self.all(kind) if one.namespace == within]
        hint = f"{did_you_mean(name, known)}There are: {', '.join(known)}." if known else f"Apply a {kind} first."
        raise InputError(f"there is no {Object(kind, name, within, {})}", hint=hint)


def held_of(leases: Sequence[Lease]) -> dict[str, dict[Address, str]]:
    found: dict[str, dict[Address, str]] = {}
    for lease in leases:
        found.setdefault(lease.pool, {})[lease.address] = f"{lease.holder.namespace}/{lease.holder.pod}"
    return found


def check_kind(kind: str) -> Any:
    if kind not in KINDS:
        raise InputError(f"kind {kind!r} is not supported; supported: {choices(kind, list(KINDS))}")
    return KINDS[kind]
