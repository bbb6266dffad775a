"""Bundles as a real cluster gives them, made of a run of collected/: without the lab's knowledge of names and clocks.

python tests/diagnosis/bundles.py VARIANT_DIRECTORY BUNDLE
"""

import json
import re
import shutil
import sys
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

AHEAD_S = {"n1": 0.0, "n2": 1.7, "n3": -2.4, "n4": 0.9, "leaf1": 3.2, "leaf2": -1.1}
"""The seconds by which each node's clock is ahead."""
DATE = re.compile(r"(### date \+%s\.%N\n)(\d+\.\d+)")


def _later(seconds: float, found: re.Match[str]) -> str:
    return f"{found[1]}{float(found[2]) + seconds:.9f}"


def nxos(name: str, text: str, ahead: float, cables: dict[str, str]) -> str:
    """Return what a switch with NX-OS prints, of what the lab's printed."""
    found = dict(re.findall(r"### (.*)\n(.*)\n", text))
    neighbours, macs = (json.loads(found[key]) for key in ("ip -j -s neighbour", "bridge -j -s fdb"))
    now = datetime.fromtimestamp(float(found["date +%s.%N"]) + ahead, UTC)
    arp = [
        f"{one['dst']:<15} {timedelta(seconds=one['updated'])!s:0>8}  {dots(one['lladdr'])}  {one['dev'].title()}"
        for one in neighbours
        if one["dev"].startswith("vlan") and "lladdr" in one
    ]
    fdb = [
        f"*   {one['vlan']:<4}   {dots(one['mac'])}   dynamic  0         F      F    Eth1/{one['ifname'][1:]}"
        for one in macs
        if one["state"] != "permanent" and "vlan" in one
    ]
    return "\n".join(
        [
            f"{name}# show clock",
            f"{now:%H:%M:%S.%f}"[:-3] + f" UTC {now:%a %b %d %Y}",
            f"{name}# show ip arp",
            "",
            "Flags: * - Adjacencies learnt on non-active FHRP router",
            "",
            "IP ARP Table for context default",
            f"Total number of entries: {len(arp)}",
            "Address         Age       MAC Address     Interface       Flags",
            *arp,
            f"{name}# show mac address-table",
            "Legend:",
            "        * - primary entry, G - Gateway MAC, (R) - Routed MAC, O - Overlay MAC",
            "        age - seconds since last seen,+ - primary entry using vPC Peer-Link,",
            "        (T) - True, (F) - False, C - ControlPlane MAC, ~ - vsan",
            "   VLAN     MAC Address      Type      age     Secure NTFY Ports",
            "---------+-----------------+--------+---------+------+----+------------------",
            *fdb,
            f"{name}# show lldp neighbors",
            "Capability codes:",
            "  (R) Router, (B) Bridge, (T) Telephone, (C) DOCSIS Cable Device",
            "  (W) WLAN Access Point, (P) Repeater, (S) Station, (O) Other",
            "Device ID            Local Intf      Hold-time  Capability  Port ID",
            *(
                f"{peer.partition(':')[0]:<20} Eth1/{port[1:]:<11} 120                    {long(peer)}"
                for port, peer in cables.items()
            ),
            f"Total entries displayed: {len(cables)}",
            f"{name}#",
            "",
        ]
    )


def long(peer: str) -> str:
    node, _, port = peer.partition(":")
    return f"Eth1/{port[1:]}" if node.startswith("leaf") else port


def dots(mac: str) -> str:
    digits = mac.replace(":", "")
    return ".".join(digits[at : at + 4] for at in (0, 4, 8))


def make(run: Path, bundle: Path) -> None:
    for place in "hosts", "switches", "jobs/train":
        (bundle / place).mkdir(parents=True)
    plan = json.loads((run / "topology.json").read_text())
    for path in sorted(run.glob("*.txt")):
        switch = path.stem.startswith("leaf")
        text = path.read_text()
        if switch:
            cables = {
                row["interface"]: row["peer"] for row in plan["interfaces"] if row["node"] == path.stem and row["peer"]
            }
            (bundle / "switches" / path.name).write_text(nxos(path.stem, text, AHEAD_S[path.stem], cables))
            continue
        asked = re.search(r"### date \+%s\.%N\n(\d+\.\d+)", text)
        assert asked
        text = text.replace("ASKED", asked[1], 1)
        text = DATE.sub(partial(_later, AHEAD_S[path.stem]), text)
        (bundle / "hosts" / path.name).write_text(text)
    hosts = ["n1", "n2", "n3", "n4"]
    (bundle / "jobs/train/hosts").write_text("".join(f"{host}\n" for host in hosts))
    shutil.copy(run / "status", bundle / "jobs/train")
    for log in sorted((run / "job").glob("rank-*.log")):
        shutil.copy(log, bundle / "jobs/train" / log.name)


if __name__ == "__main__":
    make(Path(sys.argv[1]), Path(sys.argv[2]))
