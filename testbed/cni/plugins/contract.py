"""CNI's contract from the side of a plugin: the request and the answer (CNI 1.1.0, sections 2 and 5).

One message lists all errors of a configuration.
"""

import json
import os
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BeforeValidator, ValidationError

from testbed.cni.objects.database import StoreError
from testbed.cni.objects.kinds import Part
from testbed.cni.spec import CONFIG, DECODE, ENVIRONMENT, IO, NETNS, OWN, VERSION
from testbed.documents.problems import dotted, wrong_value
from testbed.errors import InputError, TestbedError
from testbed.topology.values import parse_delay

SUPPORTED = ["0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"]
DELEGATE_S = 30.0
"""Seconds that a plugin may take which another one calls."""
CALLER = "CALLER"
"""The variable with the process that executes a plugin for its caller."""
ATTACHMENT = ("CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME", "CNI_PATH")
REQUIRED = {
    "ADD": ATTACHMENT,
    "CHECK": ATTACHMENT,
    "DEL": ("CNI_CONTAINERID", "CNI_IFNAME", "CNI_PATH"),
    "GC": ("CNI_PATH",),
    "STATUS": ("CNI_PATH",),
}
"""The variables that must be in the environment."""

CODES = {InputError: CONFIG, StoreError: IO}
"""The codes of our errors; others have the first of our own codes."""
SPECIFIED = frozenset(
    ("cniVersion", "name", "type", "prevResult", "runtimeConfig", "args", "capabilities", "dns", "ipam", "ipMasq")
)
"""The keys that the specification defines for every plugin, as are those that begin with ``cni.dev/``."""
Seconds = Annotated[float, BeforeValidator(parse_delay)]
"""A duration with a unit: ``100ms``."""
APart = TypeVar("APart", bound=Part)


class Refusal(Exception):  # noqa: N818 (it is the answer, not an accident)
    def __init__(self, code: int, message: str, details: str = "") -> None:
        super().__init__(message)
        self.code, self.message, self.details = code, message, details


@dataclass(frozen=True)
class Call:
    """A request to a plugin. For GC and STATUS container, namespace and interface are empty."""

    command: str
    container: str
    namespace: str
    """The path of the pod's network namespace. At DEL it may be empty."""
    interface: str
    arguments: Mapping[str, str]
    config: Mapping[str, Any]
    environment: Mapping[str, str] = field(default_factory=dict)
    """CNI's variables, and `CALLER`."""

    @property
    def network(self) -> str:
        return str(self.config["name"])

    @property
    def version(self) -> str:
        return str(self.config["cniVersion"])

    def chained(self, plugin: str) -> dict[str, Any]:
        """Return the result of the previous plugins and the pod's namespace. Refusal if one is missing."""
        if not isinstance(result := self.config.get("prevResult"), dict):
            raise Refusal(CONFIG, f"{plugin} must be chained: it needs the result of a plugin before it")
        if not os.path.exists(self.namespace):
            raise Refusal(NETNS, f"network namespace {self.namespace} does not exist")
        return result

    def delegate(self, kind: str, command: str = "") -> dict[str, Any] | None:
        """Execute another plugin with the same configuration, as an IPAM plugin, and return its result. It runs where
        the caller of this one does, with the node's state. Refusal with its error."""
        command = command or self.command
        if "/" in kind:
            raise Refusal(CONFIG, f"invalid plugin name: {kind}")
        files = [Path(directory, kind) for directory in self.environment.get("CNI_PATH", "").split(":")]
        file = next((one for one in files if one.is_file()), None)
        if file is None:
            raise Refusal(CONFIG, f'failed to find plugin "{kind}" in path {[str(one.parent) for one in files]}')
        variables = {key: value for key, value in self.environment.items() if key.startswith("CNI_")}
        done = subprocess.run(
            ["nsenter", "--target", self.environment[CALLER], "--mount", "--net", "--", str(file)],
            input=json.dumps(self.config).encode(),
            env={**variables, "CNI_COMMAND": command, "PATH": os.defpath},
            capture_output=True,
            check=False,
            timeout=DELEGATE_S,
        )
        try:
            answer = json.loads(done.stdout) if done.stdout.strip() else None
        except ValueError:
            raise Refusal(DECODE, f"{kind} ({command}): its answer is not JSON") from None
        if done.returncode:
            code, message = (answer or {}).get("code", OWN), (answer or {}).get("msg", "")
            raise Refusal(code, message or f"{kind} ({command}) ended with status {done.returncode}")
        return answer

    def valid(self) -> set[tuple[str, str]]:
        """Return container and interface of each attachment that GC must keep."""
        entries = self.config.get("cni.dev/valid-attachments", self.config.get("cni.dev/attachments"))
        try:
            return {(str(entry["containerID"]), str(entry["ifname"])) for entry in entries}
        except (TypeError, KeyError):
            raise Refusal(CONFIG, "cni.dev/valid-attachments is not a list of attachments") from None


Plugin = Callable[[Call], Mapping[str, Any] | None]
"""A function that executes a call and returns the result of ADD, else None. Raises Refusal, or a TestbedError."""


def answer(plugin: Plugin, environment: Mapping[str, str], stdin: bytes) -> tuple[int, str]:
    """Call a plugin; return its exit status and standard output."""
    version = SUPPORTED[-1]
    if environment.get("CNI_COMMAND") == "VERSION":
        return 0, json.dumps({"cniVersion": version, "supportedVersions": SUPPORTED})
    try:
        config = read(stdin)
        if config.get("cniVersion") in SUPPORTED:
            version = str(config["cniVersion"])
        result = plugin(understood(environment, config))
        return 0, json.dumps(result) if result is not None else ""
    except Refusal as refusal:
        code, message, details = refusal.code, refusal.message, refusal.details
    except TestbedError as error:
        code = next((code for kind, code in CODES.items() if isinstance(error, kind)), OWN)
        message, details = str(error), error.hint
    except UnicodeEncodeError:
        code, message, details = DECODE, "a string of the configuration is not Unicode: it holds half a character", ""
    except subprocess.TimeoutExpired as error:
        code, message, details = OWN, f"{error.cmd[-1]} was still running after {DELEGATE_S:g} s", ""
    except OSError as error:
        code, message, details = OWN, f"the kernel refused: {error.strerror}", ""
    return 1, error_object(code, message, details, version)


def error_object(code: int, message: str, details: str = "", version: str = SUPPORTED[-1]) -> str:
    return json.dumps({"cniVersion": version, "code": code, "msg": message, "details": details})


def read(stdin: bytes) -> dict[str, Any]:
    try:
        config = json.loads(stdin)
    except (ValueError, RecursionError) as error:
        raise Refusal(DECODE, f"the configuration is not JSON: {error}") from None
    if not isinstance(config, dict):
        raise Refusal(DECODE, "the configuration is not a JSON object")
    return config


def understood(environment: Mapping[str, str], config: Mapping[str, Any]) -> Call:
    """Return the call. Refusal if no plugin could execute it."""
    command = environment.get("CNI_COMMAND", "")
    if command not in REQUIRED:
        raise Refusal(ENVIRONMENT, f"unknown CNI_COMMAND: {command}")
    missing = [name for name in REQUIRED[command] if not environment.get(name)]
    if missing:
        raise Refusal(ENVIRONMENT, f"required env variables [{','.join(missing)}] missing")
    if not config.get("name"):
        raise Refusal(CONFIG, "the network's name is missing")
    version = config.get("cniVersion")
    if version not in SUPPORTED:
        details = f"config is {json.dumps(version)}, plugin supports {json.dumps(SUPPORTED)}"
        raise Refusal(VERSION, "incompatible CNI versions", details)
    names = ("CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME", "CNI_ARGS")
    container, netns, interface, arguments = (environment.get(name, "") for name in names)
    return Call(command, container, netns, interface, pairs(arguments), config, environment)


def pairs(text: str) -> dict[str, str]:
    """Read CNI_ARGS: ``K=V;K=V``."""
    found = {}
    for pair in filter(None, text.split(";")):
        name, equals, value = pair.partition("=")
        if not equals:
            raise Refusal(ENVIRONMENT, f"CNI_ARGS: {pair!r} is not of the form KEY=VALUE")
        found[name] = value
    return found


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
