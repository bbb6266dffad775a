"""Commands that change a running lab: faults, links, profiles, pods, RDMA WRITEs, time."""

from pathlib import Path
from typing import Literal

import click

from testbed.cli import completion_values
from testbed.cli.live import live_options
from testbed.errors import InputError


@click.command(help="""Let TIME pass in a lab on the virtual clock: 500ms, 90s, 25m, 4h. Ctrl-C stops it.""")
@live_options.lab_options
@click.argument("time", metavar="TIME")
def advance(name: str, form: str, time: str) -> int:
    from testbed.cli.words import clock
    from testbed.protocol.live import Advance

    with live_options.connect(name) as connection:
        number = connection.ask(Advance(seconds=live_options.seconds(time)))
        try:
            now_s = connection.end(number)
        except KeyboardInterrupt:
            connection.send({"id": number, "stop": True})
            now_s = connection.end(number)
    text = f"It is {clock(int(now_s * 1e9))} in {connection.lab.name}."
    return live_options.show(form, {"now_s": now_s}, text, "testbed events --last 20")


# Faults: added to `testbed fault`, which lists and describes them


@click.command(
    help="""Inject FAULT into a lab and verify it: `testbed fault inject link-loss end=leaf:e1 loss=5`. `testbed fault
    describe FAULT` shows its parameters."""
)
@click.option("--after", metavar="TIME", default="0", callback=live_options.duration, help="Inject it after this time.")
@click.option("--for", "lasting", metavar="TIME", callback=live_options.duration, help="Recover it after this time.")
@live_options.lab_options
@click.argument("fault", shell_complete=completion_values.faults)
@click.argument("parameters", metavar="[KEY=VALUE...]", nargs=-1, shell_complete=completion_values.fault_parameters)
def inject(after: float, lasting: float | None, name: str, form: str, fault: str, parameters: tuple[str, ...]) -> int:
    from testbed.protocol.live import FaultInject

    row = live_options.ask(
        name, FaultInject(name=fault, parameters=live_options.settings(parameters), after=after, lasting=lasting)
    )
    text = f"{fault} will be injected in {after:g} s"
    if row:
        text = f"fault {row['number']}: {fault} is injected; testbed fault recover {row['number']} recovers it"
    return live_options.show(form, row, text)


@click.command(help="""Recover a fault of a lab, by its name or its number in `testbed fault ps`.""")
@live_options.lab_options
@click.argument("fault")
def recover(name: str, form: str, fault: str) -> int:
    from testbed.protocol.live import FaultRecover

    row = live_options.ask(name, FaultRecover(fault=fault))
    return live_options.show(form, row, f"fault {row['number']}: {row['fault']} is recovered")


@click.command("ps", help="""List the faults that are in a lab.""")
@live_options.lab_options
def fault_ps(name: str, form: str) -> int:
    from testbed.cli.live.lab_tables import faults
    from testbed.protocol.live import Inspect

    state = live_options.ask(name, Inspect())
    return live_options.show(form, state["faults"], faults(state) if state["faults"] else "No fault is in the lab.")


link = click.Group("link", help="Change links of a lab.")


@link.command(
    "set",
    help="""Set an end of a link up or down, or set rate, delay and loss of the packets that this end sends.

    \b
    testbed link set leaf:e1 down
    testbed link set leaf:e1 rate=100mbit delay=5us loss=0.1
    testbed link set leaf:e1 rate=none""",
)
@live_options.lab_options
@click.argument("end", metavar="NODE:IF", shell_complete=completion_values.ends)
@click.argument(
    "changes", metavar="up|down|KEY=VALUE...", nargs=-1, required=True, shell_complete=completion_values.qualities
)
def link_set(name: str, form: str, end: str, changes: tuple[str, ...]) -> int:
    from testbed.cli.live.lab_tables import table
    from testbed.protocol.live import LinkSet

    states = {"up": True, "down": False}
    chosen = [states[change] for change in changes if change in states]
    if len(chosen) > 1:
        raise InputError("name up or down, not both")
    quality = live_options.settings(tuple(change for change in changes if change not in states))
    row = live_options.ask(name, LinkSet(end=end, up=chosen[0] if chosen else None, quality=quality))
    shown = table("interface", "state", "sends with")
    given = " ".join(f"{key}={value}" for key, value in row["quality"].items())
    shown.add_row(row["interface"], "up" if row["up"] else "down", given)
    return live_options.show(form, row, shown, *([] if row["up"] else [f"testbed link set {end} up"]))


@click.command(
    "set",
    help="""Change values of a switch's profile in a lab: `testbed profile set leaf arp_age=60`.

    `testbed profile describe default` shows the names; times are in seconds.""",
)
@live_options.lab_options
@click.argument("switch", shell_complete=completion_values.nodes("switch"))
@click.argument(
    "values", metavar="KEY=VALUE...", nargs=-1, required=True, shell_complete=completion_values.profile_values
)
def profile_set(name: str, form: str, switch: str, values: tuple[str, ...]) -> int:
    from testbed.protocol.live import ProfileSet

    changed = live_options.settings(values)
    found = live_options.ask(name, ProfileSet(switch=switch, values=changed))
    text = f"{switch}: " + ", ".join(f"{key} {found[key]}" for key in changed)
    return live_options.show(form, found, text, f"testbed tables {switch} --follow")


pod = click.Group("pod", help="Create and delete pods in a lab.")


@pod.command(
    "add",
    help="""Create a pod on a host, attached to the networks of the conflists in this order: eth0, net1, …

    `testbed pod add h1 p1 net.conflist`""",
)
@live_options.lab_options
@click.argument("host", shell_complete=completion_values.nodes("host"))
@click.argument("name_", metavar="POD")
@click.argument("conflists", metavar="[CONFLIST...]", nargs=-1, type=click.Path(path_type=Path))
@click.option(
    "--annotation",
    "annotations",
    metavar="KEY=VALUE",
    multiple=True,
    help="An annotation of the pod, such as k8s.v1.cni.cncf.io/networks=rail1.",
)
def pod_add(
    name: str, form: str, host: str, name_: str, conflists: tuple[Path, ...], annotations: tuple[str, ...]
) -> int:
    from testbed.cli.live.lab_tables import show_nodes
    from testbed.machine import files
    from testbed.protocol.live import PodAdd

    networks = [files.read(conflist).decode(errors="replace") for conflist in conflists]
    given = live_options.settings(annotations)
    row = live_options.ask(name, PodAdd(host=host, pod=name_, networks=networks, annotations=given))
    if form == "json":
        live_options.print_json(row)
    else:
        show_nodes([row])
        live_options.then(f"testbed rdma write {name_} {host}", f"testbed pod del {name_}")
    return 0


@pod.command("del", help="""Delete a pod as a container runtime does: its programs, its networks, its namespace.""")
@live_options.lab_options
@click.argument("pod_", metavar="POD", shell_complete=completion_values.nodes("pod"))
def pod_delete(name: str, form: str, pod_: str) -> int:
    from testbed.protocol.live import PodDelete

    live_options.ask(name, PodDelete(pod=pod_))
    return live_options.show(form, {"pod": pod_}, f"{pod_} is deleted")


@click.command(
    help="""Reboot hosts of a lab, all at once: `testbed reboot node1`, or `--all` for a restart of the cluster. Their
    programs, pods, RDMA devices and addresses are gone, their links down for a while; then they have what the topology
    file says, and their pods start again in new sandboxes."""
)
@click.option("--all", "everywhere", is_flag=True, help="Reboot all hosts of the topology.")
@click.option("--down", metavar="TIME", default="60s", callback=live_options.duration, help="For so long: 60s.")
@click.option(
    "--del",
    "del_",
    type=click.Choice(["late", "never"]),
    default="late",
    help="DEL of the old sandboxes comes after the boot, or never, as after the loss of a runtime's state.",
    show_default=True,
)
@live_options.lab_options
@click.argument("hosts", metavar="[HOST...]", nargs=-1, shell_complete=completion_values.nodes("host"))
def reboot(everywhere: bool, down: float, del_: str, name: str, form: str, hosts: tuple[str, ...]) -> int:
    from testbed.cli.live.object_commands import show_pods
    from testbed.protocol.live import RebootHosts

    if everywhere == bool(hosts):
        raise InputError("name hosts, or give --all", hint="`testbed reboot node1 node2`")
    found = live_options.ask(name, RebootHosts(hosts=list(hosts), down=down, late_del=del_ == "late"))
    if form == "json":
        live_options.print_json({"hosts": found["applied"], "running": found["running"], "waiting": found["waiting"]})
        return 0
    click.echo(f"{', '.join(found['applied'])} {'are' if len(found['applied']) > 1 else 'is'} up again")
    show_pods(found)
    return 0


@click.command(
    help="""Announce the address of a host's or pod's interface: send a gratuitous ARP, or for IPv6 an unsolicited NA.
    `testbed announce h1:eth1`, or `testbed announce h1 --ip 10.0.0.9` for another address."""
)
@click.option("--ip", help="Announce this address.")
@live_options.lab_options
@click.argument("interface", metavar="NODE[:IF]", shell_complete=completion_values.nics)
def announce(ip: str | None, name: str, form: str, interface: str) -> int:
    from testbed.protocol.live import Announce

    announced = live_options.ask(name, Announce(end=interface, ip=ip))
    text = f"{interface} has announced its address {announced}"
    return live_options.show(form, {"interface": interface, "ip": announced}, text, "testbed events --last 5")


address = click.Group("address", help="Addresses of hosts and pods.")


@address.command("add", help="Give an interface an address: `testbed address add h1:eth1 10.0.0.9/24`.")
@live_options.lab_options
@click.argument("interface", metavar="NODE[:IF]", shell_complete=completion_values.nics)
@click.argument("given", metavar="ADDRESS/LENGTH")
def add_address(name: str, form: str, interface: str, given: str) -> int:
    return change_address(name, form, "add", interface, given, f"{interface} has {given}")


@address.command("del", help="Take an address from an interface: `testbed address del h1:eth1 10.0.0.9`.")
@live_options.lab_options
@click.argument("interface", metavar="NODE[:IF]", shell_complete=completion_values.nics)
@click.argument("given", metavar="ADDRESS")
def del_address(name: str, form: str, interface: str, given: str) -> int:
    return change_address(name, form, "del", interface, given, f"{interface} no longer has {given}")


@address.command(
    "move",
    help="""Move an address to another interface, from the one of the lab that has it: `testbed address move 10.0.0.9
    h2:eth1`. Nobody announces it: see `testbed announce`.""",
)
@live_options.lab_options
@click.argument("given", metavar="ADDRESS")
@click.argument("interface", metavar="NODE[:IF]", shell_complete=completion_values.nics)
def move_address(name: str, form: str, given: str, interface: str) -> int:
    return change_address(name, form, "move", interface, given, f"{given} has moved to {interface}")


def change_address(
    name: str, form: str, change: Literal["add", "del", "move"], interface: str, given: str, text: str
) -> int:
    from testbed.protocol.live import AddressChange

    row = live_options.ask(name, AddressChange(change=change, end=interface, address=given))
    return live_options.show(form, row, text, "testbed inspect")


rdma = click.Group("rdma", help="RDMA in a lab.")


@rdma.command(
    help="""Send one RDMA WRITE from A to B over a new connection and print its completion: the ping of RoCE. A and B
    are hosts or pods, or their interfaces (h1:eth1); B may be an address, for the interface that has it now. Exit
    status: 0 the WRITE succeeded, else 1."""
)
@click.option("--size", type=click.IntRange(1, 1 << 30), default=4096, show_default=True, help="Bytes.")
@click.option("--ipv6", "-6", "six", is_flag=True, help="Over IPv6 addresses.")
@click.option("--timeout", type=click.IntRange(0, 31), help="Timeout of the queue pair: 4.096 µs * 2^N. Default: 14.")
@click.option("--retries", type=click.IntRange(0, 7), help="Retransmissions before the queue pair fails. Default: 3.")
@click.option("--silent", is_flag=True, help="Neither host asks for its gateway by ARP or ND meanwhile.")
@live_options.lab_options
@click.argument("source", metavar="A", shell_complete=completion_values.nics)
@click.argument("target", metavar="B", shell_complete=completion_values.nics)
def write(
    size: int,
    six: bool,
    timeout: int | None,
    retries: int | None,
    silent: bool,
    name: str,
    form: str,
    source: str,
    target: str,
) -> int:
    from testbed.cli.words import duration as duration_text
    from testbed.protocol.live import RdmaWrite

    family: Literal[4, 6] = 6 if six else 4
    queue_pair = {"timeout": timeout, "retries": retries}
    request = RdmaWrite(source=source, target=target, size=size, family=family, silent=silent, **queue_pair)
    found = live_options.ask(name, request)
    good = found["status"] == "SUCCESS"
    status = click.style(found["status"], fg="green" if good else "red")
    text = f"{source} -> {target}: {size} bytes {status} in {duration_text(found['elapsed_s'])}"
    notes = [*([] if good else [found["text"]]), *found["learned"]]
    live_options.show(form, found, "\n  ".join((text, *notes)))
    return 0 if good else 1


@click.command(
    help="""Write the topology file of a lab in its present state, with the changes made by hand, for `testbed up`."""
)
@click.option("-o", "output", type=click.Path(path_type=Path), help="Write to this file; it must not exist.")
@live_options.lab_option
def save(output: Path | None, name: str) -> int:
    from testbed.cli.output import give
    from testbed.protocol.live import Save

    give(live_options.ask(name, Save()), output, over=False)
    if output:
        live_options.then(f"testbed up {output}")
    return 0
