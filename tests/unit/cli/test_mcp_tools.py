"""What the tools of `testbed mcp` ask of a lab, and what they make of its answers; the client is the SDK's own."""

import asyncio
import base64
import functools
import json
import struct
import time
import unicodedata
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from fake_lab import Answers, FakeLab, fake_lab
from mcp import Client, MCPError
from mcp.types import CallToolResult

from testbed.cli.mcp.bounds import CELL, PAGE, RESULT
from testbed.cli.mcp.lab_calls import Access
from testbed.cli.mcp.mcp_server import MOST_CALLS, server
from testbed.cli.mcp.tool_list import TOOLS
from testbed.errors import TestbedError
from testbed.protocol import messages

HOSTILE = "\x1b]0;owned\x07\x1b[2J\rx\u202egnp\x9b31m\x85"
READING = [
    "labs", "inspect", "tables", "events", "logs", "counters", "metrics", "diagnose", "faults", "get", "topology",
]  # fmt: skip
CHANGING = [
    "capture", "exec", "rdma_write", "probe", "announce", "advance", "address", "link_set", "profile_set", "inject",
    "recover", "pod_add", "pod_delete", "reboot", "apply", "apply_objects", "delete_objects",
]  # fmt: skip
INCIDENT = ["ticket", "hint", "answer"]
OWN = ["up", "down"]
LINK = {
    "interface": "h1:eth1", "peer": "leaf:e1", "peers": [], "in_bond": "", "up": True, "carrier": True, "gone": False,
    "mac": "02:00:00:00:00:01", "mtu": 1500, "addresses": ["10.0.10.2/24"], "unusable": {}, "rdma": "rxe1",
    "quality": {},
}  # fmt: skip
NODE = {"name": "h1", "kind": "host", "interfaces": [LINK], "programs": 0}
STATE = {"name": "pair", "now_s": 2.5, "nodes": [NODE], "faults": []}
ENTRY = {
    "table": "arp", "vlan": 10, "ip": "10.0.10.2", "mac": "02:00:00:00:00:01", "port": "e1", "state": "learned",
    "age_s": 3.0, "data_plane": "", "vteps": [], "sequence": None, "duplicate": False,
}  # fmt: skip
WRITTEN = {"status": "SUCCESS", "elapsed_s": 0.001, "text": "RDMA_WRITE ends", "learned": []}


@pytest.fixture(autouse=True)
def _own_labs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def response(value: Any) -> Callable[[Any], list[dict[str, Any]]]:
    return lambda _: [{"response": value}]


def failed(error: TestbedError) -> Callable[[Any], list[dict[str, Any]]]:
    return lambda _: [{"error": messages.failure(error)}]


made = functools.cache(server)
"""A server for several tests: to make one takes a while."""


def session(act: Callable[[Client], Awaitable[Any]], access: Access | None = None) -> Any:
    """What `act` returns with a client of a server."""

    async def run() -> Any:
        async with Client(made(access or Access())) as client:
            try:
                return await act(client), None
            except MCPError as error:
                return None, error

    result, failed = asyncio.run(run())
    if failed:
        raise failed
    return result


def call(name: str, access: Access | None = None, /, **given: Any) -> CallToolResult:
    return session(lambda client: client.call_tool(name, given), access)


def found(name: str, access: Access | None = None, /, **given: Any) -> Any:
    """The result of a tool, which has no error."""
    result = call(name, access, **given)
    assert not result.is_error, result.content[0].text
    assert json.loads(result.content[0].text) == result.structured_content
    return result.structured_content


def error(name: str, access: Access | None = None, /, **given: Any) -> str:
    result = call(name, access, **given)
    assert result.is_error
    return result.content[0].text


def names(access: Access) -> list[str]:
    return [tool.name for tool in session(lambda client: client.list_tools(), access).tools]


# The list


def test_the_names_of_tools_are_stable() -> None:
    assert names(Access()) == [*READING, *CHANGING, *INCIDENT, *OWN]


def test_a_server_of_one_lab_has_no_argument_for_it_and_brings_none_up() -> None:
    tools = session(lambda client: client.list_tools(), Access("pair")).tools
    assert [tool.name for tool in tools] == [*READING, *CHANGING, *INCIDENT]
    assert not any("lab" in tool.input_schema["properties"] for tool in tools)


def test_a_server_that_only_reads_says_so_of_each_tool() -> None:
    tools = session(lambda client: client.list_tools(), Access(changes=False)).tools
    assert [tool.name for tool in tools] == [*READING, "capture", "ticket"]
    assert all(tool.annotations.read_only_hint for tool in tools)
    [capture] = [tool for tool in tools if tool.name == "capture"]
    assert "during" not in capture.input_schema["properties"]


def test_tools_that_may_destroy_are_marked() -> None:
    tools = session(lambda client: client.list_tools()).tools
    destructive = [tool.name for tool in tools if tool.annotations.destructive_hint]
    assert destructive == ["exec", "pod_delete", "reboot", "apply", "delete_objects", "answer", "down"]


@pytest.mark.parametrize("access", [Access(), Access("pair"), Access(changes=False)], ids=["all", "one", "reading"])
def test_each_tool_has_a_text_and_types(access: Access) -> None:
    for tool in session(lambda client: client.list_tools(), access).tools:
        assert tool.description, tool.name
        assert tool.output_schema, tool.name
        for name, schema in tool.input_schema["properties"].items():
            assert {"type", "anyOf", "enum"} & schema.keys(), f"{tool.name} {name}"


def test_no_argument_of_a_tool_is_a_path() -> None:
    for tool in session(lambda client: client.list_tools()).tools:
        assert not {"path", "file", "directory", "out"} & tool.input_schema["properties"].keys(), tool.name
    assert all("Path" not in str(tool.function.__annotations__) for tool in TOOLS)


# Which lab


@pytest.fixture
def pair() -> Iterator[FakeLab]:
    with fake_lab({"Inspect": response(STATE)}) as lab:
        yield lab


def test_the_only_lab_needs_no_name(pair: FakeLab) -> None:
    assert found("inspect")["lab"] == "pair"
    assert found("inspect", lab="pair")["now_s"] == 2.5


def test_several_labs_need_one(pair: FakeLab) -> None:
    with fake_lab({}, "other"):
        assert "several labs are up" in error("inspect")
        assert found("inspect", lab="pair")["lab"] == "pair"
        assert found("inspect", Access("pair"))["lab"] == "pair"
        assert [row["name"] for row in found("labs")["labs"]] == ["other", "pair"]
        assert [row["name"] for row in found("labs", Access("pair"))["labs"]] == ["pair"]


def test_a_lab_that_is_not_there_is_named(pair: FakeLab) -> None:
    text = error("inspect", lab="paar")
    assert "lab paar does not exist" in text
    assert "There are: pair." in text


def test_a_dead_lab_has_its_reason_and_no_traceback() -> None:
    with fake_lab({}) as lab:
        lab.record.now("dead", f"Traceback …\n  File {__file__}\nKeyError: 'eth1'\n")
        assert "lab pair is dead: KeyError: 'eth1'" in error("inspect")
        assert __file__ not in error("inspect") + json.dumps(found("labs"))


def test_a_lab_that_is_starting_is_not_waited_for() -> None:
    with fake_lab({}) as lab:
        lab.record.now("starting")
        assert "lab pair is not up yet" in error("inspect")


def test_labs_have_no_path_of_the_host(pair: FakeLab) -> None:
    assert "/home" not in json.dumps(found("labs"))


def test_the_call_is_recorded_in_the_lab(pair: FakeLab) -> None:
    found("inspect", node="h1")
    assert pair.asked[0]["typed"] == 'mcp inspect node="h1"'


# Reading


def test_inspect_leaves_out_what_says_nothing(pair: FakeLab) -> None:
    state = found("inspect")
    assert state["nodes"] == [{"name": "h1", "kind": "host", "programs": 0}]
    [interface] = state["interfaces"]
    assert interface == {
        "interface": "h1:eth1", "peer": "leaf:e1", "up": True, "carrier": True, "mac": "02:00:00:00:00:01", "mtu": 1500,
        "addresses": ["10.0.10.2/24"], "rdma": "rxe1",
    }  # fmt: skip
    assert "There are: h1." in error("inspect", node="h9")


def test_tables_are_narrowed() -> None:
    mac = {**ENTRY, "table": "fdb", "ip": "", "age_s": None}
    with fake_lab({"Tables": response([ENTRY, mac])}):
        assert found("tables", switch="leaf")["rows"] == [
            {"table": "arp", "vlan": 10, "ip": "10.0.10.2", "mac": "02:00:00:00:00:01", "port": "e1",
             "state": "learned", "age_s": 3.0},
            {"table": "fdb", "vlan": 10, "mac": "02:00:00:00:00:01", "port": "e1", "state": "learned"},
        ]  # fmt: skip
        assert len(found("tables", switch="leaf", table="fdb")["rows"]) == 1
        assert len(found("tables", switch="leaf", contains="10.0.10.2")["rows"]) == 1
        assert "Input should be" in error("tables", switch="leaf", table="route")


def event(t_s: float, kind: str = "learned", text: str = "") -> dict[str, Any]:
    return {"t": int(t_s * 1e9), "kind": kind, "node": "leaf", "text": text, "data": {"ip": "10.0.10.2"}}


def test_events_are_the_newest_and_the_rest_is_counted() -> None:
    reports = [{"report": {"events": [event(t) for t in range(start, start + 100)]}} for start in (0, 100)]
    with fake_lab({"Events": lambda _: [*reports, {"report": {"events": [event(300, "link")]}}, {"response": None}]}):
        result = found("events", most=3)
        assert [row["t_s"] for row in result["events"]] == [198, 199, 300]
        assert result["left_out"] == 198
        assert [row["t_s"] for row in found("events", kinds=["link"])["events"]] == [300]
        assert [row["t_s"] for row in found("events", since_s=199)["events"]] == [199, 300]


def test_logs_are_lines_with_their_programs() -> None:
    def piece(node: str, text: str) -> dict[str, Any]:
        return {"report": {"node": node, "program": "zebra-1", "out": base64.b64encode(text.encode()).decode()}}

    answer = [piece("leaf", "one\ntw"), piece("spine", "a\n"), piece("leaf", "o\nend"), {"response": None}]
    with fake_lab({"Logs": lambda _: answer}):
        lines = [(row["node"], row["line"]) for row in found("logs")["lines"]]
        assert lines == [("leaf", "one"), ("spine", "a"), ("leaf", "two"), ("leaf", "end")]
        assert found("logs", most=1) == {
            "lines": [{"node": "leaf", "program": "zebra-1", "line": "end"}],
            "left_out": 3,
        }


MEASURED = {
    **STATE, "tables": {}, "jobs": [], "missing": [],
    "counters": {"h1": {"rdma": {"rxe1": {"completer_retry_err": 4, "sent_pkts": 7, "rcvd_pkts": 0}}}},
}  # fmt: skip


def test_counters_have_their_meaning() -> None:
    with fake_lab({"Metrics": response(MEASURED)}):
        [error_row] = found("counters", meaning="error")["counters"]
        assert (error_row["place"], error_row["counter"], error_row["value"]) == ("rxe1", "completer_retry_err", 4)
        assert len(found("counters")["counters"]) == 2
        assert len(found("counters", zero=True)["counters"]) == 3
        assert found("counters", node="h2")["counters"] == []


def test_metrics_are_those_of_prometheus_by_name() -> None:
    with fake_lab({"Metrics": response(MEASURED)}):
        lines = found("metrics", name="completer_retry_err")["lines"]
        assert lines[0].startswith("# HELP rdma_completer_retry_err_total ")
        assert any(line.startswith("rdma_completer_retry_err_total{") and line.endswith(" 4.0") for line in lines)
        assert not any("sent_pkts" in line for line in lines)


def test_objects_are_rows_as_of_kubectl() -> None:
    listing = {"kind": "Pod", "columns": ["NAME", "READY"], "wide": ["IP"], "rows": [["web", "1/1", "10.0.0.1"]],
               "objects": [{"kind": "Pod"}]}  # fmt: skip
    with fake_lab({"GetObjects": response([listing])}):
        result = found("get", kinds=["pods"])
        assert result == {
            "rows": [{"KIND": "Pod", "NAME": "web", "READY": "1/1", "IP": "10.0.0.1"}], "objects": [], "left_out": 0,
        }  # fmt: skip
        assert found("get", kinds=["pods"], whole=True)["objects"] == [{"kind": "Pod"}]


def test_a_fault_is_described(pair: FakeLab) -> None:
    result = found("faults")
    assert {"name": "link-loss", "title": result["kinds"][0]["title"]}.keys() == result["kinds"][0].keys()
    assert "loss" in found("faults", kind="link-loss")["parameters"]["properties"]
    assert "Did you mean link-loss?" in error("faults", kind="linkloss")


# Programs


def output(data: bytes, stream: str = "out") -> dict[str, Any]:
    return {"report": {stream: base64.b64encode(data).decode()}}


def test_exec_has_status_and_both_outputs() -> None:
    with fake_lab({"Exec": lambda _: [output(b"one\n"), output(b"two\n", "err"), {"response": 3}]}) as lab:
        result = found("exec", node="h1", command=["ip", "neigh"])
        assert result == {"status": 3, "late": False, "stdout": "one", "stderr": "two"}
        assert lab.requests("Exec")[0] == {
            "kind": "Exec", "node": "h1", "command": ["ip", "neigh"], "terminal": None, "given": None, "input": False,
            "detach": False, "limit_s": 30.0,
        }  # fmt: skip


def test_a_line_goes_to_sh_and_input_along() -> None:
    with fake_lab({"Exec": response(0)}) as lab:
        found("exec", node="h1", command="ip neigh | wc -l", stdin="in\n", timeout_s=5)
        [request] = lab.requests("Exec")
        assert request["command"] == ["sh", "-c", "ip neigh | wc -l"]
        assert (base64.b64decode(request["given"]), request["limit_s"]) == (b"in\n", 5)
        assert "at least 1 item" in error("exec", node="h1", command=[])
        assert "less than or equal to 3600" in error("exec", node="h1", command="true", timeout_s=3601)


def test_a_command_that_took_too_long_is_late() -> None:
    with fake_lab({"Exec": lambda _: [{"report": {"late": True}}, {"response": 129}]}):
        assert found("exec", node="h1", command="sleep 99")["late"] is True


def test_long_output_loses_its_middle() -> None:
    lines = b"".join(b"%d\n" % number for number in range(200_000))
    with fake_lab({"Exec": lambda _: [output(lines), {"response": 0}]}):
        text = found("exec", node="h1", command="seq 200000")["stdout"]
        assert text.startswith("0\n1\n")
        assert text.endswith("\n199999")
        assert "bytes left out" in text
        assert len(text) < RESULT


ARP = bytes.fromhex("ffffffffffff02000000000108060001080006040001020000000001" + "0a000a02" + "00" * 6 + "0a000a03")


def pcap(*frames: bytes) -> bytes:
    head = struct.pack("<IHHIIII", 0xA1B23C4D, 2, 4, 0, 0, 65535, 1)
    records = [
        struct.pack("<IIII", 1, 1000 * number, len(data), len(data)) + data for number, data in enumerate(frames)
    ]
    return head + b"".join(records)


class Capturing:
    """Answers to a capture, whose frames come when something else is asked."""

    def __init__(self, *others: str) -> None:
        self.order: list[str] = []
        self.answers: Answers = {
            "Capture": lambda _: self.noted("Capture", [output(pcap(ARP, ARP))]),
            "Advance": lambda _: self.noted("Advance", [{"response": 9.0}]),
            "RdmaWrite": lambda _: self.noted("RdmaWrite", [{"response": WRITTEN}]),
            "Exec": lambda _: self.noted("Exec", [{"response": 0}]),
            "stop": lambda _: self.noted("stop", [{"response": 5}]),
        }

    def noted(self, what: str, answer: list[dict[str, Any]]) -> list[dict[str, Any]]:
        self.order.append(what)
        return answer


def test_a_capture_has_decoded_frames_of_what_ran_meanwhile() -> None:
    capturing = Capturing()
    with fake_lab(capturing.answers) as lab:
        result = found("capture", end="leaf:e1", filter="arp", packets=9, during={"source": "h1", "target": "h2"})
        assert capturing.order == ["Capture", "RdmaWrite", "Advance", "stop"]
        assert lab.requests("Capture")[0] | {"kind": ""} == {
            "kind": "", "end": "leaf:e1", "text": False, "filter": "arp", "count": 9,
        }  # fmt: skip
    assert result["result"]["status"] == "SUCCESS"
    assert result["missed"] == 5
    assert [row["t_us"] for row in result["frames"]] == [0, 1]
    assert result["frames"][0] == {
        "t_us": 0.0, "src_mac": "02:00:00:00:00:01", "dst_mac": "ff:ff:ff:ff:ff:ff", "src": "10.0.10.2",
        "dst": "10.0.10.3", "kind": "arp", "text": "ARP request: who has 10.0.10.3? tell 10.0.10.2", "length": 42,
    }  # fmt: skip


def test_a_command_may_run_during_a_capture() -> None:
    capturing = Capturing()
    with fake_lab(capturing.answers) as lab:
        found("capture", end="leaf:e1", during={"node": "h1", "command": "ping -c 1 10.0.10.3"})
        assert lab.requests("Exec")[0]["command"] == ["sh", "-c", "ping -c 1 10.0.10.3"]


def test_a_server_that_only_reads_lets_no_time_pass() -> None:
    capturing = Capturing()
    with fake_lab(capturing.answers):
        assert len(found("capture", Access(changes=False), end="leaf:e1", seconds=0)["frames"]) == 2
        assert capturing.order == ["Capture", "stop"]


def test_a_wrong_filter_is_an_error() -> None:
    with fake_lab({"Capture": failed(TestbedError("tcpdump: syntax error"))}):
        assert "tcpdump: syntax error" in error("capture", end="leaf:e1", filter="no such")


# Changing

ROW = {"number": 1, "fault": "link-loss", "parameters": {}, "since_s": 0.0, "lost": False}
APPLIED = {"applied": ["Pod/web"], "notes": [], "running": ["web"], "waiting": {}}
CALLS = [
    ("rdma_write", {"source": "h1", "target": "h2", "silent": True}, "RdmaWrite", WRITTEN, {"silent": True}),
    ("announce", {"end": "h1"}, "Announce", "10.0.10.2", {"end": "h1", "ip": None}),
    ("advance", {"seconds": 60}, "Advance", 62.5, {"seconds": 60.0}),
    ("address", {"change": "move", "end": "h2", "address": "10.0.10.2"}, "AddressChange", LINK, {"change": "move"}),
    ("link_set", {"end": "leaf:e1", "up": False}, "LinkSet", LINK, {"up": False, "quality": {}}),
    ("profile_set", {"switch": "leaf", "values": {"arp_age": 60}}, "ProfileSet", {"arp_age": 60},
     {"values": {"arp_age": "60"}}),
    ("recover", {"fault": 1}, "FaultRecover", ROW, {"fault": "1"}),
    ("pod_add", {"host": "h1", "pod": "p1", "networks": [{"name": "n"}]}, "PodAdd", NODE,
     {"networks": ['{"name": "n"}']}),
    ("pod_delete", {"pod": "p1"}, "PodDelete", None, {"pod": "p1"}),
    ("reboot", {"hosts": ["h1"], "down_s": 5}, "RebootHosts", APPLIED, {"hosts": ["h1"], "down": 5.0}),
    ("apply", {"text": "name: x", "dry": True}, "Apply", [], {"text": "name: x", "files": {}, "dry": True}),
    ("apply_objects", {"text": "kind: Pod"}, "ApplyObjects", APPLIED, {"text": "kind: Pod"}),
    ("delete_objects", {"kind": "pod", "names": ["web"]}, "DeleteObjects", {"deleted": [], "staying": [], "failed": []},
     {"resources": ["pod"], "names": ["web"]}),
    ("topology", {}, "Save", "name: pair", {}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "given", "kind", "answer", "asked"), CALLS, ids=[row[0] for row in CALLS])
def test_a_tool_asks_what_its_command_asks(
    name: str, given: dict[str, Any], kind: str, answer: Any, asked: dict[str, Any]
) -> None:
    with fake_lab({kind: response(answer)}) as lab:
        found(name, **given)
        assert lab.requests(kind)[0].items() >= asked.items()


def test_a_fault_is_injected_with_values_as_they_are_typed() -> None:
    with fake_lab({"FaultInject": response(ROW)}) as lab:
        parameters = {"end": "leaf:e1", "loss": 5, "priorities": [3]}
        assert found("inject", fault="link-loss", parameters=parameters, for_s=2)["fault"] == ROW
        [request] = lab.requests("FaultInject")
        assert request["parameters"] == {"end": "leaf:e1", "loss": "5", "priorities": "[3]"}
        assert request["lasting"] == 2


def test_a_probe_has_bad_pairs_first() -> None:
    def pair(target: str, arrived: int) -> dict[str, Any]:
        times = dict.fromkeys(("shortest_us", "median_us", "longest_us"), 30.0)
        return {"source": "h0:eth1", "target": target, "sent": 8, "arrived": arrived, "error": "", "paths": {}, **times}

    mesh = {"protocol": "rdma", "nics": ["h0:eth1", "h1:eth1", "h2:eth1"], "bytes": 1024, "lost_at": [],
            "slow_ports": {}, "resent": 0, "unseen": 0, "pairs": [pair("h1:eth1", 8), pair("h2:eth1", 3)]}  # fmt: skip
    with fake_lab({"Probe": response([mesh])}):
        result = found("probe")
        assert [row["target"] for row in result["pairs"]] == ["h2:eth1", "h1:eth1"]
        assert result["summary"] == ["rdma: 5 of 16 probes are lost"]


def test_limits_of_arguments_are_the_schemas() -> None:
    with fake_lab({}):
        assert "less than or equal to 86400" in error("advance", seconds=1e6)
        assert "at most 1048576" in error("apply", text="x" * (1 << 20) + "x")


# Results


def bad(text: str) -> set[str]:
    return {c for c in text if unicodedata.category(c) in ("Cc", "Cf", "Zl", "Zp") and c != "\n"}


def test_hostile_texts_of_a_lab_are_cleaned() -> None:
    events = {"report": {"events": [{**event(1, "exec", HOSTILE), "data": {HOSTILE: [HOSTILE]}}]}}
    answers: Answers = {
        "Exec": lambda _: [output(HOSTILE.encode()), output(HOSTILE.encode(), "err"), {"response": 0}],
        "Events": lambda _: [events, {"response": None}],
        "Tables": response([{**ENTRY, "state": HOSTILE}]),
        "Save": response(HOSTILE),
        "Announce": failed(TestbedError(HOSTILE, where=HOSTILE, hint=HOSTILE)),
    }  # fmt: skip
    with fake_lab(answers):
        texts = [
            call("exec", node="h1", command="x").content[0].text,
            call("events").content[0].text,
            call("tables", switch="leaf").content[0].text,
            call("topology").content[0].text,
            error("announce", end="h1"),
            session(lambda client: client.read_resource("testbed://labs/pair/topology")).contents[0].text,
        ]
    for text in texts:
        assert "owned" in text
        assert not bad(text), ascii(text)


def test_every_result_is_bounded() -> None:
    long = [event(t, text="x" * 5000) for t in range(400)]
    many = [{**NODE, "name": f"h{number}", "interfaces": [LINK] * 8} for number in range(500)]
    answers: Answers = {
        "Inspect": response({**STATE, "nodes": many}),
        "Tables": response([ENTRY] * 5000),
        "Events": lambda _: [{"report": {"events": long}}, {"response": None}],
        "Save": response("x" * 10**6),
    }  # fmt: skip
    with fake_lab(answers):
        for name, given in ("inspect", {}), ("tables", {"switch": "leaf"}), ("events", {"most": 400}), ("topology", {}):
            result = call(name, **given)
            assert not result.is_error
            assert len(result.content[0].text) <= RESULT, name
        state, rows, events = found("inspect"), found("tables", switch="leaf"), found("events", most=400)
        assert state["left_out"] + len(state["nodes"]) + len(state["interfaces"]) == 500 + 4000
        assert rows["left_out"] + len(rows["rows"]) == 5000
        assert events["events"][-1]["t_s"] == 399, "the newest stay"
        assert events["left_out"] == events["events"][0]["t_s"]
        assert len(events["events"][0]["text"]) <= CELL
        text = session(lambda client: client.read_resource("testbed://labs/pair/topology")).contents[0].text
        assert len(text) <= PAGE


def test_errors_have_no_path_of_the_host_and_the_hint() -> None:
    def wrong(where: str) -> Answers:
        return {"Save": failed(TestbedError("it is wrong", where=where, hint="Do it."))}

    with fake_lab(wrong("/home/user/x")):
        assert error("topology") == "Error executing tool topology: it is wrong\nDo it."
    with fake_lab({"Save": failed(TestbedError(f"{Path.home()}/x is damaged"))}):
        assert error("topology") == "Error executing tool topology: …/x is damaged"
    with fake_lab(wrong("line 3")):
        assert "line 3: it is wrong" in error("topology")


# Resources


def read(uri: str, access: Access | None = None) -> str:
    return session(lambda client: client.read_resource(uri), access).contents[0].text


def test_the_documentation_is_there_by_page() -> None:
    assert "- testbed://docs/counters: Counters" in read("testbed://docs").splitlines()
    assert read("testbed://docs/counters").startswith("# Counters\n")
    assert any(kind["name"] == "link-loss" for kind in json.loads(read("testbed://faults")))


@pytest.mark.parametrize("page", ["nope", "../README", "..%2fREADME", "/etc/passwd", "%2fetc%2fpasswd", "pictures/x"])
def test_no_other_file_is(page: str) -> None:
    with pytest.raises(MCPError, match=r"there is no page|Unknown resource"):
        read(f"testbed://docs/{page}")


def test_the_topology_is_that_of_the_lab_that_may_be_seen() -> None:
    with fake_lab({"Save": response("name: pair")}):
        assert read("testbed://labs/pair/topology") == "name: pair"
        with pytest.raises(MCPError, match="this server is for lab other"):
            read("testbed://labs/pair/topology", Access("other"))
        with pytest.raises(MCPError, match="does not exist"):
            read("testbed://labs/paar/topology")


# Several calls, and calls that nobody waits for


def test_calls_go_on_side_by_side() -> None:
    async def at_once(client: Client) -> list[Any]:
        found: list[Any] = []

        async def one(number: int) -> None:
            result = await client.call_tool("exec", {"node": "h1", "command": ["echo", str(number)]})
            found.append(result.structured_content["stdout"])

        async with anyio.create_task_group() as group:
            for number in range(MOST_CALLS + 4):
                group.start_soon(one, number)
        return found

    def echo(request: dict[str, Any]) -> list[dict[str, Any]]:
        time.sleep(0.05)
        return [output(request["command"][1].encode()), {"response": 0}]

    with fake_lab({"Exec": echo}):
        assert sorted(session(at_once), key=int) == [str(number) for number in range(MOST_CALLS + 4)]


def test_a_call_that_is_cancelled_disconnects_from_the_lab() -> None:
    async def give_up(client: Client) -> None:
        with anyio.move_on_after(0.5):
            await client.call_tool("exec", {"node": "h1", "command": "sleep 100"})

    with fake_lab({}) as lab:
        session(give_up)
        assert lab.begun.acquire(timeout=10), "the command was begun"
        assert lab.gone.acquire(timeout=10), "and its connection ended, by which the keeper stops it"
