"""Transcripts: commands with what they printed, from collect.sh or from a terminal."""

import re
from collections.abc import Iterator

OURS = re.compile(r"### (?P<command>\S.*)")
"""The line of collect.sh before what a command prints."""
HERE = r"(?:\([\w.-]{1,64}\) ?)?(?:\[[^\]\n]{1,99}\]|[\w.@:~/()-]{0,99}[\w~)/])"
"""What stands before the sign of a prompt, as `user@gpu1:~` and `[root@gpu1 ~]`; nothing of a bare one."""
INSIDE = r"(?:kubectl|oc) [^\n]{0,200} -- |(?:docker|podman) exec (?:-\w+ )*\S+ |ip netns exec \S+ "
"""What runs a command in a pod, a container or a namespace."""
PROMPT = re.compile(
    rf"(?:{HERE})?\s?[#>$]\s?(?:sudo )?(?:{INSIDE})?"
    r"(?P<command>(?:show|sh|ip|bridge|rdma|ethtool|lldpctl|lldpcli|date|pfcwd|route|net|nv|arp|ifconfig|ibdev2netdev|(?:\S{0,99}/)?show_gids"
    r"|clagctl|cat /proc/net/bonding/\S+|grep .*counters)\b.*)"
)
"""A line of a terminal in which a command was typed."""
IDLE = re.compile(rf"{HERE}\s?[#>$]\s*")
"""One in which none was."""
PAGER = re.compile(r"^[ \x08]*-{2}\s?More\s?-{2}[ \x08\r]*(?:\n|(?=\S))", re.MULTILINE | re.IGNORECASE)
"""What a terminal shows between two pages."""


def sections(text: str) -> Iterator[tuple[str, str]]:
    """Yield commands in their order, each with its output."""
    text = PAGER.sub("", text)
    command = ""
    lines: list[str] = []
    for line in text.replace("\r", "").split("\n"):
        begun = OURS.fullmatch(line) or PROMPT.fullmatch(line.rstrip())
        if begun:
            if command:
                yield command, "\n".join(lines)
            command, lines = re.sub(r"^sh\b", "show", " ".join(begun["command"].split())), []
        elif not IDLE.fullmatch(line):
            lines.append(line)
    if command:
        yield command, "\n".join(lines)
