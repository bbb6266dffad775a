"""A report's page: one HTML file that needs nothing else, and sends no requests."""

import base64
import functools
import gzip
import hashlib
import html
import json
import re
from collections.abc import Mapping
from importlib import resources
from typing import Any

SCRIPTS = (
    "base.js", "folded.js", "marks.js", "timeline.js", "summary.js", "packets.js", "answers.js", "sections.js",
    "counted.js", "matrices.js", "probes.js", "events.js", "main.js", "load.js",
)  # fmt: skip
LIBRARY = "echarts/echarts.min.js"
"""Apache ECharts, the used parts of it; its README describes how it was made."""


def page(title: str, plain: str, data: Mapping[str, Any]) -> str:
    """Return the page that shows the contents of a report. `plain` is the text for readers without scripts."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    script, style = "\n".join(map(file, SCRIPTS)), file("page.css")
    parts = {
        "policy": policy(script, file(LIBRARY)),
        "title": html.escape(title),
        "style": style,
        "script": script,
        "plain": html.escape(plain),
        "library": _packed_library(),
        "data": packed(text),
    }
    return re.sub(r"\{(\w+)\}", lambda match: parts[match[1]], file("page.html"))


def policy(*scripts: str) -> str:
    """Return a content security policy that allows only these scripts and loads nothing: a run's texts always stay
    texts."""
    hashes = (base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts)
    allowed = " ".join(f"'sha256-{found}'" for found in hashes)
    return f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


def packed(text: str) -> str:
    """Return gzip in base64; the same text makes the same bytes. A lone surrogate, which JSON may have, becomes `?`."""
    return base64.b64encode(gzip.compress(text.encode(errors="replace"), 9, mtime=0)).decode()


@functools.cache
def file(name: str) -> str:
    """Return a file of the page, such as its style sheet."""
    return resources.files(__package__).joinpath(name).read_text()


@functools.cache
def _packed_library() -> str:
    return packed(file(LIBRARY))
