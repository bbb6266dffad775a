"""Rows of the table: a published or a computed figure, and the lab's beside it."""

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

CLOSE = 0.15
"""By how much a ratio may be off one where the scaling law promises it: bytes stay, times grow, rates shrink."""
STRICT = 3
"""Standard errors by which a mean of many draws may be off."""
STUDENT = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131)
"""The 97.5 % quantile of Student's t for 1, 2, … degrees of freedom."""


class Published(NamedTuple):
    """A result as a paper prints it: a number or words, and the section, figure or table where."""

    value: float | str
    place: str


class Mean(NamedTuple):
    """The mean of random draws, its standard error, and half of its interval of 95 %."""

    mean: float
    error: float
    half: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Mean":
        error = statistics.stdev(values) / math.sqrt(len(values))
        return cls(statistics.fmean(values), error, error * student(len(values) - 1))

    def inverse(self, of: float = 1) -> "Mean":
        """`of` over the mean."""
        factor = of / self.mean**2
        return Mean(of / self.mean, factor * self.error, factor * self.half)

    def over(self, other: "Mean") -> "Mean":
        """The ratio of two means of draws that are independent."""
        ratio = self.mean / other.mean
        parts = [(one / self.mean, two / other.mean) for one, two in zip(self[1:], other[1:], strict=True)]
        return Mean(ratio, *(ratio * math.hypot(*part) for part in parts))


def student(freedom: int) -> float:
    """Above the table an approximation, good to three digits."""
    return STUDENT[freedom - 1] if freedom <= len(STUDENT) else 1.96 + 2.5 / freedom


class Row(NamedTuple):
    """`ratio` is ours over what it is compared with. `agrees` is None for what is not compared.

    `place` is where the paper prints what is published. `known` is why it is expected not to agree.
    """

    what: str
    published: str
    place: str
    computed: str
    ours: str
    ratio: float | None
    agrees: bool | None
    why: str = ""
    known: str = ""

    @property
    def note(self) -> str:
        return self.known if self.agrees is False and self.known else self.why


@dataclass(frozen=True)
class Experiment:
    """Its rows are compared with `source`: a paper, a program, or what we compute by one of them."""

    id: str
    source: str
    rows: Callable[[], Iterable[Row]]


def number(
    what: str,
    ours: float | Mean,
    *,
    published: Published | None = None,
    computed: float | Mean | None = None,
    form: str = "{:.2f}",
    within: float = CLOSE,
    strict: bool = False,
    why: str = "",
    known: str = "",
) -> Row:
    """A number, and the one that it should be: the published one, or if that is words or none, the computed one.

    They agree if the ratio is `within` so much of one, or if the interval of our draws has the other. `strict` is for
    many draws of exactly what is computed: they may be off by three standard errors.
    """
    printed = published.value if published and not isinstance(published.value, str) else None
    compared = printed if printed is not None else middle(computed) if computed is not None else None
    if compared is None:
        raise ValueError(f"{what}: nothing to compare with")
    off, mean = abs(middle(ours) - compared), middle(ours)
    if strict and isinstance(ours, Mean):
        agrees = off <= STRICT * ours.error
    else:
        agrees = off <= within * compared or (isinstance(ours, Mean) and off <= ours.half)
    cells = [*printing(published, form), "" if computed is None else shown(computed, form), shown(ours, form)]
    return Row(what, *cells, mean / compared, agrees, why, known)


def shape(
    what: str,
    ours: str,
    agrees: bool,
    *,
    published: Published | None = None,
    computed: str = "",
    why: str = "",
    known: str = "",
) -> Row:
    """A rank order, a range, or that something happens."""
    return Row(what, *printing(published), computed, ours, None, agrees, why, known)


def absent(what: str, why: str, *, published: Published | None = None) -> Row:
    return Row(what, *printing(published), "", "not shown", None, None, why)


def middle(value: float | Mean) -> float:
    return value.mean if isinstance(value, Mean) else value


def shown(value: float | Mean, form: str) -> str:
    return f"{form.format(value.mean)} ± {form.format(value.half)}" if isinstance(value, Mean) else form.format(value)


def printing(published: Published | None, form: str = "{}") -> tuple[str, str]:
    """The cell, and the place."""
    if not published:
        return "", ""
    value = published.value
    return value if isinstance(value, str) else form.format(value), published.place
