"""Settings of UCX over which a job is run: ``ucx_timeout=20ms,1s,ucx_retries=2,6``."""

import re
from collections.abc import Container, Mapping, Sequence

from testbed.errors import InputError, did_you_mean

TIME = re.compile(r"(\d+(?:\.\d+)?)(us|ms|s)")
VARIABLES = {"ucx_timeout": "UCX_RC_VERBS_TIMEOUT", "ucx_retries": "UCX_RC_VERBS_RETRY_COUNT"}
DEFAULTS = {"ucx_timeout": ["20ms", "100ms", "1s"], "ucx_retries": ["2", "6"]}
"""Values of a setting that is named without any."""


def axes(texts: Sequence[str], environment: Container[str]) -> dict[str, list[str]]:
    """Return the values of each setting. A comma stands before a value, or before the next setting. InputError for a
    setting whose variable is set in the environment, too."""
    found: dict[str, list[str]] = {}
    for text in texts:
        key = ""
        for word in filter(None, (part.strip() for part in text.split(","))):
            named, equals, value = word.partition("=")
            if equals or word in VARIABLES or not key:
                key = named
                check_name(key, found)
                found[key] = []
            if equals or word not in VARIABLES:
                check_value(key, value if equals else word, found[key])
                found[key].append(value if equals else word)
    if texts and not found:
        raise InputError("--matrix names no setting", hint=f"Settings: {', '.join(VARIABLES)}.")
    for key in found:
        if (variable := VARIABLES[key]) in environment:
            raise InputError(f"--env sets {variable}, and --matrix varies it as {key}", hint="Leave out one of them.")
    return {key: values or DEFAULTS[key] for key, values in found.items()}


def check_name(key: str, found: dict[str, list[str]]) -> None:
    if key not in VARIABLES:
        hint = f"{did_you_mean(key, VARIABLES)}Settings: {', '.join(VARIABLES)}."
        raise InputError(f"--matrix: there is no setting {key!r}", hint=hint)
    if key in found:
        raise InputError(f"--matrix: {key} is given twice")


def check_value(key: str, value: str, there: Sequence[str]) -> None:
    if key == "ucx_timeout" and not (TIME.fullmatch(value) and float(TIME.fullmatch(value)[1])):  # type: ignore[index]
        raise InputError(f"--matrix: ucx_timeout={value} is not a time for UCX", hint="Such as 500us, 20ms, 1s.")
    if key == "ucx_retries" and not re.fullmatch("[0-7]", value):
        hint = "From 0 to 7; soft-RoCE retries for ever with 7."
        raise InputError(f"--matrix: ucx_retries={value} is not a number of retries", hint=hint)
    if value in there:
        raise InputError(f"--matrix: {key}={value} is given twice")


def variables(point: Mapping[str, str]) -> dict[str, str]:
    return {VARIABLES[key]: value for key, value in point.items()}
