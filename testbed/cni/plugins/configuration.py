"""Reading of a plugin's configuration: one message lists all errors."""

from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

from pydantic import BeforeValidator, ValidationError

from testbed.cni.objects.kinds import Part
from testbed.cni.plugins.contract import Refusal
from testbed.cni.spec.codes import CONFIG
from testbed.documents.problems import dotted, wrong_value
from testbed.topology.values import parse_delay

SPECIFIED = frozenset(
    ("cniVersion", "name", "type", "prevResult", "runtimeConfig", "args", "capabilities", "dns", "ipam", "ipMasq")
)
"""The keys that the specification defines for every plugin, as are those that begin with ``cni.dev/``."""
Seconds = Annotated[float, BeforeValidator(parse_delay)]
"""A duration with a unit: ``100ms``."""


APart = TypeVar("APart", bound=Part)


def own(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys of a plugin's configuration that are the plugin's own."""
    return {key: value for key, value in config.items() if key not in SPECIFIED and not key.startswith("cni.dev/")}


def validated(part: type[APart], given: Any, at: str = "") -> APart:
    """Read a part, which is at the key `at` of the configuration. Refusal with all errors in it."""
    try:
        return part.model_validate(given)
    except ValidationError as error:
        wrong = []
        for detail in error.errors(include_url=False):
            name = dotted((at, *detail["loc"])) if at else dotted(detail["loc"])
            texts = {"missing": f"{name} is missing", "extra_forbidden": f"{name} is unknown"}
            text = texts.get(detail["type"]) or wrong_value(detail, name)
            wrong.append(f"{name}: {text}" if detail["type"] == "value_error" else text)
        raise Refusal(CONFIG, "; ".join(wrong)) from None
