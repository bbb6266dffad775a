"""Reports in headless Chromium: drawn, by keyboard, on a phone, in the dark, large, and with hostile texts.

Screenshots are kept in runs/screenshots, to be looked at.
"""

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import Browser, browser, chromium
from report_samples import EVENTS, IP, MS, SVI, A, arp, event, make_run, pcap

from testbed.cli.main import invoke

SCREENSHOTS = Path(__file__).parents[3] / "runs" / "screenshots"
EVIL = "</script><img src=x onerror=\"document.title='broken'\"><script>document.title='broken'</script>"
RETRIES = "client client-eth1 retry_exceeded_err"
"""For a page with 100 000 events, from its address to its last line."""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    program = chromium()
    if program is None:
        assert not os.environ.get("CI"), "CI has no Chromium: .ci/run installs it"
        pytest.skip("there is no Chromium: sudo apt-get install chromium")
    with browser(program, tmp_path_factory.mktemp("profile")) as found:
        yield found


@pytest.fixture
def shown(page: Browser, run_directory: Path) -> Browser:
    page.look(width=1280, height=900)
    page.open(report_of(run_directory))
    return page


def report_of(directory: Path) -> Path:
    assert invoke(["report", str(directory)]) == 0
    return directory / "report.html"


def text_of(page: Browser, selector: str) -> str:
    found: str = page.run(f"[...document.querySelectorAll({selector!r})].map(one => one.innerText).join('\\n')")
    return found


def test_a_report_shows_what_happened_and_where(shown: Browser) -> None:
    assert text_of(shown, "h1") == "A switch keeps a MAC"
    assert text_of(shown, ".outcome") == "the WRITE dies"
    assert f"leaf: {IP} is at pod-a {A}" in text_of(shown, ".marks")
    moments = text_of(shown, ".moments li").splitlines()
    assert moments[:2] == ["0.001 s", "pod A serves"]
    assert "client: RDMA_WRITE RETRY_EXC_ERR after 250 ms" in moments
    marked = shown.run("document.querySelector('.drawing').shadowRoot.querySelectorAll('rect.marked').length")
    assert marked == 1
    assert shown.errors == []


def test_the_time_line_has_a_lane_for_each_thing_and_is_drawn(shown: Browser) -> None:
    names = text_of(shown, ".names").splitlines()
    assert {"steps", IP, f"leaf: {IP}", "client", "pod-a", "pod-b"} <= set(names)
    painted = shown.run(
        "(() => { const canvas = document.querySelector('.timeline canvas');"
        "const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);"
        "const seen = new Set(), at = i => data[i] << 16 | data[i+1] << 8 | data[i+2];"
        "for (let i = 0; i < data.length; i += 4) seen.add(at(i));"
        "return [0xc4262e, 0x8ea7c9].map(one => [...seen].some(other => [16, 8, 0].every(bit =>"
        "Math.abs((one >> bit & 255) - (other >> bit & 255)) < 40))) })()"
    )
    assert painted == [True, True], "what is wrong is red, what is not is blue"


def test_a_page_asks_for_nothing_but_itself(shown: Browser, run_directory: Path) -> None:
    assert shown.asked == [(run_directory / "report.html").as_uri()]


def test_a_packet_opens_with_its_fields_and_leads_to_the_capture(shown: Browser, run_directory: Path) -> None:
    shown.run("document.querySelector('.packets tr.level-bad button').click()")
    fields = text_of(shown, ".layers")
    assert "0x06, RC RDMA WRITE First" in fields
    assert "remote key\n0x0000035f" in fields
    assert "frame.number >= 2 && frame.number <= 3" in text_of(shown, ".packets code")
    link = shown.run("document.querySelector('.packets td a').href")
    assert link == (run_directory / "as-is/leaf-e2.pcap").as_uri()


def window(page: Browser) -> list[float]:
    found: list[float] = page.run("charts.values().next().value.getOption().dataZoom.map(z => [z.start, z.end])[0]")
    return found


def test_who_answered_is_shown_and_a_time_leads_to_the_time_line(page: Browser, tmp_path: Path) -> None:
    of_file = {"interface": "e2", "file": "leaf-e2.pcap", "filter": "arp"}
    captured = [event(t * MS, "capture", "leaf", **of_file, running=t == 1) for t in (1, 429)]
    directory = make_run(tmp_path / "run", [*EVENTS, *captured])
    asked, answered = arp(A, IP, "10.0.20.1"), arp(SVI, "10.0.20.1", IP, 2, A)
    asked_again = arp(A, IP, "10.0.20.9")
    frames = (20 * MS, asked), (21 * MS, answered), (400 * MS, asked_again)
    (directory / "as-is/leaf-e2.pcap").write_bytes(pcap(*frames))
    page.look(width=1280, height=900)
    page.open(report_of(directory))
    cells = text_of(page, ".answers tbody td").splitlines()
    assert cells == ["0.021000 s", "pod-a", "10.0.20.1", SVI, "leaf", "its own address", "1"]
    assert "Of 1 more request no reply was captured" in text_of(page, "#answers")
    assert {"pod-a asks for 10.0.20.1", "leaf:e2, leaf-e2.pcap"} <= set(text_of(page, ".names").splitlines())
    page.run("document.querySelector('.answers .at').click()")
    assert page.errors == []


def test_without_captured_requests_there_is_no_such_section(shown: Browser) -> None:
    assert text_of(shown, "#answers") == ""


def test_the_time_line_is_moved_and_zoomed_by_keyboard(shown: Browser) -> None:
    shown.run("document.querySelector('.canvas').focus()")
    assert window(shown) == [0, 100]
    shown.press("+")
    shown.press("+")
    start, end = window(shown)
    assert end - start == pytest.approx(25)
    shown.press("ArrowRight")
    assert window(shown)[0] == pytest.approx(start + 5)
    shown.press("0")
    assert window(shown) == [0, 100]


def test_all_that_can_be_clicked_is_reached_by_tab(shown: Browser) -> None:
    seen = set()
    shown.run("document.body.focus()")
    for _ in range(80):
        shown.press("Tab")
        seen.add(shown.run("document.activeElement.className + ' ' + document.activeElement.textContent.slice(0, 12)"))
    assert any("canvas" in one for one in seen)
    assert any(one.startswith("at ") for one in seen)
    assert any("RC RDMA" in one for one in seen)
    assert any("events" in one for one in seen)


def plots(page: Browser) -> list[str]:
    return text_of(page, ".plots figcaption > span:first-child").splitlines()


def test_counters_are_plotted_and_those_begin_that_should_be_0_and_grew(shown: Browser) -> None:
    assert plots(shown) == [RETRIES]
    spoken = shown.run("document.querySelector('.plots .plot').ariaLabel")
    assert spoken == f"{RETRIES}: 0 at 0.000 s, 1 at 0.415 s"
    painted = shown.run(
        "(() => { const canvas = document.querySelector('.plots canvas');"
        "const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);"
        "const its = i => i % 4 == 0 && data[i] > data[i+2] + 60 && data[i+3] > 60;"
        "return [...data.keys()].filter(its).length })()"
    )
    assert painted > 200, "the line has the colour of what is remarkable"


def test_counters_to_plot_are_chosen_by_keyboard(shown: Browser) -> None:
    shown.run("document.querySelector('#counted summary').focus()")
    shown.press("Enter")
    shown.press("Tab")
    for key in "eth1 tx":
        shown.press(key)
    assert text_of(shown, ".choice label").splitlines() == ["client eth1 tx_bytes"]
    shown.run("document.querySelector('.choice input').focus()")
    shown.press(" ")
    assert plots(shown) == [RETRIES, "client eth1 tx_bytes"]
    assert shown.run("document.querySelectorAll('.plots canvas').length") == 2
    shown.press(" ")
    assert plots(shown) == [RETRIES]
    shown.run("document.querySelectorAll('#counted .tools button')[1].click()")
    assert plots(shown) == ["client eth1 tx_bytes", "client eth1 rx_packets"]
    shown.run("document.querySelector('button.theme').click()")
    assert plots(shown) == ["client eth1 tx_bytes", "client eth1 rx_packets"], "the choice stays in another theme"
    shown.run("document.querySelector('button.theme').click()")


def test_a_point_says_after_what_the_counter_had_its_value(shown: Browser) -> None:
    shown.run(
        "(() => { const plot = [...charts].at(-1);"
        "plot.dispatchAction({ type: 'showTip', seriesIndex: 1, dataIndex: 2 }) })()"
    )
    assert text_of(shown, ".plots .tip") == "1 (+1)\n0.415000 s, after: pod B gets the address"


def test_without_counters_over_time_there_is_no_such_section(page: Browser, run_directory: Path) -> None:
    (run_directory / "as-is/counters.jsonl").unlink()
    page.look(width=1280, height=900)
    page.open(report_of(run_directory))
    assert page.run("document.getElementById('counted')") is None
    assert page.run("document.getElementById('counters') !== null")
    assert page.errors == []


def test_events_are_searched(shown: Browser) -> None:
    shown.run(
        "(() => { const field = document.querySelector('#events input'); field.value = 'pod-b';"
        "field.dispatchEvent(new Event('input')) })()"
    )
    assert text_of(shown, "#events .tools").endswith(f"2 of {len(EVENTS)} events")


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("phone", [False, True])
def test_it_fits_a_desk_and_a_phone_light_and_dark(page: Browser, run_directory: Path, dark: bool, phone: bool) -> None:
    width = 390 if phone else 1280
    page.look(width=width, height=844 if phone else 900, dark=dark, phone=phone)
    page.open(report_of(run_directory))
    assert page.run("document.documentElement.scrollWidth") <= width, "nothing reaches beyond the screen"
    red, green, blue = page.run("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)")
    assert (red + green + blue < 150) is dark
    place = f"{'phone' if phone else 'desk'}-{'dark' if dark else 'light'}.png"
    page.screenshot(SCREENSHOTS / place)


def test_a_report_of_failed_tests_fits_a_phone_with_tracebacks_in_a_fixed_font(page: Browser, tmp_path: Path) -> None:
    name = f"test_{'a_long_name_' * 8}of_a_test"
    trace = "\n".join(["    def test(lab):", f">       assert {'x' * 200}", "E       AssertionError"])
    times = {"virtual_s": 1.0, "wall_s": 1.0}
    test = {"test": f"test_x.py::{name}", "outcome": "failed", "directory": "tmp/x", "text": trace, **times}
    (tmp_path / "tests.jsonl").write_text(json.dumps(test) + "\n")
    (tmp_path / "tmp/x").mkdir(parents=True)
    (tmp_path / "tmp/x/epoch.json").write_text("{}")
    (tmp_path / "tmp/x/events.jsonl").write_text("".join(json.dumps(one) + "\n" for one in EVENTS))
    page.look(width=390, height=844, phone=True)
    page.open(report_of(tmp_path))
    assert page.run("document.documentElement.scrollWidth") <= 390, "nothing reaches beyond the screen"
    style = "getComputedStyle(document.querySelector('.failures'))"
    assert page.run(f"{style}.whiteSpace") == "pre"
    assert "mono" in page.run(f"{style}.fontFamily").lower()
    assert page.errors == []
    page.screenshot(SCREENSHOTS / "phone-failed-tests.png")


def test_texts_of_a_run_stay_texts(page: Browser, tmp_path: Path) -> None:
    def change(result: dict[str, Any]) -> None:
        result.update(scenario=EVIL, title=EVIL, text=EVIL, seed=EVIL)
        result["variants"][0].update(text=EVIL, evidence={EVIL: EVIL}, failures=[EVIL], observed=EVIL)

    events = [{**one, "node": one["node"] and EVIL, "text": EVIL} for one in EVENTS]
    directory = make_run(tmp_path / "run", events, change)
    line = {"t": 0, "after": EVIL, "counters": {EVIL: {EVIL: {EVIL: 1}}}}
    (directory / "as-is/counters.jsonl").write_text(json.dumps(line))
    page.open(report_of(directory))
    page.run("[...document.querySelectorAll('#counted button')].forEach(one => one.click())")
    page.run("document.querySelector('#counted details').open = true")
    page.run("[...charts].at(-1).dispatchAction({ type: 'showTip', seriesIndex: 1, dataIndex: 0 })")
    assert EVIL in text_of(page, ".plots figcaption")
    assert page.run("document.title") == f"{EVIL} – testbed"
    assert page.run("document.querySelectorAll('img').length") == 0
    assert page.run("document.scripts.length") == 4, "data, library, the page's own, and the library as it runs"
    assert text_of(page, "h1") == EVIL


def test_a_script_that_got_into_the_page_would_not_run(shown: Browser) -> None:
    shown.run(
        "document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=\"document.title = 1\">');"
        "const script = document.createElement('script'); script.textContent = 'document.title = 1';"
        "document.body.append(script)"
    )
    assert shown.run("document.title") == "tiny – testbed"
    assert any("Content Security Policy" in error for error in shown.errors)
    shown.errors.clear()


def test_variants_are_compared(page: Browser, run_directory: Path, tmp_path: Path) -> None:
    def healthy(result: dict[str, Any]) -> None:
        result["variants"][0].update(expected="healthy", observed="healthy", evidence={"completion": "SUCCESS"})

    other, output = make_run(tmp_path / "other", EVENTS[:5], healthy), tmp_path / "compare.html"
    assert invoke(["compare", str(run_directory), str(other), "-o", str(output)]) == 0
    page.look(width=1280, height=900)
    page.open(output)
    assert page.run("document.querySelectorAll('.timeline').length") == 2
    assert text_of(page, "td.differs").splitlines()[:2] == ["fault", "healthy"]
    assert "nothing more" in text_of(page, "table")
    page.screenshot(SCREENSHOTS / "compare.png")


def test_counters_of_several_runs_are_drawn_over_each_other(page: Browser, run_directory: Path, tmp_path: Path) -> None:
    other, output = make_run(tmp_path / "other", EVENTS), tmp_path / "compare.html"
    lines = [json.loads(line) for line in (other / "as-is/counters.jsonl").read_text().splitlines()]
    lines[1]["counters"]["client"]["eth1"]["tx_bytes"] = 9000
    lines[2]["counters"]["client"].pop("client-eth1")
    (other / "as-is/counters.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert invoke(["compare", str(run_directory), str(other), "-o", str(output)]) == 0
    page.look(width=1280, height=900)
    page.open(output)
    assert plots(page)[0] == RETRIES, "what should be 0, and differs, comes first"
    assert "client eth1 tx_bytes" in plots(page)
    assert "client eth1 rx_packets" not in plots(page), "it is the same in both"
    spoken = page.run("[...document.querySelectorAll('.plots .plot')].map(one => one.ariaLabel)")
    first, second = spoken[0].removeprefix(f"{RETRIES}: ").split("; ")
    assert first.endswith("as-is 0 at 0.000 s, 1 at 0.415 s")
    assert second.endswith("as-is 0 at 0.000 s")
    page.run("[...charts][0].dispatchAction({ type: 'showTip', seriesIndex: 2, dataIndex: 1 })")
    assert text_of(page, ".plots .tip").splitlines()[1:] == ["0", "0.040000 s, after: pod A serves"]
    page.run("document.querySelector('#counted .tools button').click()")
    page.run("document.querySelector('button.theme').click()")
    assert plots(page) == [RETRIES], "the choice stays in another theme"
    assert page.errors == []
    page.look(width=390, height=844, phone=True)
    page.open(output)
    assert page.run("document.documentElement.scrollWidth") <= 390, "nothing reaches beyond the screen"


def test_on_paper_there_are_all_variants_unfolded(page: Browser, run_directory: Path, tmp_path: Path) -> None:
    other = make_run(tmp_path / "other", EVENTS[:5])
    shutil.copytree(run_directory, tmp_path / "both")
    shutil.copytree(other / "as-is", tmp_path / "both/cured")
    file = tmp_path / "both/result.json"
    result = json.loads(file.read_text())
    result["variants"].append({**result["variants"][0], "name": "cured", "text": "pod B answers"})
    file.write_text(json.dumps(result))
    page.look(width=1280, height=900)
    page.open(report_of(tmp_path / "both"))
    assert "pod B answers" not in text_of(page, ".summary")
    page.run("window.dispatchEvent(new Event('beforeprint'))")
    assert text_of(page, "h1").splitlines() == ["A switch keeps a MAC", "as-is", "cured"]
    summaries = text_of(page, ".summary")
    assert "pod B is silent" in summaries
    assert "pod B answers" in summaries
    assert page.run("document.querySelectorAll('.timeline').length") == 2
    assert page.run("document.querySelectorAll('details:not([open])').length") == 0
    page.screenshot(SCREENSHOTS / "paper.png")
    page.run("window.dispatchEvent(new Event('afterprint'))")
    assert text_of(page, "h1") == "A switch keeps a MAC"
    assert page.errors == []


def test_what_was_typed_in_a_lab_and_what_came_back_are_shown(page: Browser, tmp_path: Path) -> None:
    words = {"command": "exec client -- ping -c 1 10.0.10.9", "took_ns": 10 * MS}
    failed = {**words, "status": 1, "back": "1 packets transmitted, 0 received"}
    events = [
        *EVENTS,
        event(425 * MS, "typed", "client", "ping fails", **failed),
        event(428 * MS, "typed", "client", "ping goes on", **{**words, "status": None, "back": EVIL}),
    ]
    page.look(width=1280, height=900)
    page.open(report_of(make_run(tmp_path / "run", events)))
    assert text_of(page, "#typed code").splitlines() == [f"testbed {words['command']}"] * 2
    assert text_of(page, "#typed pre").startswith("1 packets transmitted, 0 received")
    assert EVIL in text_of(page, "#typed pre")
    assert "status 1" in text_of(page, "#typed .bad")
    assert f"testbed {words['command']}: status 1" in text_of(page, ".summary .moments .bad")
    page.screenshot(SCREENSHOTS / "typed.png")


def test_profiles_of_switches_show_where_each_value_is_from(page: Browser, run_directory: Path) -> None:
    file = run_directory / "as-is/topology.json"
    plan = json.loads(file.read_text())
    age = {"value": 60.0, "unit": "s", "quality": "set here"}
    file.write_text(json.dumps({**plan, "switches": {"leaf": {"profile": "arista-eos", "values": {"arp_age": age}}}}))
    page.open(report_of(run_directory))
    assert text_of(page, ".panel details summary") == "leaf: arista-eos (1 set here)"
    page.run("document.querySelector('.panel details').open = true")
    assert text_of(page, ".panel details td").splitlines() == ["arp_age", "60 s", "set here"]


def test_a_page_of_many_events_has_no_more_elements_than_one_of_a_few(page: Browser, tmp_path: Path) -> None:
    """It is shown at once: the rows that are seen are made, the time line draws what a pixel can show."""

    def one(number: int) -> dict[str, Any]:
        t, switch = number * MS // 2, f"leaf{number % 4}"
        mac, ip = f"02:00:00:00:{number % 40:02x}:01", f"10.0.{number % 40}.2"
        if number % 3:
            return event(t, "fdb.moved", switch, f"FDB {mac} moves", vlan=10, mac=mac, port=f"e{number % 8}")
        return event(t, "arp.updated", switch, f"ARP {ip} is at {mac}", vlan=10, ip=ip, mac=mac, port="e1")

    def change(result: dict[str, Any]) -> None:
        result["variants"][0]["virtual_s"] = 50.0

    elements = []
    for count in 2_000, 20_000:
        page.open(report_of(make_run(tmp_path / str(count), [one(number) for number in range(count)], change)))
        assert text_of(page, "#events .tools").endswith(f"{count} of {count} events")
        elements.append(page.run("document.getElementsByTagName('*').length"))
    assert elements[1] < 1.1 * elements[0]
    page.screenshot(SCREENSHOTS / "many-events.png")


def collective(t: int, hosts: list[str], **more: Any) -> dict[str, Any]:
    zeros, devices = [0.0] * len(hosts), [""] * len(hosts)
    given = {"operation": "allreduce", "elapsed_s": 0.0, "finished_s": zeros, "computed_s": zeros, "devices": devices}
    return event(t, "collective", hosts=hosts, **given, **more)


def test_a_traffic_matrix_has_a_cell_for_each_pair_that_talks(page: Browser, tmp_path: Path) -> None:
    """A ring over rails, and twice a tensor parallel pair: bytes add up, and hosts have their names."""
    hosts = ["host1", "host1", "host2", "host2"]
    ring = collective(2 * MS, hosts, ok=True, matrix=[[0, 2, 4000], [2, 0, 4000], [1, 3, 2000]])
    pair = collective(3 * MS, hosts, ok=True, matrix=[[0, 1, 500_000]])
    failed = collective(4 * MS, hosts, ok=False)
    page.look(width=1280, height=900)
    page.open(report_of(make_run(tmp_path / "run", [ring, pair, pair, failed])))
    assert text_of(page, "#matrices tbody th").split("\n") == ["0 host1", "1 host1", "2 host2", "3 host2"]
    assert text_of(page, "#matrices tbody tr:first-child td").split("\n") == ["", "1.0 MB", "4.0 kB", ""]
    assert "3 collectives of 4 ranks: 1.0 MB" in text_of(page, "#matrices figcaption")
    assert "67 % of the pairs carry nothing" in text_of(page, "#matrices figcaption")
    page.screenshot(SCREENSHOTS / "matrix.png")
    assert page.errors == []


def probed(t: int, **more: Any) -> dict[str, Any]:
    nics = ["h1:eth1", "h2:eth1"]
    tables = {"sent": [[0, 8], [8, 0]], "arrived": [[0, 5], [8, 0]], "median_us": [[None, 35.2], [5037.0, None]]}
    found = {"bytes": 1024, "errors": [["h1:eth1", "h2:eth1", "no route to 10.0.0.2"]], "resent": 0}
    lost_at = [{"place": "in leaf1, before leaf1:e5 sends it", "end": "leaf1:e5", "count": 3}]
    places = {"lost_at": lost_at, "slow_ports": {"leaf2:e6": 5013.0}}
    return event(t, "probed", **{"protocol": "rdma", "nics": nics, **tables, **found, **places, **more})


def test_probes_of_all_pairs_and_the_paths_of_a_job(page: Browser, tmp_path: Path) -> None:
    damaged = probed(3 * MS, sent=[[0]])
    flows = [[0, 1, 65472, ["h1:eth1", "leaf1:e5", "leaf2:e1"]], ["damaged"]]
    ways = event(4 * MS, "job.paths", name="job", flows=flows, unknown=["rank 1 to rank 0: <no> path"])
    page.look(width=1280, height=900)
    page.open(report_of(make_run(tmp_path / "run", [probed(2 * MS), damaged, ways])))
    assert text_of(page, "#probes tbody tr:first-child td").split("\n") == ["", "35 −3"]
    assert text_of(page, "#probes tbody tr:last-child td").split("\n") == ["5037", ""]
    assert "3 of 16 probes are lost" in text_of(page, "#probes figcaption")
    assert "3 last seen: in leaf1, before leaf1:e5 sends it" in text_of(page, "#probes li")
    assert "leaf2:e6 keeps packets for 5013 µs" in text_of(page, "#probes li")
    assert text_of(page, "#paths tbody td").split("\n") == [
        "rank 0",
        "rank 1",
        "65472",
        "h1:eth1 → leaf1:e5 → leaf2:e1",
    ]
    assert "<no> path" in text_of(page, "#paths li")
    page.screenshot(SCREENSHOTS / "probes.png")
    assert page.errors == []


def test_of_more_ranks_than_a_table_shows_there_is_the_sum(page: Browser, tmp_path: Path) -> None:
    hosts = [f"host{number}" for number in range(129)]
    ring = collective(2 * MS, hosts, ok=True, matrix=[[rank, (rank + 1) % 129, 1000] for rank in range(129)])
    page.open(report_of(make_run(tmp_path / "run", [ring])))
    assert "1 collective of 129 ranks: 129 kB" in text_of(page, "#matrices figcaption")
    assert "too many ranks" in text_of(page, "#matrices figcaption")
    assert page.run("document.querySelector('#matrices table')") is None
    assert page.errors == []


def test_a_run_without_collectives_has_no_matrix(shown: Browser) -> None:
    assert shown.run("document.querySelector('#matrices')") is None
