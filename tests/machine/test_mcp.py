"""`testbed mcp` with clients that nobody wrote for it: those of MCP's SDK, in this process and in others."""

import asyncio
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from conftest import COMMAND, LIMIT_S
from live import PAIR, Live, wait_for
from mcp import Client, StdioServerParameters

ROUTED = """name: routed
topology:
  nodes:
    leaf: {kind: switch, vlans: {10: 10.0.10.1/24, 20: 10.0.20.1/24}}
    h1: {kind: host}
    h2: {kind: host}
    h3: {kind: host}
  links:
    - {endpoints: ["leaf:e1", "h1:eth1"], vlan: 10}
    - {endpoints: ["leaf:e2", "h2:eth1"], vlan: 10}
    - {endpoints: ["leaf:e3", "h3:eth1"], vlan: 20}
"""
MOVED = "10.0.10.100"
NOBODY = 65534
WRITE = {"source": "h3", "target": MOVED, "silent": True}
HANGS = """
import asyncio, os, sys
from mcp import Client, StdioServerParameters

async def main(mode, *words):
    program, *arguments = words
    started = StdioServerParameters(command=program, args=arguments, env={**os.environ})
    server = started if arguments else program
    async with Client(server, mode=mode) as client:
        await asyncio.gather(
            client.call_tool("exec", {"node": "h1", "command": ["sleep", "1234"], "timeout_s": 3600}),
            client.call_tool("capture", {"end": "leaf:e1", "filter": "port 1234", "seconds": 3600}),
        )

asyncio.run(main(*sys.argv[1:]))
"""
"""A client that waits for a command and a capture."""


class Assistant:
    """A client's calls of tools; each has a result and no error."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def __call__(self, tool: str, /, **given: Any) -> dict[str, Any]:
        result = await self._client.call_tool(tool, given)
        assert not result.is_error, result.content[0].text
        return result.structured_content


def over_stdio(user: Live, *words: str) -> StdioServerParameters:
    return StdioServerParameters(
        command=COMMAND[0], args=[*COMMAND[1:], "mcp", *words], env=user.env, cwd=user.directory
    )


@contextlib.contextmanager
def over_http(user: Live, *words: str) -> Iterator[str]:
    """The URL of a server on a free port."""
    with user.started("mcp", "--http", "0", *words) as server:
        assert server.stderr
        line = server.stderr.readline().decode()
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/mcp\n", line)
        yield line.strip()
        server.terminate()
        assert server.wait(LIMIT_S) == 128 + signal.SIGTERM


def solve(server: Any, act: Callable[[Assistant], Awaitable[Any]], mode: str = "auto") -> Any:
    async def run() -> Any:
        async with Client(server, mode=mode) as client:
            return await act(Assistant(client))

    return asyncio.run(asyncio.wait_for(run(), LIMIT_S))


# An assistant at work


@pytest.fixture(scope="module")
def routed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    user = Live(tmp_path_factory.mktemp("routed"))
    user.file.write_text(ROUTED)
    user.up("routed", "--clock", "virtual")
    assert user("address", "add", "h1", f"{MOVED}/24").status == 0
    assert user("rdma", "write", "h3", MOVED).status == 0
    yield user
    user.end()


async def find_and_mend(call: Assistant) -> None:
    """What an assistant does about RDMA to an address that has moved: each step is a tool's."""
    assert (await call("rdma_write", **WRITE))["status"] == "RETRY_EXC_ERR"
    state = await call("inspect")
    [owner] = [one for one in state["interfaces"] if f"{MOVED}/24" in one["addresses"]]
    [entry] = (await call("tables", switch="leaf", table="arp", contains=MOVED))["rows"]
    assert entry["mac"] != owner["mac"], "the entry is stale"
    port = f"leaf:{entry['port']}"
    captured = await call("capture", end=port, filter="udp port 4791", during=WRITE)
    assert {frame["dst_mac"] for frame in captured["frames"]} == {entry["mac"]}, "and RoCE goes there"
    await call("announce", end=owner["interface"], ip=MOVED)
    [mended] = (await call("tables", switch="leaf", table="arp", contains=MOVED))["rows"]
    assert mended["mac"] == owner["mac"]
    assert (await call("rdma_write", **WRITE))["status"] == "SUCCESS"


@pytest.mark.parametrize("mode", ["auto", "legacy"])
@pytest.mark.parametrize("transport", ["stdio", "http"])
def test_a_stale_entry_is_found_and_mended(routed: Live, transport: str, mode: str) -> None:
    here = "h1" if owner(routed) == "h2" else "h2"
    assert routed("address", "move", MOVED, here).status == 0
    if transport == "stdio":
        solve(over_stdio(routed), find_and_mend, mode)
    else:
        with over_http(routed) as url:
            solve(url, find_and_mend, mode)
    events = [json.loads(line) for line in routed("events", "-f", "json", "-n", "30").out.splitlines()]
    typed = [event["text"] for event in events if event["kind"] == "typed"]
    assert f'mcp announce end="{here}:eth1" ip="{MOVED}" is done' in typed, "the lab's report has what it did"


def owner(user: Live) -> str:
    """The host that has the address now."""
    nodes = user("inspect", "-f", "json").json["nodes"]
    [found] = [row["name"] for row in nodes if any(f"{MOVED}/24" in one["addresses"] for one in row["interfaces"])]
    return found


def test_calls_at_once_do_not_mix_their_output(routed: Live) -> None:
    async def at_once(call: Assistant) -> list[dict[str, Any]]:
        lines = [f"seq -f {letter}%g 2000" for letter in "abcd"]
        return await asyncio.gather(*(call("exec", node="h1", command=line) for line in lines))

    for letter, result in zip("abcd", solve(over_stdio(routed), at_once), strict=True):
        lines = [line for line in result["stdout"].splitlines() if line and not line.startswith("…")]
        assert {line[0] for line in lines} - set("0123456789") == {letter}


# What a client leaves behind


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    user = Live(tmp_path_factory.mktemp("pair"))
    user.up("pair")
    yield user
    user.end()


def in_the_lab(user: Live) -> list[str]:
    """The programs of the client that runs HANGS, in the lab."""
    return user("exec", "h1", "--", "pgrep", "-af", "sleep 1234|port 1234").out.splitlines()


def server_of(user: Live) -> int:
    """The server that a client has started."""
    command = " ".join([*COMMAND, "mcp"])
    [found] = [pid for pid, words in user.processes().items() if words == command]
    return found


@contextlib.contextmanager
def client(user: Live, mode: str, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    """Another process with a client that hangs: a command and a capture run in the lab."""
    command = [sys.executable, "-c", HANGS, mode, *words]
    with subprocess.Popen(command, env=user.env, cwd=user.directory, stderr=subprocess.DEVNULL) as process:
        try:
            assert wait_for(lambda: len(in_the_lab(user)) >= 2)
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_nothing_is_left_of_a_killed_client_over_stdio(pair: Live, mode: str) -> None:
    with client(pair, mode, *COMMAND, "mcp") as process:
        server = server_of(pair)
        process.kill()
        assert wait_for(lambda: not in_the_lab(pair))
        assert wait_for(lambda: not Path(f"/proc/{server}").exists())


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_nothing_is_left_of_a_killed_client_over_http(pair: Live, mode: str) -> None:
    with over_http(pair) as url, client(pair, mode, url) as process:
        process.kill()
        assert wait_for(lambda: not in_the_lab(pair))


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_nothing_but_the_lab_is_left_of_a_killed_server(pair: Live, number: int) -> None:
    with client(pair, "auto", *COMMAND, "mcp"):
        server = server_of(pair)
        os.kill(server, number)
        assert wait_for(lambda: not in_the_lab(pair))
        assert wait_for(lambda: not Path(f"/proc/{server}").exists())
    assert pair("inspect").status == 0


def test_a_lab_of_an_assistant_ends_with_it(own: Live) -> None:
    async def bring_up(call: Assistant) -> None:
        state = await call("up", text=PAIR, name="mine")
        assert [row["name"] for row in state["nodes"]] == ["leaf", "h1", "h2"]
        assert (await call("rdma_write", source="h1", target="h2"))["status"] == "SUCCESS"
        await call("up", text=PAIR, name="other")
        assert await call("down", lab="other") == {"ended": "other"}
        assert [row["name"] for row in (await call("labs"))["labs"]] == ["mine"]

    solve(over_stdio(own), bring_up)
    assert wait_for(lambda: own("ps", "-f", "json").json == [])
    assert wait_for(lambda: own.processes() == {})


def test_a_command_that_takes_too_long_is_ended(pair: Live, routed: Live) -> None:
    for user in pair, routed:
        result = solve(over_stdio(user), lambda call: call("exec", node="h1", command="sleep 60", timeout_s=1))
        assert result["late"] is True
        assert result["status"] == 128 + signal.SIGHUP


# Who may connect over HTTP


@pytest.mark.parametrize(
    ("headers", "status"), [({"Host": "evil.example"}, 421), ({"Origin": "http://evil.example"}, 403), ({}, 200)]
)
def test_a_page_in_a_browser_cannot_use_it(own: Live, headers: dict[str, str], status: int) -> None:
    request = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    accept = {"Accept": "application/json, text/event-stream"}
    with over_http(own) as url:
        assert httpx2.post(url, json=request, headers={**accept, **headers}).status_code == status


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_another_user_of_this_machine_cannot_use_it(own: Live) -> None:
    with over_http(own) as url:
        assert httpx2.post(url, json={}).status_code != 403
        os.seteuid(NOBODY)
        try:
            assert httpx2.post(url, json={}).status_code == 403
        finally:
            os.seteuid(0)
