"""What a rule gets, and how it refuses: field errors in the words of an API server (k8s.io/apimachinery, field)."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

from testbed.cni.ipam.pool import Address
from testbed.cni.objects.manifests import Object
from testbed.documents.problems import dotted
from testbed.documents.text import Path


class Denied(Exception):  # noqa: N818 (the API server's word)
    """An object is refused for the field at `path`, with which `why` begins if it is not `complete`."""

    def __init__(self, path: Path, why: str, *, complete: bool = False) -> None:
        super().__init__(why if complete else f"{dotted(path)}: {why}")
        self.path = path


def invalid(path: Path, value: Any, why: str) -> NoReturn:
    raise Denied(path, f"Invalid value: {json.dumps(value)}: {why}")


def forbidden(path: Path, why: str) -> NoReturn:
    raise Denied(path, f"Forbidden: {why}")


def required(path: Path, why: str) -> NoReturn:
    raise Denied(path, f"Required value: {why}")


def not_supported(path: Path, value: Any, supported: Sequence[str]) -> NoReturn:
    raise Denied(path, f"Unsupported value: {json.dumps(value)}: supported values: {json.dumps(list(supported))[1:-1]}")


@dataclass(frozen=True)
class Review:
    """An object that is applied, and what there is."""

    new: Object
    old: Object | None
    """The object that it replaces."""
    others: Sequence[Object]
    """All other objects."""
    held: Mapping[str, Mapping[Address, str]] = field(default_factory=dict)
    """The addresses of pools that pods have, with the pods' names, by names of pools."""

    def of_kind(self, kind: str) -> list[Object]:
        return [one for one in self.others if one.kind == kind]


Rule = Callable[[Review], None]
"""A rule raises Denied."""
