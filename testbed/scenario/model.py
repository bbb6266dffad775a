"""Scenarios: one sequence of steps on a topology, run in variants, each with the outcome it expects."""

import inspect
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from typing import Any, ClassVar, Generic, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationError
from typing_extensions import TypeVar  # typing's has a default from Python 3.13 on

from testbed.errors import InputError, did_you_mean
from testbed.lab import Lab
from testbed.scenario.run import Run, Variant
from testbed.switch.profile import Profile, profile


class Parameters(BaseModel):
    """Parameters of a scenario: fields with a unit in their description and a default. `--set` changes the default."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


P = TypeVar("P", bound=Parameters, default=Parameters)


class Scenario(ABC, Generic[P]):
    """Subclass it once in a scenario.py, ``Scenario[Settings]`` if it has parameters: a class derived from
    `Parameters`.

    `testbed describe` shows the class's docstring. Its first line is the title.
    """

    title: ClassVar[str] = ""
    """Default: the first line of the docstring."""
    tags: ClassVar[tuple[str, ...]] = ()
    topology: ClassVar[str] = "topology.clab.yml"
    """The lab's file, beside scenario.py. Empty: there is none, and the user gives one."""
    limit_s: ClassVar[float] = 7 * 86400
    """Virtual seconds after which a variant counts as hung."""
    busy_limit_s: ClassVar[float | None] = None
    """Virtual seconds for which a variant may keep the CPU busy without a pause and without an event; more counts as
    spinning. None: 60, and 600 with `training`."""
    training: ClassVar[bool] = False
    """True if it starts training jobs (testbed.workload.jobs), which find torch imported."""
    sealed: ClassVar[bool] = False
    """True if its lab hides something from those who work on it: their programs see a node only, and nothing of the
    machine (docs/security.md)."""
    packages: ClassVar[tuple[str, ...]] = ()
    """Debian packages that it needs beside those of the image. The first run adds them, in seconds."""
    images: ClassVar[tuple[str, ...]] = ()
    """Images of the containers of its pods, beside those in its topology."""
    variants: ClassVar[tuple[Variant, ...]]
    compared: ClassVar[str] = ""
    """The variant that `testbed matrix` runs by default; without it, the first."""
    parameters: ClassVar[type[Parameters]] = Parameters
    """Default: those in the brackets of ``Scenario[Settings]``."""
    profiled: ClassVar[tuple[str, ...]] = ("leaf",)
    """The switches whose profile is the parameter `profile`, if there is one."""
    profile_values: ClassVar[tuple[str, ...]] = ()
    """Parameters that replace the value of that profile with their name, such as `arp_age`, unless they are None."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        for base in vars(cls).get("__orig_bases__", ()):
            if get_origin(base) is Scenario and "parameters" not in vars(cls):
                (cls.parameters,) = get_args(base)

    def topology_for(self, parameters: P) -> str:
        """Return the lab's file, where it depends on the parameters."""
        return self.topology

    def profiles(self, parameters: P) -> Mapping[str, Profile]:
        """Return the profiles of switches that depend on the parameters, by the switch's name."""
        values = parameters.model_dump()
        if "profile" not in values:
            return {}
        given = {name: values[name] for name in self.profile_values if values[name] is not None}
        return dict.fromkeys(self.profiled, profile(values["profile"]).replace(**given))

    @classmethod
    def prepare(cls, lab: Lab) -> object:
        """Do in the lab, which is up, what every variant begins with. The result is `run.prepared`. It comes before a
        variant is chosen, so variants of one lab share it."""
        return None

    @abstractmethod
    def run(self, run: Run, parameters: P) -> None:
        """Run a variant; report with `run.observe` what users see."""

    @classmethod
    def variant(cls, name: str) -> Variant:
        return next(variant for variant in cls.variants if variant.name == name)

    @classmethod
    def settle(cls, variant: Variant, settings: Mapping[str, Any]) -> Parameters:
        """Return the variant's parameters with `settings` on top; raise InputError for one that does not fit."""
        try:
            return cls.parameters.model_validate({**variant.settings, **settings})
        except ValidationError as error:
            known = list(cls.parameters.model_fields)
            found = [(".".join(map(str, e["loc"])), e) for e in error.errors()]
            unknown = [key for key, e in found if e["type"] == "extra_forbidden"]
            problems = [
                f"there is no {key!r}" if key in unknown else ": ".join(filter(None, (key, e["msg"])))
                for key, e in found
            ]
            hint = f"{did_you_mean(unknown[0], known) if unknown else ''}Parameters: {', '.join(known) or 'none'}."
            raise InputError(f"parameters of variant {variant.name}: {'; '.join(problems)}", hint=hint) from error

    @classmethod
    def changes(cls, variant: Variant, chosen: Mapping[str, Any], named: Collection[str]) -> dict[str, Any]:
        """Return the variant's own settings and the user's. Its own define it: they win, unless the user named it."""
        own = cls.settle(variant, {}).model_dump(mode="json", include=set(variant.settings))
        return {**own, **chosen} if variant.name in named else {**chosen, **own}

    @classmethod
    def words(cls) -> tuple[str, str]:
        """Return the title, and the text below it."""
        text = inspect.cleandoc(cls.__doc__ or "")
        if cls.title:
            return cls.title, text
        first, _, rest = text.partition("\n\n")
        return " ".join(first.split()).removesuffix("."), rest
