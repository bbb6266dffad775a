"""DCQCN and TIMELY against plain models of their papers: the same rate after each CNP, time, byte and round trip."""

import ctypes

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.kernel.lossless.layout import constants, structures
from testbed.nic.congestion_control import Dcqcn, Hpcc, Timely

LINE = 50_000_000
MS = 1_000_000
ACTS = st.lists(
    st.one_of(
        st.tuples(st.just("cnp"), st.integers(5 * MS, 400 * MS)),
        st.tuples(st.just("wait"), st.integers(MS, 2_000 * MS)),
        st.tuples(st.just("send"), st.integers(60, 300_000)),
    ),
    max_size=60,
)
ROUND_TRIPS = st.lists(st.integers(20_000, 200 * MS), max_size=80)


class Rp:
    """The reaction point of DCQCN (SIGCOMM 2015, section 5), of floats."""

    def __init__(self, values):
        self.v = values
        self.limited = False

    def pass_to(self, now):
        while self.limited:
            alpha_at, increase_at = self.alpha_at + self.v["alpha_ns"], self.increase_at + self.v["increase_ns"]
            if min(alpha_at, increase_at) > now:
                return
            if alpha_at <= increase_at:
                self.alpha *= 1 - self.v["g"] / (1 << 16)
                self.alpha_at = alpha_at
            else:
                self.increase_at = increase_at
                self.timer += 1
                self.rise()

    def cnp(self, now):
        self.pass_to(now)
        if not self.limited:
            self.limited, self.rate = True, min(self.v["first"] or LINE, LINE)
            self.target, self.alpha = self.rate, self.v["initial_alpha"] / (1 << 16)
            self.timer = self.counter = 0
        elif self.v["monitor_ns"] and now - self.cut_at < self.v["monitor_ns"]:
            return
        self.cut_at = now
        g = self.v["g"] / (1 << 16)
        if self.v["clamp"] or self.counter or (self.v["clamp_after_time"] and self.timer):
            self.target = self.rate
        least = max(self.rate * self.v["min_dec"] / (1 << 16), self.v["least"])
        self.rate = max(self.rate * (1 - self.alpha / 2), least)
        self.alpha = (1 - g) * self.alpha + g
        self.alpha_at = self.increase_at = now
        self.timer = self.counter = self.bytes = 0

    def send(self, length):
        if self.limited:
            self.bytes += length
            if self.bytes >= self.v["increase_bytes"]:
                self.bytes -= self.v["increase_bytes"]
                self.counter += 1
                self.rise()

    def rise(self):
        stages = self.v["stages"]
        if min(self.timer, self.counter) > stages:
            self.target += self.v["hai"] * (min(self.timer, self.counter) - stages)
        elif max(self.timer, self.counter) > stages:
            self.target += self.v["ai"]
        self.target = min(self.target, LINE)
        self.rate = (self.rate + self.target) / 2
        if self.rate >= LINE - LINE // 1024:  # of whole bytes, as in the code: nine halvings end just below
            self.limited = False

    @property
    def now(self):
        return self.rate if self.limited else LINE


KNOBS = st.fixed_dictionaries(
    {},
    optional={
        "min_dec_fac": st.sampled_from([50, 90]),
        "initial_alpha": st.just(0.5),
        "first_bps": st.sampled_from([1e9, 1e12]),
        "monitor_us": st.sampled_from([4, 500]),
        "clamp_tgt_rate": st.just(False),
        "clamp_tgt_rate_after_time_inc": st.just(False),
    },
)


@settings(max_examples=300, deadline=None)
@given(
    acts=ACTS, g=st.sampled_from([1 / 256, 1 / 16]), increase_bytes=st.sampled_from([100_000, 1_250_000]), knobs=KNOBS
)
def test_dcqcn_has_the_rates_of_its_paper_and_of_nvidias_knobs(rates, acts, g, increase_bytes, knobs):
    code, kinds = ctypes.CDLL(str(rates)), structures()
    sizes = {"increase_bytes": increase_bytes, "additive_bps": 10e6, "hyper_bps": 100e6}
    numbers = Dcqcn(scale=100, g=g, **sizes, **knobs).numbers()
    flow, values, model = kinds["flow"](), kinds["dcqcn"](**numbers), Rp(numbers)
    line, now = ctypes.c_uint64(LINE), 10**9
    for act, number in acts:
        if act == "send":
            if flow.limited:
                code.sent(ctypes.byref(flow), ctypes.byref(values), line, number)
            model.send(number)
        else:
            now += number
            follow = code.cut if act == "cnp" else code.catch_up
            follow(ctypes.byref(flow), ctypes.byref(values), line, ctypes.c_uint64(now))
            model.cnp(now) if act == "cnp" else model.pass_to(now)
        rate = flow.rate if flow.limited else LINE
        assert rate == pytest.approx(model.now, rel=0.002)


@settings(max_examples=200, deadline=None)
@given(trips=ROUND_TRIPS)
def test_timely_has_the_rates_of_its_paper(rates, trips):
    code, kinds = ctypes.CDLL(str(rates)), structures()
    numbers = Timely(scale=40).numbers()
    flow, values = kinds["flow"](), kinds["timely"](**numbers)
    rate, previous, gradient, calm = float(LINE), None, 0, 0
    for rtt in trips:
        code.adapt(ctypes.byref(flow), ctypes.byref(values), ctypes.c_uint64(LINE), ctypes.c_uint64(rtt))
        change = rtt - (rtt if previous is None else previous)
        gradient += (change - gradient) * numbers["ewma"] >> 16
        previous = rtt
        calm = calm + 1 if gradient <= 0 and rtt <= numbers["high_ns"] else 0
        if rtt > numbers["high_ns"]:
            rate *= max(1 - 0.8 * (1 - numbers["high_ns"] / rtt), 0.5)
        elif rtt < numbers["low_ns"] or gradient <= 0:
            rate += numbers["ai"] * (5 if calm >= 5 else 1)
        else:
            rate *= max(1 - 0.8 * gradient / numbers["least_rtt_ns"], 0.5)
        rate = min(max(rate, numbers["least"]), LINE)
        assert flow.rate == pytest.approx(rate, rel=0.002)


HOP_ACTS = st.lists(
    st.lists(st.tuples(st.integers(10_000, 8 * MS), st.floats(0, 1), st.integers(0, 60_000)), min_size=2, max_size=2),
    max_size=60,
)
NS_PER_KIB = 8 * 1024 * 10**9 // LINE


class Hop(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_uint64) for name in ("at", "bytes")),
        *((name, ctypes.c_uint32) for name in ("port", "queue")),
        ("ns_per_kib", ctypes.c_uint64),
    ]


class Journey(ctypes.Structure):
    """struct journey of bpf/hpcc.h."""

    _fields_ = [
        ("sent_bytes", ctypes.c_uint64),
        ("psn", ctypes.c_uint32),
        ("hops", ctypes.c_uint32),
        ("hop", Hop * constants()["HOPS"]),
    ]


class Hpcc1:
    """Algorithm 1 of SIGCOMM 2019, of floats: per-ACK reaction to a reference window that is updated per round trip."""

    def __init__(self, values, line):
        self.v, self.t = values, values["rtt_ns"] / 1e9
        self.most = self.window = self.reference = line * self.t / 8
        self.use, self.stage, self.last, self.update_psn = 1.0, 0, None, 0

    def ack(self, psn, hops, next_psn):
        before, self.last = self.last, hops
        if before is None:
            return
        most = tau = 0.0
        for (at, sent, queue), (at0, sent0, queue0) in zip(hops, before, strict=True):
            bandwidth = LINE / 8
            use = min(queue, queue0) / (bandwidth * self.t) + (sent - sent0) / ((at - at0) / 1e9) / bandwidth
            if use > most:
                most, tau = use, (at - at0) / 1e9
        tau = min(tau, self.t)
        self.use = (1 - tau / self.t) * self.use + tau / self.t * most
        update = psn >= self.update_psn
        eta = self.v["eta"] / (1 << 16)
        if self.use >= eta or self.stage >= self.v["stages"]:
            window = self.reference / (self.use / eta) + self.v["ai_bytes"]
            stage = 0
        else:
            window, stage = self.reference + self.v["ai_bytes"], self.stage + 1
        self.window = max(min(window, self.most), self.v["least_bytes"])
        if update:
            self.stage, self.reference, self.update_psn = stage, self.window, next_psn


@settings(max_examples=200, deadline=None)
@given(acts=HOP_ACTS, ahead=st.integers(1, 20))
def test_hpcc_has_the_windows_of_its_paper(rates, acts, ahead):
    """What an earlier queue pair left in the place of its telemetry does not count."""
    code, kinds = ctypes.CDLL(str(rates)), structures()
    numbers = Hpcc(scale=400, base_rtt_us=10, additive_bps=500e6).numbers()
    flow, values, last = kinds["flow"](), kinds["hpcc"](**numbers), Journey(hops=2)
    for one in range(2):
        last.hop[one] = Hop(1, 1 << 40, one + 1, 1 << 20, NS_PER_KIB)
    line = ctypes.c_uint64(LINE)
    code.begin(ctypes.byref(flow), ctypes.byref(values), line, ctypes.c_uint64(0))
    flow.update_psn = 0
    model, times, sent = Hpcc1(numbers, LINE), [10**9, 10**9], [0, 0]
    for psn, hops in enumerate(acts):
        for one, (gap, busy, _) in enumerate(hops):
            times[one] += gap
            sent[one] += int(gap * busy * LINE / 8e9)
        found = [(times[one], sent[one], queue) for one, (_, _, queue) in enumerate(hops)]
        now = Journey(psn=psn, hops=2)
        for one, (at, count, queue) in enumerate(found):
            now.hop[one] = Hop(at, count, one + 1, queue, NS_PER_KIB)
        flow.next_psn = psn + ahead
        by = ctypes.byref
        code.on_telemetry(by(flow), by(last), by(now), by(values), line)
        model.ack(psn, found, psn + ahead)
        assert flow.use / (1 << 16) == pytest.approx(model.use, rel=0.01, abs=0.01)
        assert flow.window == pytest.approx(model.window, rel=0.03, abs=40)
        model.use, model.window, model.reference = flow.use / (1 << 16), flow.window, flow.reference
        model.stage = flow.stage
