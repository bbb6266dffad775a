"""The page of the kinds of events, docs/events.md, written from their definitions: `make examples` writes it again."""

import ast
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import NoneType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from testbed.protocol import events
from testbed.protocol.events import AnyKind, Data, Kind

TOP = Path(__file__).parents[2]
PAGE = TOP / "docs" / "events.md"
PACKAGE = TOP / "testbed"
DEFINITIONS = PACKAGE / "protocol" / "events.py"
INTRODUCTION = """\
# Events

`events.jsonl` of a [run directory](runs.md) has a line for each event, in the order of virtual time:

```json
{"t": 20000000, "kind": "arp.learned", "node": "leaf", "text": "ARP 10.0.20.100 is at 02:00:03:00:00:01",
 "data": {"vlan": 20, "ip": "10.0.20.100", "mac": "02:00:03:00:00:01", "port": "e2", "reason": "request"}}
```

`t` is nanoseconds since the variant began. `node` is empty where an event belongs to none. `text` is for people and may
change; programs read `kind` and `data`. The tables have the fields of `data`. One that is optional is left out where it
does not apply. Fields called alike mean the same: `interface`, `port`, `vlan`, `mac` and `ip` are those of `node`,
`host` is the host of a pod, `error` why something failed. `happened_ns` may be in any event: it is when it happened,
where that was reported late.

In a scenario `run.events("arp.aged", ip="10.0.20.100")` returns the events of a kind with these data, and
`run.log.emit("measured", "", "42 of 50 arrive", arrived=42)` emits one of a kind of your own.

"""
PROTOCOLS = """
What `arp.` says of ARP, `nd.` says of neighbour discovery: a kind that begins with `arp.` has a twin `nd.`, with the
same fields.
"""
NAMES: dict[Any, str] = {str: "text", int: "number", float: "number", bool: "true or false", dict: "object", Any: "any"}


def constants() -> dict[str, AnyKind]:
    """Return the kinds by the names that the code has for them."""
    return {name: kind for name, kind in vars(events).items() if isinstance(kind, Kind)}


def emitters() -> dict[str, set[str]]:
    """Return the packages that make the data of each kind, by the kind's name in the code."""
    found: dict[str, set[str]] = {name: set() for name in constants()}
    for path in sorted(PACKAGE.rglob("*.py")):
        if path != DEFINITIONS:
            for name in made(ast.parse(path.read_text())) & found.keys():
                found[name].add(path.relative_to(PACKAGE).parts[0])
    return found


def made(tree: ast.Module) -> set[str]:
    """Return the names that a module calls, chooses between or gives to a `partial`, without their module's."""
    used: list[ast.expr] = []
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id="partial"), args=[first, *_]) | ast.Call(func=first):
                used.append(first)
            case ast.IfExp(body=one, orelse=other):
                used += [one, other]
            case ast.Dict(values=values):
                used += values
    return {node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "") for node in used}


def comments() -> dict[str, dict[str, str]]:
    """Return the string below each field of each class; that of a base counts for what is derived from it."""
    found: dict[str, dict[str, str]] = {}
    for node in ast.parse(DEFINITIONS.read_text()).body:
        if isinstance(node, ast.ClassDef):
            own = found[node.name] = {}
            for base in node.bases:
                own.update(found.get(getattr(base, "id", ""), {}))
            for field, after in zip(node.body, [*node.body[1:], None], strict=True):
                match field, after:
                    case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                        own[name] = text
    return found


def type_name(hint: Any) -> str:
    """Return a type in words: `number, seconds`, `list of text`, `up or down`."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin is not None and hasattr(hint, "__metadata__"):
        return f"number, {hint.__metadata__[0]}"
    if origin in (list, tuple):
        return f"list of {' and '.join(dict.fromkeys(map(type_name, inner)))}"
    if origin is Literal:
        return " or ".join(f"`{value}`" for value in inner)
    if inner and origin is not dict:
        return " or ".join(type_name(one) for one in inner if one is not NoneType)
    return NAMES[origin or hint]


def fields(data: type[Data]) -> Iterator[tuple[str, str, str]]:
    """Return name, type and meaning of each field of a class, those of its bases first."""
    about = comments()[data.__name__]
    for name, hint in get_type_hints(data, include_extras=True).items():
        if name not in Data.__slots__:
            optional = "optional " if hasattr(data, name) else ""
            yield name, f"{optional}{type_name(hint)}", about.get(name, "")


def page() -> str:
    """Return the page: a section for each class of data, with the kinds that have them."""
    by_class: dict[type[Data], list[tuple[str, AnyKind]]] = {}
    for name, kind in constants().items():
        by_class.setdefault(kind.fields, []).append((name, kind))
    made_in, text = emitters(), INTRODUCTION
    names = [kind.name for found in by_class.values() for _, kind in found]
    text += textwrap.fill("Kinds: " + ", ".join(f"`{name}`" for name in names) + ".", 120, break_on_hyphens=False)
    text += f"\n{PROTOCOLS}"
    for data, found in by_class.items():
        text += f"\n## {', '.join(kind.name for _, kind in found)}\n\n"
        text += "| Kind | Meaning | Emitted by |\n| --- | --- | --- |\n"
        for name, kind in found:
            places = ", ".join(f"`testbed/{place}`" for place in sorted(made_in[name]))
            text += f"| `{kind.name}` | {kind.about} | {places} |\n"
        if rows := [*fields(data)]:
            text += "\n| Field | Type | Meaning |\n| --- | --- | --- |\n"
            text += "".join(f"| `{name}` | {kind} | {about} |\n" for name, kind, about in rows)
    return text


if __name__ == "__main__":
    from written import write

    write(PAGE, page())
