"""Tables of running labs: labs, nodes, entries of switches."""

import time
from collections.abc import Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from testbed.cli.progress import output_console, table_console
from testbed.cli.words import clock, duration, plain
from testbed.machine.live.labs import LOG, Lab
from testbed.protocol.live import LabState, NodeRow, TableRow

STYLES = {"up": "green", "dead": "red", "stopped": "yellow"}


def table(*columns: str) -> Table:
    made = Table(box=None, padding=(0, 1, 0, 0), header_style="dim")
    for column in columns:
        made.add_column(column, overflow="fold", no_wrap=column in ("node", "lab", "mac", "interface", "address"))
    return made


def show_labs(labs: Sequence[Lab]) -> None:
    metrics = any(lab.metrics for lab in labs)
    shown = table("lab", "topology", "clock", "up for", "state", *(["metrics"] if metrics else []))
    for lab in labs:
        age = duration(int(max(0, time.time() - lab.since)))
        state = Text(lab.state + (f": {reason(lab)}" if lab.why else ""), STYLES.get(lab.state, ""))
        address = [plain(lab.metrics)] if metrics else []
        shown.add_row(plain(lab.name), plain(lab.topology), lab.clock, age, state, *address)
    table_console().print(shown)


def reason(lab: Lab) -> str:
    """Return why a lab is dead, in a sentence, and where there is more to read."""
    more = len([line for line in lab.why.splitlines() if line.strip()]) > 1
    return f"{brief(lab)} ({plain(lab.directory / LOG)} has more)" if more else brief(lab)


def brief(lab: Lab) -> str:
    """Return why a lab is dead, in a sentence: of a traceback its last line."""
    lines = [line.strip() for line in lab.why.splitlines() if line.strip()]
    if not lines:
        return ""
    return plain(lines[-1] if any(line.startswith("Traceback") for line in lines) else lines[0])


def faults(state: LabState) -> Table:
    shown = table("number", "fault", "parameters", "since")
    for row in state["faults"]:
        given = " ".join(f"{key}={value}" for key, value in row["parameters"].items())
        given += " (lost: the kernel has it no more)" if row["lost"] else ""
        shown.add_row(str(row["number"]), row["fault"], given, clock(int(row["since_s"] * 1e9)))
    return shown


def show_nodes(nodes: Sequence[NodeRow]) -> None:
    shown = table("node", "kind", "interface", "address", "mac", "rdma", "link", "")
    for node in nodes:
        first = [plain(node["name"]), f"{node['kind']} on {node['host']}" if "host" in node else node["kind"]]
        cells = [interface_cells(row) for row in node["interfaces"]] or [[]]
        for number, row in enumerate(cells):
            shown.add_row(*(["", ""] if number else first), *row)
    table_console().print(shown)


def show_metrics(lab: Lab) -> None:
    """Print the address at which Prometheus can scrape a lab."""
    if lab.metrics:
        output_console().print(f"metrics: http://{lab.metrics}/metrics", highlight=False)


IN_BOND = {"idle": "no traffic", "out": "not in its bond"}


def interface_cells(row: Any) -> list[str]:
    name = row["interface"].partition(":")[2]
    quality = " ".join(f"{key}={value}" for key, value in row["quality"].items())
    if row["gone"]:
        state = "gone"
    elif not row["up"]:
        state = "down"
    else:
        state = "" if row["carrier"] else "no carrier"
    addresses = [f"{address} {row['unusable'].get(address, '')}".rstrip() for address in row["addresses"]]
    state = " ".join(filter(None, (", ".join(filter(None, (state, IN_BOND.get(row["in_bond"])))), quality)))
    peers = ", ".join(row["peers"]) or row["peer"]
    return [name, "\n".join(addresses), row["mac"], row["rdma"] or "", peers, state]


def entries(rows: Sequence[TableRow]) -> Table:
    shown = table("table", "vlan", "address", "mac", "port", "state", "age")
    for row in rows:
        age = "" if row["age_s"] is None else duration(row["age_s"])
        shown.add_row(row["table"], str(row["vlan"]), row["ip"], row["mac"], row["port"], state_of(row), age)
    return shown


def state_of(row: TableRow) -> str:
    by = f"{row['state']} by {', '.join(row['vteps'])}" if row["vteps"] else row["state"]
    moves = f"move {row['sequence']}" if row["sequence"] else ""
    duplicate = "duplicate" if row["duplicate"] else ""
    kernel = f"kernel has {row['data_plane']}" if row["data_plane"] else ""
    return ", ".join(filter(None, (by, moves, duplicate, kernel)))


def changes(before: Sequence[TableRow], after: Sequence[TableRow]) -> list[str]:
    """Return the entries that came, went or changed, a line each."""

    def keyed(rows: Sequence[TableRow]) -> dict[Any, TableRow]:
        return {(row["table"], row["vlan"], row["ip"] or row["mac"]): row for row in rows}

    old, new = keyed(before), keyed(after)
    lines = []
    for key in [*old, *(key for key in new if key not in old)]:
        was, now = old.get(key), new.get(key)
        if was is None and now:
            lines.append(f"+ {row_text(now)}")
        elif was and now is None:
            lines.append(f"- {row_text(was)}")
        elif was and now and row_text(was) != row_text(now):
            lines.append(f"~ {row_text(now)} (was {was['mac']} {was['port']} {state_of(was)})")
    return lines


def row_text(row: TableRow) -> str:
    words = [row["table"], f"vlan {row['vlan']}", row["ip"], row["mac"], row["port"], state_of(row)]
    return " ".join(filter(None, words))


def event_line(event: Any) -> Text:
    line = Text(clock(event["t"]) + " ", "dim")
    line.append(f"{plain(event['kind']):<16} ", "cyan")
    line.append(f"{plain(event['node'])} " if event["node"] else "", "bold")
    line.append(plain(event["text"]))
    return line
