"""Commands that change a lab that lives."""

from __future__ import annotations

import click

from testbed.cli.live.words import connect, format_option, lab_option, print_json, seconds


@click.command(help="""Let TIME pass in a lab on the virtual clock: 500ms, 90s, 25m, 4h. Ctrl-C stops it.""")
@lab_option
@format_option
@click.argument("time", metavar="TIME")
def advance(name: str, form: str, time: str) -> int:
    from testbed.cli.words import clock
    from testbed.protocol.live import Advance

    with connect(name) as connection:
        number = connection.ask(Advance(seconds=seconds(time)))
        try:
            now_s = connection.end(number)
        except KeyboardInterrupt:
            connection.say({"id": number, "stop": True})
            now_s = connection.end(number)
    if form == "json":
        print_json({"now_s": now_s})
    else:
        click.echo(f"It is {clock(int(now_s * 1e9))} in {connection.lab.name}.")
    return 0
