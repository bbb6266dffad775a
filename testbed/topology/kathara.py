"""Labs of Kathará in our format: a directory with lab.conf, a startup script and a directory of files for each device.

Source: Kathará's man pages (kathara-lab.conf, kathara-lab-dirs) and its parser, 3.8. Tests compare this one with it.
"""

import os
import re
import shlex
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from testbed.documents import text
from testbed.documents.text import Mark, place
from testbed.documents.variables import escaped
from testbed.errors import InputError

CONF = "lab.conf"
IMAGE = "kathara/base"
_LINE = re.compile(
    r"^(?P<key>[a-z0-9_]{1,30})\[(?P<arg>\w+)\]=(?P<quote>[\"']?)(?P<value>[^\"']+)(?P=quote)(\s+#.*)?$", re.ASCII
)
_ABOUT = ("NAME", "DESCRIPTION", "VERSION", "AUTHOR", "EMAIL", "WEB")
_DEPENDENCY = re.compile(r"^(?P<key>\w+):\s?(?P<on>(\w+ ?)+)$")
_RESERVED = ("shared", "_test")
_SWITCHED_OFF = {"0", "f", "false", "n", "no", "off"}
SYSCTLS: dict[str, Any] = {
    "net.ipv4.conf.all.rp_filter": 0,
    "net.ipv4.conf.default.rp_filter": 0,
    "net.ipv4.conf.lo.rp_filter": 0,
    "net.ipv4.ip_forward": 1,
    "net.ipv4.icmp_ratelimit": 0,
}
"""The sysctls of each device (Kathara/manager/docker/DockerMachine.py)."""
WITH_IPV6 = {"net.ipv6.conf.all.forwarding": 1, "net.ipv6.conf.all.accept_ra": 0, "net.ipv6.icmp.ratelimit": 0}
WITHOUT_IPV6 = {"net.ipv6.conf.default.disable_ipv6": 1, "net.ipv6.conf.all.disable_ipv6": 1}
OWNERS = (
    "for name in frr quagga; do if [ -d /etc/$name ]; "
    "then chown -R $name:$name /etc/$name; chmod 640 /etc/$name/*; fi; done"
)
"""The owners that Kathará gives to files of routing daemons."""
NO_EFFECT = {
    "bridged": "a lab ends at its own links",
    "port": "a lab ends at its own links",
    "cpus": "a lab does not limit a device",
    "mem": "a lab does not limit a device",
    "ulimit": "a lab does not limit a device",
    "privileged": "a container has the capabilities that docs/containers.md names",
    "num_terms": "`testbed shell` opens terminals",
    "shell": "`testbed shell` opens the image's shell",
}


@dataclass
class Device:
    interfaces: dict[int, tuple[str, str]] = field(default_factory=dict)
    """(collision domain, MAC or nothing) by number."""
    options: dict[str, str] = field(default_factory=dict)
    sysctls: dict[str, str] = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=dict)
    commands: list[str] = field(default_factory=list)
    volumes: list[tuple[str, str, str]] = field(default_factory=list)


@dataclass
class KatharaLab:
    name: str
    devices: dict[str, Device]
    waits: dict[str, list[str]]
    """The devices that must have started before, by device (lab.dep)."""


def read(directory: Path) -> KatharaLab:
    """Read a lab. InputError for what Kathará refuses, with its line."""
    if not directory.is_dir():
        raise InputError("is no directory of a Kathará lab", where=str(directory))
    file = directory / CONF
    lab = KatharaLab(directory.resolve().name, {}, {})
    for mark, line in _lines(file):
        if match := _LINE.match(line.strip()):
            _set(lab, match, place(str(file), mark))
        elif about := re.match(rf"LAB_({'|'.join(_ABOUT)})=(.*)", line):
            if about[1] == "NAME":
                lab.name = re.sub(r"[\"']", "", about[2]).strip() or lab.name
        elif line.strip() and not line.startswith("#"):
            raise InputError(f"not a line of {CONF}: {text.quoted(line.strip())}", where=place(str(file), mark))
    for name, device in lab.devices.items():
        if sorted(device.interfaces) != [*range(len(device.interfaces))]:
            numbers = ", ".join(map(str, sorted(device.interfaces)))
            raise InputError(f"the interfaces of {name} are not numbered from 0 on: {numbers}", where=str(file))
    if (directory / "lab.dep").is_file():
        _read_dependencies(lab, directory / "lab.dep")
    if not lab.devices:
        raise InputError("the lab has no devices", where=str(file))
    return lab


def _lines(file: Path) -> list[tuple[Mark, str]]:
    data = text.decode(text.read(file, "Kathará lab", CONF), str(file))
    return [(Mark(number, 1), line) for number, line in enumerate(data.splitlines(), start=1)]


def _set(lab: KatharaLab, match: re.Match[str], where: str) -> None:
    name, key, value = match["key"], match["arg"], match["value"].strip()
    if name in _RESERVED:
        raise InputError(f"{name!r} is a reserved name", where=where)
    device = lab.devices.setdefault(name, Device())
    if key.isdecimal():
        domain, _, mac = value.partition("/")
        if not re.fullmatch(r"\w+", domain) or ("/" in value and not mac):
            raise InputError(f"{text.quoted(value)} is not a collision domain such as A, or A/MAC", where=where)
        if int(key) in device.interfaces:
            raise InputError(f"interface {key} of {name} is given twice", where=where)
        if any(domain == other for other, _ in device.interfaces.values()):
            raise InputError(f"{name} is in the collision domain {domain} twice", where=where)
        device.interfaces[int(key)] = domain, mac
    elif key in ("sysctl", "env"):
        option, equals, given = value.partition("=")
        if not equals or (key == "sysctl" and not option.startswith("net.")):
            raise InputError(f"{text.quoted(value)} is not a {key} such as NAME=VALUE", where=where)
        (device.sysctls if key == "sysctl" else device.env)[option.strip()] = given.strip()
    elif key == "exec":
        device.commands.append(value)
    elif key == "volume":
        source, target, mode = [*filter(None, value.split("|")), "ro"][:3] if value.count("|") else ("", "", "")
        if not target:
            raise InputError(f"{text.quoted(value)} is not a volume such as FILE|TARGET|ro", where=where)
        device.volumes.append((source, target, mode))
    else:
        device.options[key] = value


def _read_dependencies(lab: KatharaLab, file: Path) -> None:
    for mark, line in _lines(file):
        if not line.strip() or line.startswith("#"):
            continue
        match = _DEPENDENCY.match(line.strip())
        wanted = [match["key"], *match["on"].split()] if match else []
        unknown = next((name for name in wanted if name not in lab.devices), None)
        if match is None or unknown:
            wrong = f"{unknown!r} is no device of the lab" if unknown else f"not a line of lab.dep: {text.quoted(line)}"
            raise InputError(wrong, where=place(str(file), mark))
        lab.waits.setdefault(match["key"], []).extend(wanted[1:])


def convert(directory: Path, base: Path, *, containers: bool = True) -> str:
    """Return the topology file of a lab, which is to be in the directory `base`. Without `containers` its devices have
    the programs of the lab's machine, and no files of theirs. InputError for what Kathará refuses."""
    return _Conversion(directory, base, containers).text()


class _Conversion:
    def __init__(self, directory: Path, base: Path, containers: bool) -> None:
        self.directory, self.containers = directory, containers
        self.lab = read(directory)
        self.relative = os.path.relpath(directory.resolve(), base.resolve())
        self.notes: list[str] = []

    def text(self) -> str:
        name = re.sub(r"[^A-Za-z0-9]+", "-", self.lab.name).strip("-")[:63].strip("-") or "kathara"
        domains: dict[str, list[str | dict[str, str]]] = {}
        for device, given in self.lab.devices.items():
            for number, (domain, mac) in sorted(given.interfaces.items()):
                end: str | dict[str, str] = f"{device}:eth{number}"
                if mac:
                    end = {"node": device, "interface": f"eth{number}", "mac": mac}
                domains.setdefault(domain, []).append(end)
        nodes: dict[str, Any] = {device: self._node(device, given) for device, given in self.lab.devices.items()}
        links: list[dict[str, Any]] = []
        for domain, ends in domains.items():
            if len(ends) == 2:
                links.append({"endpoints": ends})
                continue
            bridge = re.sub(r"[^A-Za-z0-9-]", "-", domain).strip("-") or "domain"
            while bridge in nodes:
                bridge = f"{bridge}-domain"
            nodes[bridge] = {"kind": "bridge"}
            links += [{"endpoints": [end, f"{bridge}:p{number}"]} for number, end in enumerate(ends, start=1)]
        defaults = {"kind": "linux", "sysctls": SYSCTLS}
        topology = {"defaults": defaults, "nodes": nodes, **({"links": links} if links else {})}
        head = [f"# The Kathará lab in {self.relative}.", *(f"# {_printable(note)}" for note in self.notes)]
        body = yaml.safe_dump({"name": name, "topology": topology}, sort_keys=False, default_flow_style=None, width=120)
        return "\n".join([*head, body])

    def _node(self, name: str, device: Device) -> dict[str, Any]:
        options = dict(device.options)
        found: dict[str, Any] = {}
        image = options.pop("image", IMAGE)
        if self.containers:
            found["image"] = image
        for key, ours in ("entrypoint", "entrypoint"), ("args", "cmd"):
            if (value := options.pop(key, None)) and self.containers:
                found[ours] = value
        ipv6 = options.pop("ipv6", "false").lower() not in _SWITCHED_OFF
        found["sysctls"] = {**(WITH_IPV6 if ipv6 else WITHOUT_IPV6), **device.sysctls}
        if device.env:
            found["env"] = device.env
        if waits := self.lab.waits.get(name):
            found["wait-for"] = waits
        for key, value in options.items():
            why = NO_EFFECT.get(key, "Kathará has no such option")
            self.notes.append(f"{name}: {key}={value} has no effect: {why}.")
        (self._as_container if self.containers else self._as_host)(name, device, found)
        return found

    def _as_container(self, name: str, device: Device, node: dict[str, Any]) -> None:
        """Add what Kathará does in a container that runs: copy files, run scripts."""
        binds, commands = [], []
        if (self.directory / name).is_dir():
            binds.append(f"{self._path(name)}:/hostlab/{name}:ro")
            commands += [f"cp -rL /hostlab/{name}/. /", OWNERS]
        if (self.directory / "shared").is_dir():
            binds.append(f"{self._path('shared')}:/shared")
        for script in "shared.startup", f"{name}.startup":
            if (self.directory / script).is_file():
                binds.append(f"{self._path(script)}:/hostlab/{script}:ro")
                commands.append(f"bash /hostlab/{script}")
        binds += [f"{self._path(source)}:{target}:{mode}" for source, target, mode in device.volumes]
        commands += device.commands
        if binds:
            node["binds"] = binds
        if commands:
            node["exec"] = [_in_shell(command) for command in commands]

    def _as_host(self, name: str, device: Device, node: dict[str, Any]) -> None:
        """Add the scripts: the machine's programs are there, the device's files are not."""
        scripts = [self.directory / script for script in ("shared.startup", f"{name}.startup")]
        texts = ["\n".join(line for _, line in _lines(script)).strip() for script in scripts if script.is_file()]
        if commands := [*filter(None, texts), *device.commands]:
            node["exec"] = [_in_shell(command) for command in commands]
        for what in name, "shared":
            if (self.directory / what).is_dir():
                self.notes.append(f"{name} is no container: it does not have the files of {what}/.")

    def _path(self, source: str) -> str:
        return source if source.startswith(("/", "~")) else os.path.normpath(os.path.join(self.relative, source))


def _in_shell(command: str) -> str:
    """Return a command of a shell for `exec`."""
    command = escaped(command)
    return command if re.fullmatch(r"[\w ./:=,@+-]+", command) else shlex.join(["bash", "-c", command])


def _printable(note: str) -> str:
    return "".join(c if c.isprintable() else " " for c in note)
