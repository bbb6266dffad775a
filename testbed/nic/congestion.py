"""How NICs react to congestion marks: DCQCN with its published values, and the law by which they are scaled.

Source: Zhu et al., "Congestion Control for Large-Scale RDMA Deployments", SIGCOMM 2015, sections 3 and 5.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from testbed.errors import InputError, did_you_mean

Factor = Annotated[float, Field(ge=1, le=100_000)]
Microseconds = Annotated[float, Field(gt=0, le=1e7)]
BitsPerSecond = Annotated[float, Field(gt=0, le=1e12)]


class Dcqcn(BaseModel):
    """The parameters of DCQCN at a link's own speed. In a lab that is `scale` times slower all bytes stay as they are,
    times are multiplied by it, rates divided: one is the other, seen in slow motion."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False)

    scale: Factor = 400
    """How many times slower the lab's links are than those that the other values are for: 400 is 100 Mbit/s for
    40 Gbit/s."""
    g: Annotated[float, Field(gt=0, lt=1)] = 1 / 256
    """The gain of alpha, the share of marked packets."""
    cnp_us: Microseconds = 50
    """A receiver sends one CNP of a queue pair in so long at most (N)."""
    alpha_us: Microseconds = 55
    """Without a CNP for so long alpha falls (K)."""
    increase_us: Microseconds = 55
    """Without a CNP for so long the rate rises (T)."""
    increase_bytes: Annotated[int, Field(ge=0, le=1 << 40)] = 10_000_000
    """So does it after so many bytes (B); 0: not."""
    stages: Annotated[int, Field(ge=1, le=100)] = 5
    """Rises towards the rate before the last cut, after which the target rises, too (F)."""
    additive_bps: BitsPerSecond = 40e6
    """By which the target rises (R_AI)."""
    hyper_bps: BitsPerSecond = 400e6
    """By which it rises when both the timer and the counter are past `stages` (R_HAI)."""
    least_bps: BitsPerSecond = 40e6
    """Below which no rate falls."""

    def numbers(self) -> dict[str, int]:
        """Return the values of struct dcqcn, in nanoseconds and bits per second of the lab."""
        slower = self.scale
        return {
            "g": max(1, round(self.g * (1 << 16))),
            "alpha_ns": round(self.alpha_us * 1e3 * slower),
            "increase_ns": round(self.increase_us * 1e3 * slower),
            "increase_bytes": self.increase_bytes,
            "stages": self.stages,
            "ai": max(1, round(self.additive_bps / slower)),
            "hai": max(1, round(self.hyper_bps / slower)),
            "least": max(1, round(self.least_bps / slower)),
            "cnp_ns": round(self.cnp_us * 1e3 * slower),
        }


def dcqcn(values: Mapping[str, Any], where: str) -> Dcqcn:
    """Return the parameters with these in the place of the published ones. InputError names the one that is wrong."""
    if unknown := sorted(values.keys() - Dcqcn.model_fields.keys()):
        known = ", ".join(Dcqcn.model_fields)
        hint = f"{did_you_mean(unknown[0], Dcqcn.model_fields)}It has: {known}."
        raise InputError(f"{where}: DCQCN has no value {unknown[0]!r}", hint=hint)
    try:
        return Dcqcn.model_validate(values)
    except ValidationError as error:
        wrong = error.errors()[0]
        raise InputError(f"{where}: {wrong['loc'][0]}: {wrong['msg']}") from None
