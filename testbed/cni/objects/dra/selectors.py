"""CEL selectors of devices, as kube-scheduler evaluates them.

Sources: Kubernetes 1.34, staging/src/k8s.io/dynamic-resource-allocation/cel; the CEL specification. The evaluator is
cel-python. It has no optional types (``.?``) and none of the extensions for sets and regular expressions.
"""

import functools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import celpy
from celpy import celtypes
from celpy.celparser import CELParseError
from celpy.evaluation import CELEvalError, Evaluator

from testbed.errors import InputError

LONGEST = 10 * 1024
"""Characters of an expression (CELSelectorExpressionMaxLength)."""
DEVICE = "device"
TYPES = (
    "bool",
    "bytes",
    "double",
    "duration",
    "int",
    "list",
    "map",
    "null_type",
    "string",
    "timestamp",
    "type",
    "uint",
)
MACROS = ("all", "exists", "exists_one", "filter", "map")
UNITS: dict[str, float] = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15}
UNITS |= {"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40, "Pi": 1 << 50, "Ei": 1 << 60}
UNITS |= {"n": 1e-9, "u": 1e-6, "m": 1e-3, "E": 10**18}
_QUANTITY = re.compile(
    r"(?P<number>[+-]?[0-9]{1,18}(\.[0-9]{1,9})?)(?:(?P<unit>[numkMGTPE]|[KMGTPE]i)|[eE](?P<exponent>[+-]?[0-9]{1,2}))?"
)
_VERSION = re.compile(
    r"(0|[1-9][0-9]{0,9})\.(0|[1-9][0-9]{0,9})\.(0|[1-9][0-9]{0,9})"
    r"(?:-([0-9A-Za-z.-]{1,64}))?(?:\+[0-9A-Za-z.-]{1,64})?"
)
MOST_COST = 20_000
"""Parts of an expression that are evaluated for one device, at most. kube-scheduler counts otherwise
(CELSelectorExpressionMaxCost)."""


class Quantity(float):
    """An amount as Kubernetes writes it, such as 40Gi, 500m or 1e3."""

    @classmethod
    def of(cls, text: str) -> "Quantity":
        """InputError."""
        match = _QUANTITY.fullmatch(str(text))
        if not match:
            raise InputError(f"{str(text)!r} is not a quantity such as 40Gi")
        return cls(float(match["number"]) * UNITS[match["unit"] or ""] * 10.0 ** int(match["exponent"] or 0))


class Version(tuple[Any, ...]):
    """A semantic version, in the order of semver.org: a pre-release comes before its release."""

    __slots__ = ()

    @classmethod
    def of(cls, text: str) -> "Version":
        """InputError."""
        match = _VERSION.fullmatch(str(text))
        if not match:
            raise InputError(f"{str(text)!r} is not a version such as 1.2.3")
        parts = [(0, int(one), "") if one.isdigit() else (1, 0, one) for one in (match[4] or "").split(".") if one]
        return cls((int(match[1]), int(match[2]), int(match[3]), not parts, tuple(parts)))


@dataclass(frozen=True)
class Device:
    """A device that a driver offers. Attributes and capacities have names with a domain."""

    driver: str
    pool: str
    name: str
    attributes: Mapping[str, bool | int | str | Version] = field(default_factory=dict)
    capacity: Mapping[str, Quantity] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.driver}/{self.pool}/{self.name}"


def _compare(one: Any, other: Any) -> Any:
    return celtypes.IntType((one > other) - (one < other))


def _text(value: Any) -> celtypes.StringType:
    return celtypes.StringType(value)


def _index(where: Any, what: Any, start: int = 0) -> celtypes.IntType:
    if isinstance(where, str):
        return celtypes.IntType(where.find(what, start))
    return celtypes.IntType(next((place for place, one in enumerate(where) if one == what), -1))


def _last_index(where: Any, what: Any) -> celtypes.IntType:
    if isinstance(where, str):
        return celtypes.IntType(where.rfind(what))
    return celtypes.IntType(max((place for place, one in enumerate(where) if one == what), default=-1))


def _part(text: str, begin: int, end: int | None = None) -> celtypes.StringType:
    if not 0 <= begin <= (len(text) if end is None else end) <= len(text):
        raise CELEvalError(f"index out of range: {begin}")
    return _text(text[begin:end])


FUNCTIONS: dict[str, Any] = {
    "quantity": Quantity.of,
    "semver": Version.of,
    "compareTo": _compare,
    "isGreaterThan": lambda one, other: celtypes.BoolType(one > other),
    "isLessThan": lambda one, other: celtypes.BoolType(one < other),
    "charAt": lambda text, place: _part(text, place, place + 1),
    "indexOf": _index,
    "isSorted": lambda values: celtypes.BoolType(sorted(values) == list(values)),
    "join": lambda values, separator="": _text(separator.join(values)),
    "lastIndexOf": _last_index,
    "lowerAscii": lambda text: _text(text.lower()),
    "max": max,
    "min": min,
    "replace": lambda text, old, new, count=-1: _text(text.replace(old, new, count)),
    "reverse": lambda text: _text(text[::-1]),
    "split": lambda text, by, count=0: celtypes.ListType(map(_text, text.split(by, count - 1))),
    "substring": _part,
    "sum": lambda values: sum(values, celtypes.IntType(0)),
    "trim": lambda text: _text(text.strip()),
    "upperAscii": lambda text: _text(text.upper()),
}
"""Kubernetes' extensions of CEL for quantities, versions, strings and lists."""
OF_KUBERNETES = (
    "format find findAll contains equivalent intersects bind orValue or optMap value hasValue isQuantity isInteger "
    "asInteger asApproximateFloat sign add sub isSemver major minor patch url ip cidr sets"
)
"""Functions that an API server has, and this evaluator does not."""
OPTIONAL = re.compile(r"\.\?|\[\?")
KNOWN = {*FUNCTIONS, *celpy.evaluation.base_functions, *MACROS, "has", "dyn"}


class _TooCostlyError(Exception):
    """An expression has had all that it may cost."""


class _Evaluator(Evaluator):
    """An evaluator that counts what it does, in macros, too."""

    def __init__(self, ast: Any, activation: Any, left: list[int]) -> None:
        super().__init__(ast, activation)
        self._left = left

    def sub_evaluator(self, ast: Any) -> "_Evaluator":
        return _Evaluator(ast, self.activation, self._left)

    def visit(self, tree: Any) -> Any:
        self._left[0] -= 1
        if self._left[0] < 0:
            raise _TooCostlyError
        return super().visit(tree)


class _Runner(celpy.InterpretedRunner):
    def evaluate(self, context: Any) -> Any:
        return _Evaluator(self.ast, self.new_activation(), [MOST_COST]).evaluate(context)


@functools.cache
def _environment() -> celpy.Environment:
    return celpy.Environment(runner_class=_Runner)


@functools.lru_cache(512)
def compiled(expression: str) -> celpy.Runner:
    """Return the program of an expression. InputError for one that does not compile."""
    try:
        tree = _environment().compile(expression)
    except CELParseError as error:
        if OPTIONAL.search(expression):
            raise InputError("a lab's evaluator of CEL has no optional types (`.?`): use has()") from None
        raise InputError(f"compilation failed: ERROR: Syntax error at {error.line}:{error.column}") from None
    except RecursionError:
        raise InputError("compilation failed: ERROR: it is nested too deep") from None
    for name in _undeclared(tree):
        if name in OF_KUBERNETES.split():
            raise InputError(f"a lab's evaluator of CEL has no function {name}")
        raise InputError(f"compilation failed: ERROR: undeclared reference to '{name}' (in container '')")
    return _environment().program(tree, functions=FUNCTIONS)


def _undeclared(tree: Any) -> Iterator[str]:
    """Yield the names in lark's tree of an expression that nothing declares."""
    bound = {DEVICE, *TYPES}
    for one in tree.iter_subtrees():
        if one.data == "member_dot_arg" and str(one.children[1]) in MACROS:
            (variable, *_) = one.children[2].children
            bound |= {str(token) for token in variable.scan_values(lambda value: value.type == "IDENT")}
    known = {"ident": (0, bound), "ident_arg": (0, KNOWN), "member_dot_arg": (1, KNOWN)}
    for one in tree.iter_subtrees_topdown():
        place, names = known.get(one.data, (0, None))
        if names is not None and str(one.children[place]) not in names:
            yield str(one.children[place])


class _Domains(celtypes.MapType):
    """Attributes by domain: one that no attribute has is an empty map."""

    def __getitem__(self, key: Any) -> Any:
        return super().__getitem__(key) if key in self else celtypes.MapType()


def _value(value: Any) -> Any:
    match value:
        case bool():
            return celtypes.BoolType(value)
        case Quantity() | Version():
            return value
        case int():
            return celtypes.IntType(value)
        case _:
            return celtypes.StringType(value)


def _by_domain(values: Mapping[str, Any]) -> _Domains:
    found: dict[str, Any] = {}
    for name, value in values.items():
        domain, _, identifier = name.partition("/")
        found.setdefault(domain, {})[celtypes.StringType(identifier)] = _value(value)
    return _Domains({celtypes.StringType(key): celtypes.MapType(value) for key, value in found.items()})


def matches(expression: str, device: Device) -> bool:
    """Return whether a device is selected. InputError with the evaluator's words if it cannot be said, such as for an
    attribute that the device does not have: kube-scheduler stops there."""
    known = {
        "driver": celtypes.StringType(device.driver),
        "attributes": _by_domain(device.attributes),
        "capacity": _by_domain(device.capacity),
    }
    variables = {DEVICE: celtypes.MapType({celtypes.StringType(key): value for key, value in known.items()})}
    try:
        found = compiled(expression).evaluate(variables)
    except CELEvalError as error:
        raise InputError(f"runtime error: {_reason(error)}") from None
    except RecursionError:
        raise InputError("runtime error: it is nested too deep") from None
    except _TooCostlyError:
        raise InputError("runtime error: operation cancelled: actual cost limit exceeded") from None
    except (ValueError, TypeError, IndexError, AttributeError) as error:  # of a function above
        raise InputError(f"runtime error: {error}") from None
    if not isinstance(found, celtypes.BoolType | bool):
        raise InputError(f"CEL result of type {type(found).__name__} could not be converted to bool")
    return bool(found)


def _reason(error: CELEvalError) -> str:
    """Return the words of Kubernetes' evaluator for an error."""
    text = str(error.args[0])
    if match := re.fullmatch(r"no such member in mapping: '(.*)'", text):
        return f"no such key: {match[1]}"
    if "no matching overload" in text:
        return "no such overload"
    return "type conversion error" if text == "return error for overflow" else text
