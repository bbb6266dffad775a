"""Bundles of clusters whose hosts have bonds: two links to one switch, or one to each of two."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HOSTS = ("gpu1", "gpu2", "gpu3")
RETRIES = "NCCL WARN NET/IB : Got completion with error 12, opcode 1, len 0, vendor err 129\n"


def mac(host: str) -> str:
    return f"0c:42:a1:00:0{host[-1]}:01"


def dots(text: str) -> str:
    digits = text.replace(":", "")
    return ".".join(digits[at : at + 4] for at in (0, 4, 8))


@dataclass
class Cluster:
    """Hosts with Linux and switches with EOS. `rows` are what `ip -j -d address` prints, `macs` the ports of MACs."""

    directory: Path
    dual: bool = False
    rows: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    lldp: dict[str, list[tuple[str, str, str]]] = field(default_factory=dict)
    macs: dict[str, dict[str, str]] = field(default_factory=dict)
    channels: dict[str, dict[str, list[str]]] = field(default_factory=dict)
    more: dict[str, str] = field(default_factory=dict)
    """What else a node printed."""

    def __post_init__(self) -> None:
        for number, host in enumerate(HOSTS, 1):
            self.rows[host] = self._host(host, number)
            ports = [("leaf1", f"Et{number}"), ("leaf2", f"Et{number}")]
            if not self.dual:
                ports = [("leaf1", f"Et{number}"), ("leaf1", f"Et{number + 10}")]
            for (switch, port), nic in zip(ports, ("eth0", "eth1"), strict=True):
                self.lldp.setdefault(switch, []).append((port, host, nic))
                self.macs.setdefault(switch, {})[host] = f"Po{number}"
                self.channels.setdefault(switch, {}).setdefault(f"Po{number}", []).append(port)

    def _host(self, host: str, number: int) -> list[dict[str, Any]]:
        links = [
            {
                "ifname": nic, "flags": ["SLAVE", "UP", "LOWER_UP"], "mtu": 9000, "master": "bond0",
                "address": mac(host), "addr_info": [],
                "linkinfo": {"info_slave_kind": "bond", "info_slave_data": {"perm_hwaddr": f"{mac(host)[:-1]}{at}"}},
            }
            for at, nic in enumerate(("eth0", "eth1"), 1)
        ]  # fmt: skip
        address = {"family": "inet", "local": f"10.1.1.{number + 1}", "prefixlen": 24, "scope": "global"}
        bond = {
            "ifname": "bond0", "flags": ["MASTER", "UP", "LOWER_UP"], "mtu": 9000, "address": mac(host),
            "addr_info": [address], "linkinfo": {"info_kind": "bond", "info_data": {"mode": "802.3ad"}},
        }  # fmt: skip
        return [*links, bond]

    def row(self, host: str, name: str) -> dict[str, Any]:
        return next(row for row in self.rows[host] if row["ifname"] == name)

    def down(self, host: str, *names: str) -> "Cluster":
        """Take the carrier of interfaces; the bond has none without that of a member."""
        for name in names:
            self.row(host, name)["flags"].remove("LOWER_UP")
        return self

    def write(self, *, ok: bool = False) -> Path:
        for host, rows in self.rows.items():
            text = (
                f"### ip -j -d address\n{json.dumps(rows)}\n\n"
                '### ip -j route\n[{"dst": "default", "gateway": "10.1.1.1", "dev": "bond0"}]\n\n'
                "$ rdma link\nlink mlx5_bond_0/1 state ACTIVE physical_state LINK_UP netdev eth0\n"
            )
            self._text(f"hosts/{host}.txt", text + self.more.get(host, ""))
        for switch in self.lldp:
            self._text(f"switches/{switch}.txt", self._switch(switch) + self.more.get(switch, ""))
        self._text("jobs/train/hosts", "".join(f"{host}\n" for host in HOSTS))
        self._text("jobs/train/rank-1.log", "" if ok else RETRIES)
        self._text("jobs/train/status", "0" if ok else "1")
        return self.directory

    def _text(self, name: str, text: str) -> None:
        path = self.directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def _switch(self, name: str) -> str:
        macs = [f"  10    {dots(mac(host))}    DYNAMIC     {port:<10} 1       0:03:12 ago"
                for host, port in self.macs[name].items()]  # fmt: skip
        lldp = [f"{port:<13} {host:<24} {nic:<22} 120" for port, host, nic in self.lldp[name]]
        channels = [
            f"   {channel}(U)             LACP(a)     {' '.join(f'{port}(PG+)' for port in ports)}"
            for channel, ports in self.channels[name].items()
        ]
        return "\n".join(
            [
                f"{name}#show ip arp",
                "Address         Age (sec)  Hardware Addr   Interface",
                *(f"10.1.1.{number}        0:03:12    {dots(mac(host))}  Vlan10, not learned"
                  for number, host in enumerate(HOSTS, 2)),
                f"{name}#show mac address-table",
                "          Mac Address Table",
                "------------------------------------------------------------------",
                "",
                "Vlan    Mac Address       Type        Ports      Moves   Last Move",
                "----    -----------       ----        -----      -----   ---------",
                *macs,
                f"Total Mac Addresses for this criterion: {len(macs)}",
                f"{name}#show lldp neighbors",
                "Port          Neighbor Device ID       Neighbor Port ID    TTL",
                "---------- ------------------------ ---------------------- ---",
                *lldp,
                f"{name}#show port-channel summary",
                "                 Flags",
                "------------------------ ---------------------------- -------------------------",
                "  a - LACP Active        p - LACP Passive           * - static fallback",
                f"Number of channels in use: {len(channels)}",
                f"Number of aggregators: {len(channels)}",
                "",
                "   Port-Channel       Protocol    Ports",
                "------------------ -------------- ---------------------",
                *channels,
                f"{name}#",
                "",
            ]
        )  # fmt: skip
