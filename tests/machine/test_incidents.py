"""`testbed incident`: the same number is the same incident, its solution mends it, and agents work on it."""

import json
import os
import shlex
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import COMMAND
from distributed import LocalCluster
from live import Live, wait_for

SEED, LEVEL = "4", ("--area", "arp", "--level", "1")
CLIENT = """
import asyncio, os, re, sys
from mcp import Client, StdioServerParameters

async def main(program, *arguments):
    server = StdioServerParameters(command=program, args=[*arguments, "mcp"], env={**os.environ})
    async with Client(server) as client:
        async def call(tool, **given):
            result = await client.call_tool(tool, given)
            assert not result.is_error, result.content[0].text
            return result.structured_content

        ticket = (await call("ticket"))["text"]
        since = re.search("since ([0-9]+:[0-9]+:[0-9]+)", ticket)[1]
        macs, tables = {}, []
        lab = await call("inspect")
        for node in lab["nodes"]:
            for end in (await call("inspect", node=node["name"]))["interfaces"]:
                for address in end.get("addresses", ()):
                    macs.setdefault(address.partition("/")[0], []).append((end["mac"], end["interface"]))
            if node["kind"] == "switch":
                tables += (await call("tables", switch=node["name"]))["rows"]
        for row in tables:
            owners = macs.get(row.get("ip"), [])
            if row["table"] == "arp" and owners and row["mac"] != owners[0][0]:
                await call("announce", end=owners[0][1])
                await call("answer", causes=["stale-neighbour"], places=[owners[0][1]], since=since)
                return
        sys.exit("nothing was found")

asyncio.run(main(*sys.argv[1:]))
"""
"""A client of MCP that looks for a wrong entry in the switches' tables."""


def opened(user: Live, name: str, *words: str) -> str:
    done = user("incident", "new", "--seed", SEED, *LEVEL, "--name", name, *words)
    assert done.status == 0, done.err
    return done.out


def mended(user: Live, name: str) -> dict[str, Any]:
    """Mend an incident by its own solution, as its grade has it, and return the grade of that."""
    grade = user("incident", "solution", "-f", "json", lab=name).json
    again = opened(user, name)
    for command in grade["solution"]["mend"]:
        done = user(*shlex.split(command), lab=name)
        assert done.status == 0, done.err
    solution, since = grade["solution"], again.partition("since ")[2][:8]
    [cause], [places] = solution["causes"], solution["places"]
    answer = user(
        "incident", "answer", "--cause", cause, "--place", places[0], "--since", since, "-f", "json", lab=name
    )
    assert answer.status == 0, answer.err
    return {"given up": grade, "mended": answer.json, "ticket": again}


def test_a_number_is_the_same_ticket_and_the_same_grade(live):
    first, second = (opened(live, name) for name in ("one", "two"))
    assert first == second
    assert "Our training job has trouble" in first
    for name in "one", "two":
        told = [json.loads(line) for line in live("events", "-f", "json", lab=name).out.splitlines()]
        steps = [event["text"] for event in told if event["kind"] == "step"]
        assert steps == ["a job trains", "the lab is handed over"]  # and none says when it went wrong
        wrong = live("incident", "answer", "--since", "noon", lab=name)
        assert wrong.status == 2
        assert "'noon' is not a time" in wrong.err
    given = [live("incident", "answer", "--cause", "link-down", "-f", "json", lab=name).json for name in ("one", "two")]
    assert given[0] == given[1]
    assert (given[0]["cause"], given[0]["mitigated"], given[0]["points"]) == (0, False, 0)


def test_the_solution_mends_it_and_hints_cost(live):
    opened(live, "one")
    assert [row["lab"] for row in live("incident", "list", "-f", "json").json] == ["one"]
    assert live("incident", "hint", lab="one").out.strip()
    found = mended(live, "one")
    assert (found["given up"]["points"], found["given up"]["hints"]) == (0, 1)
    grade = found["mended"]
    assert (grade["points"], grade["mitigated"], grade["suffered"], grade["hints"]) == (100, True, [], 0)
    assert grade["commands"] == found["given up"]["solution"]["mend"]
    assert live("incident", "list").out.strip() == "none is up"
    run = next(path.parent.parent for path in live.directory.glob("runs/incident/*/incident/grade.json"))
    told = live("incident", "solution", run)
    assert told.out.startswith(grade["solution"]["causes"][0])
    assert (run / "report.html").is_file()


def test_a_client_of_mcp_solves_one_by_tools(live):
    client = live.directory / "client.py"
    client.write_text(CLIENT)
    agent = shlex.join([sys.executable, str(client), *COMMAND])
    words = ("incident", "bench", "--agent", agent, "--seeds", stale(), *LEVEL, "--json")
    done = live(*words)
    assert done.status == 0, done.err
    assert [(row["group"], row["rounds"]) for row in done.json["rows"]] == [("arp", 1), ("level 1", 1), ("all", 1)]
    file = live.directory / "runs/incidents.jsonl"
    grade = json.loads(file.read_text())["grade"]
    assert (grade["points"], grade["mitigated"]) == (100, True)
    before = file.read_text()
    assert live(*words).status == 0
    assert file.read_text() == before, "a round that was played is not played again"


def stale() -> str:
    """Return a number whose incident is a stale entry of a switch."""
    from testbed.scenario.incident.drawing import draw

    return next(str(n) for n in range(1000) if "arp-poison" in draw(n, "arp", 1).troubles[0].causes)


@pytest.mark.slow
def test_nothing_is_left_of_a_benchmark_that_is_killed(live):
    with live.started("incident", "bench", "--agent", "touch began; sleep 1000", "--seeds", SEED, *LEVEL) as bench:
        assert wait_for((live.directory / "began").exists, 300)
        assert live.processes()
        os.kill(bench.pid, signal.SIGKILL)
    assert wait_for(lambda: not live.processes())
    assert not list(Path(live.labs).glob("*"))


@pytest.mark.slow
def test_a_benchmark_on_a_cluster_is_the_same_as_here(live):
    """The worker has the code that was sent, and the image of its own cache."""
    words = ("incident", "bench", "--agent", "runbook", "--agent", "random", "--seeds", SEED, *LEVEL, "--results")
    with LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=":0", memory_limit=0) as cluster:
        engine = cluster.scheduler_address.replace("tcp://", "dask://")
        there = live(*words, "there.jsonl", "--engine", engine)
    assert there.status == 0, there.err
    assert live(*words, "here.jsonl").status == 0
    grades = [
        {row["agent"]: row["grade"] for row in map(json.loads, (live.directory / name).read_text().splitlines())}
        for name in ("there.jsonl", "here.jsonl")
    ]
    assert grades[0] == grades[1]
    assert grades[0].keys() == {"runbook", "random"}
    assert grades[0]["runbook"]["points"] > grades[0]["random"]["points"]
