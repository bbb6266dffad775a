"""
YAML text as plain values, with the line and column of each of them, under limits that no text can get around.

The tree is made straight from the parser's events, so depth, size and aliases are bounded while the text is read: an
alias costs as many nodes as it stands for. Plain scalars follow the core schema of YAML 1.2 (`on`, `no` and `12:30` are
strings, as editors see them), with decimal numbers only. Anchors, aliases and merge keys (`<<`) work as containerlab's
users know them; tags do not, except `!!str`, `!!map` and `!!seq`. A text may have several documents.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NoReturn

import yaml

from testbed.documents.text import Mark, Path, check_size, describe, place, quoted
from testbed.documents.variables import has_variable, unescaped
from testbed.errors import InputError

MAX_NODES = 50_000
"""Keys and values with all aliases written out: a lab of 3000 hosts has fewer."""
MAX_DEPTH, LITERAL_DEPTH = 20, 100
"""Levels of a file, and of one with objects of others: definitions of kinds nest their schemas deeply."""

_TAG = "tag:yaml.org,2002:"
_TAGS = {yaml.ScalarEvent: "str", yaml.SequenceStartEvent: "seq", yaml.MappingStartEvent: "map"}
"""The one tag that each event may have; others would change its type."""
_WORDS = (
    dict.fromkeys(("", "~", "null", "Null", "NULL"))
    | dict.fromkeys(("true", "True", "TRUE"), True)
    | dict.fromkeys(("false", "False", "FALSE"), False)
)
_INT = re.compile(r"[-+]?(0|[1-9][0-9]{0,17})")
_FLOAT = re.compile(r"[-+]?(\.[0-9]{1,18}|[0-9]{1,18}(\.[0-9]{0,18})?)([eE][-+]?[0-9]{1,3})?")
_TEMPLATE = re.compile(r"^((?:[^#\n]|(?<=\S)#)*?)(?<!\{)\{\{(?!\{)", re.MULTILINE)
"""A Go template outside a comment."""
_LEADING_ZERO = re.compile(r"[-+]?0[0-9]")


@dataclass(frozen=True, slots=True)
class _Node:
    content: Any
    """A scalar's value; ``list[_Node]``; or `_Entries`: by key, the key's mark and the value."""
    mark: Mark

    def value(self) -> Any:
        if isinstance(self.content, dict):
            return {key: child.value() for key, (_, child) in self.content.items()}
        if isinstance(self.content, list):
            return [child.value() for child in self.content]
        return self.content


_Entries = dict[str | int, tuple[Mark, _Node]]


class YamlDocument:
    """One document of a text. `source` is the name of the text in errors: a file's name, or any other."""

    def __init__(self, root: _Node, source: str) -> None:
        self.source = source
        self._root = root

    def value(self) -> Any:
        return self._root.value()

    def part(self, *path: str | int) -> "YamlDocument":
        """Return the value at `path`, which is there, as a document of the same text."""
        node = self._root
        for step in path:
            node = node.content[step][1] if isinstance(node.content, dict) else node.content[step]
        return YamlDocument(node, self.source)

    def find(self, path: Path, *, key: bool = False) -> Mark:
        """Return the place of the value at `path` (or of its key), else of the nearest thing around it."""
        node, mark = self._root, self._root.mark
        for step in path:
            if isinstance(node.content, dict) and (found := _key(node.content, step)) is not None:
                key_mark, node = found
                mark = key_mark if key else node.mark
            elif isinstance(node.content, list) and isinstance(step, int) and step < len(node.content):
                node = node.content[step]
                mark = node.mark
            else:
                break
        return mark


def parse(text: str, source: str, what: str, *, literal: bool = False) -> list[YamlDocument]:
    """Return the documents of a text; `what` is its kind with the article: ``a topology``. With `literal` ``${…}`` and
    ``{{…}}`` are text, as kubectl takes them. InputError."""
    return [YamlDocument(root, source) for root in _Reader(text, source, what, literal=literal).read()]


def _key(content: _Entries, step: str | int) -> tuple[Mark, _Node] | None:
    """Return an entry by its key, or by the number that YAML took the key for."""
    number = int(step) if isinstance(step, str) and _INT.fullmatch(step) else step
    return content.get(step, content.get(number))


class _Reader:
    def __init__(self, text: str, source: str, what: str, *, literal: bool) -> None:
        self.text = text
        self.literal = literal
        self.depth = LITERAL_DEPTH if literal else MAX_DEPTH
        self.source = source
        self.what = what
        self.anchors: dict[str, _Node] = {}
        self.total = 0

    def read(self) -> list[_Node]:
        self._check_characters()
        # libyaml's parser is ten times faster where PyYAML was built with it; both give the same events.
        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        try:
            return self._documents(yaml.parse(self.text, Loader=loader))
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            self._fail(_mark(mark) if mark else Mark(1, 1), f"not valid YAML: {error.problem or error.context}")
        except yaml.YAMLError as error:
            self._fail(Mark(1, 1), f"not valid YAML: {error}")

    def _check_characters(self) -> None:
        check_size(self.text, self.source, self.what.partition(" ")[2])
        if not self.literal and (found := _TEMPLATE.search(self.text)):
            self._fail(
                Mark.of(self.text, found.end(1)),
                "'{{' begins a template; containerlab and Helm fill templates in from other files, testbed does not: "
                "a lab is the same everywhere. Write the value",
            )
        if found := yaml.reader.Reader.NON_PRINTABLE.search(self.text):
            wrong = Mark.of(self.text, found.start())
            self._fail(wrong, f"character U+{ord(found.group()):04X} is not allowed in YAML")

    def _documents(self, events: Iterator[Any]) -> list[_Node]:
        next(events)  # the start of the stream
        found = []
        while not isinstance(next(events), yaml.StreamEndEvent):
            self.anchors = {}
            found.append(self._node(next(events), events, 0))
            next(events)  # the end of the document
        return found

    def _node(self, event: Any, events: Iterator[Any], depth: int) -> _Node:
        mark = _mark(event.start_mark)
        if isinstance(event, yaml.AliasEvent):
            if event.anchor not in self.anchors:
                self._fail(mark, f"alias {quoted(f'*{event.anchor}')} has no complete anchor before it")
            node = self.anchors[event.anchor]
            self._count(node, mark, depth)
            return node
        self._check_limits(mark, 1, depth)
        if event.tag not in {None, "!", _TAG + _TAGS[type(event)]}:
            self._fail(
                mark, f"tag {quoted(event.tag.replace(_TAG, '!!'))} is not supported; allowed: !!str, !!map, !!seq"
            )
        content: Any
        if isinstance(event, yaml.ScalarEvent):
            content = self._scalar(event, mark)
        elif isinstance(event, yaml.SequenceStartEvent):
            content = []
            while not isinstance(item := next(events), yaml.SequenceEndEvent):
                content.append(self._node(item, events, depth + 1))
        else:
            content = self._mapping(events, depth)
        node = _Node(content, mark)
        if event.anchor is not None:
            self.anchors[event.anchor] = node
        return node

    def _mapping(self, events: Iterator[Any], depth: int) -> _Entries:
        entries: _Entries = {}
        inherited: _Entries = {}
        while not isinstance(event := next(events), yaml.MappingEndEvent):
            key = self._node(event, events, depth + 1)
            is_merge = isinstance(event, yaml.ScalarEvent) and event.implicit[0] and key.content == "<<"
            value = self._node(next(events), events, depth + 1)
            if is_merge:
                self._merge(value, inherited)
                continue
            if type(key.content) not in {str, int}:
                self._fail(key.mark, f"a key must be a string or an integer, not {describe(key.content)}")
            if key.content in entries:
                first = entries[key.content][0].line
                self._fail(key.mark, f"key {quoted(key.content)} is given twice; the first is in line {first}")
            entries[key.content] = (key.mark, value)
        return {**entries, **{key: entry for key, entry in inherited.items() if key not in entries}}

    def _merge(self, value: _Node, inherited: _Entries) -> None:
        """Apply YAML's merge key: of several mappings the earlier one wins, and the mapping's own keys win over all."""
        for source in value.content if isinstance(value.content, list) else [value]:
            if not isinstance(source.content, dict):
                self._fail(source.mark, f"'<<' merges mappings, not {describe(source.content)}")
            for key, entry in source.content.items():
                inherited.setdefault(key, entry)

    def _scalar(self, event: yaml.ScalarEvent, mark: Mark) -> Any:
        text: str = event.value
        if self.literal:
            return _plain(text) if event.implicit[0] else text
        if has_variable(text):
            self._fail(
                mark,
                f"{describe(text)} uses an environment variable; other tools expand it, testbed does not, so that a "
                "lab is the same everywhere. Write the value, or $${ for a literal ${",
            )
        text = unescaped(text)
        return _plain(text) if event.implicit[0] else text

    def _count(self, node: _Node, alias: Mark, depth: int) -> None:
        """Check the limits as if the node were written out at its alias."""
        children = node.content if isinstance(node.content, list) else []
        keys = 0
        if isinstance(node.content, dict):
            children, keys = [child for _, child in node.content.values()], len(node.content)
        self._check_limits(alias, 1 + keys, depth)
        for child in children:
            self._count(child, alias, depth + 1)

    def _check_limits(self, mark: Mark, nodes: int, depth: int) -> None:
        if depth > self.depth:
            self._fail(mark, f"nested deeper than {self.depth} levels, the limit for {self.what}")
        self.total += nodes
        if self.total > MAX_NODES:
            self._fail(mark, f"more than {MAX_NODES} values with all aliases written out, the limit for {self.what}")

    def _fail(self, mark: Mark, message: str) -> NoReturn:
        raise InputError(message, where=place(self.source, mark))


def _mark(mark: Any) -> Mark:
    return Mark(mark.line + 1, mark.column + 1)


def _plain(text: str) -> str | int | float | bool | None:
    if text in _WORDS:
        return _WORDS[text]
    # A leading zero is octal in YAML 1.1 and decimal in 1.2: as a string it is refused where a number is expected.
    if _LEADING_ZERO.match(text):
        return text
    if _INT.fullmatch(text):
        return int(text)
    return float(text) if _FLOAT.fullmatch(text) else text
