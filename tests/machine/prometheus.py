"""Debian's Prometheus, for tests: it scrapes labs every two seconds and evaluates the alarms."""

import contextlib
import json
import socket
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from live import wait_for

from testbed.metrics import exposition

CONFIGURATION = """
global: {{scrape_interval: 2s, scrape_timeout: 2s, evaluation_interval: 1s}}
rule_files: [{rules}]
scrape_configs:
  - job_name: testbed
    file_sd_configs: [{{files: [{targets}], refresh_interval: 1s}}]
"""


class Prometheus:
    def __init__(self, directory: Path, port: int) -> None:
        self._targets = directory / "targets.json"
        self._scraped: dict[str, str] = {}
        self._port = port

    def scrape(self, lab: str, address: str) -> None:
        """Has it scrape a lab from now on, whose series have the label `lab`."""
        self._scraped[lab] = address
        new = self._targets.with_suffix(".new")
        new.write_text(
            json.dumps([{"targets": [address], "labels": {"lab": lab}} for lab, address in self._scraped.items()])
        )
        new.replace(self._targets)

    def ready(self) -> bool:
        with contextlib.suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{self._port}/-/ready") as answer:
            return bool(answer.status == 200)
        return False

    def _get(self, path: str, **arguments: str) -> Any:
        asked = f"{path}?{urllib.parse.urlencode(arguments)}"
        with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/api/v1/{asked}") as answer:
            return json.load(answer)["data"]

    def value(self, expression: str) -> float | None:
        """That of the one series that an expression has, if it has one."""
        found = self._get("query", query=expression)["result"]
        assert len(found) <= 1, expression
        return float(found[0]["value"][1]) if found else None

    def sees(self, lab: str, since_s: float) -> bool:
        """Waits until it has scraped the whole lab, as it was at this time of the lab's or later, and then has
        evaluated the alarms; whether it has in time."""
        whole = f'on (lab) count by (lab) (testbed_link_up{{lab="{lab}"}})'
        scraped = f'testbed_time_seconds_total{{lab="{lab}"}} >= {since_s} and {whole}'
        if not wait_for(lambda: self.value(scraped) is not None):
            return False
        seen = datetime.now(UTC)
        return wait_for(lambda: self._evaluated() > seen)

    def _evaluated(self) -> datetime:
        (group,) = self._get("rules")["groups"]
        return datetime.fromisoformat(group["lastEvaluation"])

    def alarms(self, lab: str) -> dict[str, str]:
        """The summaries of those that fire, or are about to, by their names."""
        found = [alarm for alarm in self._get("alerts")["alerts"] if alarm["labels"].get("lab") == lab]
        return {alarm["labels"]["alertname"]: alarm["annotations"]["summary"] for alarm in found}


@contextlib.contextmanager
def running(directory: Path) -> Iterator[Prometheus]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    rules = Path(exposition.__file__).with_name("alerts.yml")
    configuration = directory / "prometheus.yml"
    configuration.write_text(CONFIGURATION.format(rules=rules, targets=directory / "targets.json"))
    command = [
        "prometheus",
        f"--config.file={configuration}",
        f"--storage.tsdb.path={directory / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--log.level=warn",
    ]
    with (directory / "log").open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            made = Prometheus(directory, port)
            assert wait_for(made.ready), (directory / "log").read_text()
            yield made
        finally:
            process.kill()
