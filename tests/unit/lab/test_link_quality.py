"""What tc is told for a link's quality, and that nothing is lost on the way from one quality to the next."""

import pytest

from testbed.lab.link_quality import commands
from testbed.topology import Quality

ROOT = "qdisc replace dev e1 root handle 1: netem limit 1000000 reorder 0% corrupt 0%"


@pytest.mark.parametrize(
    ("quality", "words"),
    [
        (Quality(delay=5e-3), " delay 5000us"),
        (Quality(delay=1e-6, jitter=5e-7), " delay 1us 0.5us"),
        (Quality(loss=0.5), " loss random 0.5%"),
        (Quality(loss=20, loss_burst=4), " loss gemodel 6.250000% 25.000000%"),
        (Quality(duplicate=1), " duplicate 1%"),
    ],
)
def test_what_delays_and_loses_is_one_netem(quality: Quality, words: str) -> None:
    assert commands("e1", 1500, quality, set()) == ([ROOT + words], {"netem"})


def test_what_a_change_would_keep_is_always_named() -> None:
    (line,), _ = commands("e1", 1500, Quality(delay=1e-3, reorder=25, corrupt=3), {"netem"})
    assert line.endswith("netem limit 1000000 reorder 25% corrupt 3% delay 1000us")


def test_a_rate_has_a_queue_of_packets() -> None:
    lines, installed = commands("e1", 1500, Quality(rate=100_000_000, queue=64), set())
    assert lines == [
        ROOT,
        "qdisc replace dev e1 parent 1:1 handle 2: tbf rate 100000000bit burst 3036 limit 100188 mpu 84 overhead 24",
        "qdisc replace dev e1 parent 2:1 handle 3: pfifo limit 64",
    ]
    assert installed == {"netem", "tbf", "pfifo"}


def test_an_ecn_threshold_is_a_step_of_red() -> None:
    lines, _ = commands("e1", 1500, Quality(rate=10**9, queue=100, ecn=20), set())
    red = "red limit 151800 min 30360 max 31878 avpkt 1518 burst 20 bandwidth 1000000000bit probability 1 ecn nodrop"
    assert lines[2] == f"qdisc replace dev e1 parent 2:1 handle 3: {red}"


def test_one_kind_of_queue_makes_room_for_the_other() -> None:
    lines, _ = commands("e1", 1500, Quality(rate=10**9), {"netem", "tbf", "red"})
    assert lines[2] == "qdisc del dev e1 parent 2:1"


def test_a_rate_that_goes_leaves_the_delay() -> None:
    assert commands("e1", 1500, Quality(delay=1e-3), {"netem", "tbf", "pfifo"}) == (
        [f"{ROOT} delay 1000us", "qdisc del dev e1 parent 1:1"],
        {"netem"},
    )


def test_what_is_as_a_cable_has_no_qdisc() -> None:
    assert commands("e1", 1500, Quality(), {"netem"}) == (["qdisc del dev e1 root"], set())
