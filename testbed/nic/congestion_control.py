"""How NICs control congestion: DCQCN and TIMELY with their published values, and the law by which they are scaled.

Sources: Zhu et al., "Congestion Control for Large-Scale RDMA Deployments", SIGCOMM 2015, sections 3 and 5; Mittal et
al., "TIMELY: RTT-based Congestion Control for the Datacenter", SIGCOMM 2015, section 4.3.
"""

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from testbed.errors import InputError, did_you_mean
from testbed.kernel.lossless.layout import constants

Factor = Annotated[float, Field(ge=1, le=100_000)]
Microseconds = Annotated[float, Field(gt=0, le=1e7)]
BitsPerSecond = Annotated[float, Field(gt=0, le=1e12)]
Share = Annotated[float, Field(gt=0, lt=1)]
ONE = 1 << 16
"""The number 1 as a share."""


class Algorithm(BaseModel):
    """The parameters of an algorithm at a link's own speed. In a lab that is `scale` times slower all bytes stay as
    they are, times are multiplied by it, rates divided: one is the other, seen in slow motion."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False)

    name: ClassVar[str]
    answers_marks: ClassVar[bool]
    """True if receivers answer marked packets with CNPs."""

    scale: Factor
    """Factor by which the lab's links are slower than the links for which the other values are meant: 400 is 100 Mbit/s
    for 40 Gbit/s."""

    @abstractmethod
    def numbers(self) -> dict[str, int]:
        """Return the values of its structure in bpf/layout.h, in nanoseconds and bits per second of the lab."""

    def slowed(self, microseconds: float) -> int:
        return round(microseconds * 1e3 * self.scale)

    def divided(self, bits_per_second: float) -> int:
        return max(1, round(bits_per_second / self.scale))


class Dcqcn(Algorithm):
    """Marks at switches, CNPs of receivers, rates of queue pairs at senders."""

    name = "dcqcn"
    answers_marks = True

    scale: Factor = 400
    g: Share = 1 / 256
    """The gain of alpha, the share of marked packets."""
    cnp_us: Microseconds = 50
    """Minimum time between two CNPs of a queue pair (N)."""
    alpha_us: Microseconds = 55
    """alpha falls after this time without a CNP (K)."""
    increase_us: Microseconds = 55
    """The rate rises after this time without a CNP (T)."""
    increase_bytes: Annotated[int, Field(ge=0, le=1 << 40)] = 10_000_000
    """The rate also rises after this number of bytes (B); 0: it does not."""
    stages: Annotated[int, Field(ge=1, le=100)] = 5
    """Number of rises towards the rate before the last cut; after them the target rises, too (F)."""
    additive_bps: BitsPerSecond = 40e6
    """Step by which the target rises (R_AI)."""
    hyper_bps: BitsPerSecond = 400e6
    """Step by which it rises when both the timer and the counter are past `stages` (R_HAI)."""
    least_bps: BitsPerSecond = 40e6
    """Minimum rate."""
    cnp_per: Literal["qp", "address", "port"] = "qp"
    """What `cnp_us` is counted for: each queue pair, each address that CNPs go to (ConnectX-4 Lx), or the whole port
    (ConnectX-5 and 6 Dx; Lumina, SIGCOMM 2023, and its code)."""
    min_dec_fac: Annotated[float, Field(ge=0, le=100)] = 0
    """A cut leaves at least these percent of the rate. The paper has no such bound."""
    initial_alpha: Annotated[float, Field(gt=0, le=1)] = 1
    """alpha at the first CNP."""
    first_bps: Annotated[float, Field(ge=0, le=1e12)] = 0
    """Rate that the first CNP cuts; 0: that of the link."""
    monitor_us: Annotated[float, Field(ge=0, le=1e7)] = 0
    """Minimum time between two cuts; CNPs in it change nothing."""
    clamp_tgt_rate: bool = True
    """True if each cut sets the target to the rate before it, as in the paper."""
    clamp_tgt_rate_after_time_inc: bool = True
    """Without `clamp_tgt_rate`: true if a cut sets the target after a rise by the timer, too, not only by bytes."""

    def numbers(self) -> dict[str, int]:
        return {
            "cnp_per": constants()[f"PER_{self.cnp_per.upper()}"],
            "min_dec": round(self.min_dec_fac / 100 * ONE),
            "initial_alpha": round(self.initial_alpha * ONE),
            "first": self.divided(self.first_bps) if self.first_bps else 0,
            "monitor_ns": self.slowed(self.monitor_us),
            "clamp": int(self.clamp_tgt_rate),
            "clamp_after_time": int(self.clamp_tgt_rate_after_time_inc),
            "g": max(1, round(self.g * ONE)),
            "alpha_ns": self.slowed(self.alpha_us),
            "increase_ns": self.slowed(self.increase_us),
            "increase_bytes": self.increase_bytes,
            "stages": self.stages,
            "ai": self.divided(self.additive_bps),
            "hai": self.divided(self.hyper_bps),
            "least": self.divided(self.least_bps),
            "cnp_ns": self.slowed(self.cnp_us),
        }


class Timely(Algorithm):
    """Rates of queue pairs by the round trips that their sender measures. Responses to READs are not controlled: nobody
    acknowledges them."""

    name = "timely"
    answers_marks = False

    scale: Factor = 100
    low_us: Microseconds = 50
    """Below this round trip the rate rises at any gradient (T_low)."""
    high_us: Microseconds = 500
    """Above this round trip the rate falls at any gradient (T_high)."""
    least_rtt_us: Microseconds = 20
    """Round trip of an idle network, the unit of the gradient (minRTT)."""
    beta: Share = 0.8
    """Factor by which the rate falls (beta)."""
    ewma: Annotated[float, Field(gt=0, le=1)] = 0.875
    """The weight of the last change of the round trip in the gradient (alpha; the value of "ECN or Delay", CoNEXT
    2016)."""
    additive_bps: BitsPerSecond = 10e6
    """Step by which the rate rises after a round trip (delta)."""
    hyper_after: Annotated[int, Field(ge=1, le=1000)] = 5
    """After this number of round trips in a row without a rise, the rate rises `hyper_steps` times as much."""
    hyper_steps: Annotated[int, Field(ge=1, le=1000)] = 5
    """See `hyper_after` (N)."""
    least_bps: BitsPerSecond = 10e6
    """Minimum rate."""

    def numbers(self) -> dict[str, int]:
        return {
            "low_ns": self.slowed(self.low_us),
            "high_ns": self.slowed(self.high_us),
            "least_rtt_ns": self.slowed(self.least_rtt_us),
            "beta": round(self.beta * ONE),
            "ewma": round(self.ewma * ONE),
            "ai": self.divided(self.additive_bps),
            "hyper_after": self.hyper_after,
            "hyper_steps": self.hyper_steps,
            "least": self.divided(self.least_bps),
        }


class Hpcc(Algorithm):
    """Windows of queue pairs by the telemetry (INT) of each packet's path: Li et al., "HPCC: High Precision Congestion
    Control", SIGCOMM 2019, algorithm 1. Marks have no part in it."""

    name = "hpcc"
    answers_marks = False

    scale: Factor = 400
    base_rtt_us: Microseconds = 13
    """Round trip of an idle network (T): at least that of the lab's longest path."""
    eta: Share = 0.95
    """The part of a link's bandwidth that is to be in use (eta)."""
    stages: Annotated[int, Field(ge=0, le=100)] = 5
    """Number of rises in a row before the window also grows in proportion (maxStage)."""
    additive_bps: BitsPerSecond = 50e6
    """Step by which it rises, as a rate: W_AI is what that sends in a base round trip."""
    least_bps: BitsPerSecond = 50e6
    """Minimum rate."""

    def numbers(self) -> dict[str, int]:
        rtt_s = self.base_rtt_us * 1e-6  # bytes of rate times time do not depend on the scale
        return {
            "rtt_ns": self.slowed(self.base_rtt_us),
            "eta": round(self.eta * ONE),
            "stages": self.stages,
            "ai_bytes": max(1, round(self.additive_bps / 8 * rtt_s)),
            "least_bytes": max(1, round(self.least_bps / 8 * rtt_s)),
        }


NVIDIA: Mapping[str, tuple[str, Callable[[float], float]]] = {
    "dce_tcp_g": ("g", lambda value: 1 - value / 1024),
    "dce_tcp_rtt": ("alpha_us", float),
    "initial_alpha_value": ("initial_alpha", lambda value: (value + 1) / 1024),
    "min_time_between_cnps": ("cnp_us", float),
    "rate_reduce_monitor_period": ("monitor_us", float),
    "rate_to_set_on_first_cnp": ("first_bps", lambda value: value * 1e6),
    "rpg_ai_rate": ("additive_bps", lambda value: value * 1e6),
    "rpg_byte_reset": ("increase_bytes", float),
    "rpg_hai_rate": ("hyper_bps", lambda value: value * 1e6),
    "rpg_min_dec_fac": ("min_dec_fac", float),
    "rpg_min_rate": ("least_bps", lambda value: value * 1e6),
    "rpg_threshold": ("stages", float),
    "rpg_time_reset": ("increase_us", float),
}
"""DCQCN's values under the names and in the units of NVIDIA's NICs (DOCA, "DCQCN CC Parameters"; Mbit/s, us, 1024ths);
`clamp_tgt_rate` and `clamp_tgt_rate_after_time_inc` have the same names here."""


def _by_own_names(values: Mapping[str, Any], where: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in values.items():
        own, convert = NVIDIA.get(name, (name, None))
        if own in found:
            raise InputError(f"{where}: {name!r} is {own!r} under another name: keep one of them")
        number = isinstance(value, int | float) and not isinstance(value, bool)
        found[own] = convert(value) if convert and number else value
    return found


ALGORITHMS: Mapping[str, type[Algorithm]] = {kind.name: kind for kind in (Dcqcn, Timely, Hpcc)}


def congestion(name: str, values: Mapping[str, Any], where: str) -> Algorithm | None:
    """Return an algorithm with these values in the place of the published ones; for ``none`` nothing. InputError names
    the value that is wrong."""
    if name == "none":
        return None
    kind = ALGORITHMS[name]
    if kind is Dcqcn:
        values = _by_own_names(values, where)
    if unknown := sorted(values.keys() - kind.model_fields.keys()):
        hint = f"{did_you_mean(unknown[0], kind.model_fields)}It has: {', '.join(kind.model_fields)}."
        raise InputError(f"{where}: {name} has no value {unknown[0]!r}", hint=hint)
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        wrong = error.errors()[0]
        raise InputError(f"{where}: {wrong['loc'][0]}: {wrong['msg']}") from None
