"""`testbed metrics`: files for Prometheus and Grafana."""

from importlib import resources

import click


@click.group(help="""Print alarms and a dashboard for the metrics of labs (`testbed up --metrics`).""")
def metrics() -> None: ...


@metrics.command(help="""Print alarms for `rule_files` in Prometheus.""")
def rules() -> int:
    return put("alerts.yml")


@metrics.command(help="""Print a dashboard to import into Grafana.""")
def dashboard() -> int:
    return put("dashboard.json")


def put(name: str) -> int:
    click.echo(resources.files("testbed.metrics").joinpath(name).read_text(), nl=False)
    return 0
