"""Variables of containerlab's files (`${NAME:=default}`), in the place of which their default is read.

containerlab expands variables of its environment before it reads a file (hellt/envsubst). A lab is the same everywhere,
so an environment is never read: a variable without a default stays, and the reader refuses it. `$${` is a literal `${`.
"""

import re
from typing import NamedTuple

from testbed.documents.text import Mark

_WITH_DEFAULT = re.compile(r"(?<!\$)\$\{([A-Za-z_][A-Za-z0-9_]*):?[-=]([^{}$\r\n]*)\}")


_VARIABLE = re.compile(r"(?<!\$)\$\{")


class Variable(NamedTuple):
    name: str
    default: str
    mark: Mark


def with_defaults(text: str) -> tuple[str, list[Variable]]:
    """Return the text with the defaults of its variables, and the variables, each with its place."""
    found = [Variable(match[1], match[2], Mark.of(text, match.start())) for match in _WITH_DEFAULT.finditer(text)]
    return _WITH_DEFAULT.sub(lambda match: match[2], text) if found else text, found


def has_variable(text: str) -> bool:
    return _VARIABLE.search(text) is not None


def unescaped(text: str) -> str:
    """Return a text of a file with its literal `${`."""
    return text.replace("$${", "${")


def escaped(text: str) -> str:
    """Return a text for a file, in which `${` is meant literally."""
    return text.replace("${", "$${")
