"""The hook of MkDocs by which `make docs` makes pages of scenarios, the start page and the change log.

A page of a scenario is its description, as `testbed describe` prints it, with a picture of its topology.
"""

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from testbed.cli.words import setting
from testbed.machine import questions, scenarios
from testbed.protocol import ScenarioInfo

TOP = Path(__file__).parents[2]
SOURCE = re.compile(r"\]\(\.\./scenarios/([^/)]+)/scenario\.py\)")
CONTRIBUTING = re.compile(r"\]\((\.\./)?CONTRIBUTING\.md")
CODE = re.compile(r"(`[^`]*`)")


def on_config(config: MkDocsConfig) -> None:
    """The pages of scenarios stand below the catalogue."""
    names = [source.name for source in scenarios.shipped()]
    [of_scenarios] = [entry["Scenarios"] for entry in config.nav if "Scenarios" in entry]
    of_scenarios += [{name: f"scenarios/{name}.md"} for name in names]


def on_files(files: Files, config: MkDocsConfig) -> None:
    for place, contents in made():
        files.append(File.generated(config, place, content=contents))


def on_page_markdown(markdown: str, **_: object) -> str:
    return CONTRIBUTING.sub("](contributing.md", SOURCE.sub(r"](scenarios/\1.md)", markdown))


def made() -> Iterator[tuple[str, str]]:
    for place, name in ("index.md", "README"), ("contributing.md", "CONTRIBUTING"), ("changelog.md", "CHANGELOG"):
        text = (TOP / f"{name}.md").read_text()
        yield place, text.replace("](docs/", "](").replace("](LICENSE)", "](LICENSE.txt)")
    yield "LICENSE.txt", (TOP / "LICENSE").read_text()
    sources = scenarios.shipped()
    for source, info in zip(sources, asyncio.run(scenarios.describe([(one, {}) for one in sources])), strict=True):
        topology = source.file.with_name("topology.clab.yml")
        if topology.is_file():
            yield f"scenarios/{source.name}.svg", questions.draw(topology, "svg")["text"]
        yield f"scenarios/{source.name}.md", page(info, pictured=topology.is_file())


def page(info: ScenarioInfo, *, pictured: bool) -> str:
    parts = [f"# {info['name']}", f"**{shown(info['title'])}**", *map(paragraph, info["text"].split("\n\n"))]
    if pictured:
        parts.append(f"![The topology]({info['name']}.svg)")
    variants = [(f"`{one['name']}`", one["expected"], shown(one["text"])) for one in info["variants"]]
    parts += ["## Variants", table(("Variant", "Expected", "What it is"), variants)]
    if properties := info["parameters"].get("properties"):
        rows = [
            (f"`{name}`", f"`{setting(found.get('default'))}`", shown(found.get("description", "")))
            for name, found in properties.items()
        ]
        parts += ["## Parameters", table(("`--set`", "Default", "What it is"), rows)]
    parts.append(f"```sh\nmake scenario={info['name']}\n```")
    return "\n\n".join(parts) + "\n"


def paragraph(text: str) -> str:
    """A block that is indented is a figure, and stays as it is."""
    return text if text.startswith("    ") else shown(text)


def shown(text: str) -> str:
    """Plain text as Markdown; what stands between backticks is code in both."""
    parts = CODE.split(text)
    parts[::2] = [re.sub(r"([*_<\[\]])", r"\\\1", part) for part in parts[::2]]
    return "".join(parts)


def table(heads: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [heads, ("---",) * len(heads), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)
