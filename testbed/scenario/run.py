"""Variants of a scenario and the run of one: steps, expectations, evidence, and in the end the verdict."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from testbed.errors import InputError, did_you_mean
from testbed.faults import Fault, Injection
from testbed.lab import HostInterface, Lab
from testbed.protocol import Event, Observed, VariantOutcome, events
from testbed.scenario.event_log import EventLog, plain
from testbed.scenario.evidence import Evidence
from testbed.topology import AnAddress, address_of, virtual_mac_of
from testbed.workload.attributes import Attributes, Completion
from testbed.workload.queue_pair import ConnectError
from testbed.workload.verbs import Endpoint, connect_pair, connected, open_endpoint

WRITE_S = 600.0
"""Seconds for one WRITE. The retries that `Attributes` have by default end long before."""


@dataclass(frozen=True)
class Variant:
    """A run of a scenario with its expected outcome. `settings` replaces defaults of the parameters, and stays unless
    the user names the variant."""

    name: str
    expected: Observed
    text: str
    settings: Mapping[str, Any] = field(default_factory=dict)


NOT_CHOSEN = Variant("", "healthy", "")
"""The variant of a run whose lab is not up yet."""


def owner_of(mac: str | None, *interfaces: HostInterface) -> str:
    """Name the one of the interfaces that has a MAC, such as ``server's MAC``; "no entry" if none has."""
    return next((f"{interface.node}'s MAC" for interface in interfaces if interface.mac == mac), "no entry")


def _holds(actual: Any, expected: Any) -> bool:
    return actual is not None and bool(expected(actual) if callable(expected) else actual == expected)


class Run:
    """The run of a variant: its steps, expectations and evidence. `lab` is up; `log` is the event log."""

    def __init__(self, lab: Lab, log: EventLog, variant: Variant, files: Evidence | None = None) -> None:
        self.lab = lab
        self.log = log
        self.variant = variant
        self.prepared: Any = None
        """What the scenario's `prepare` has returned."""
        self.observed: Observed | None = None
        self.evidence: dict[str, Any] = {}
        self.failures: list[str] = []
        self.warnings: list[str] = []
        """What the user should look at, and what does not change the verdict."""
        self._files = files or Evidence(lab, log)
        self._injections: list[tuple[Injection, bool]] = []
        """Each fault, and whether the end of the run may cut it short."""
        self._without_faults: Collection[int] = ()
        self._left_out = 0

    def begin(self, variant: Variant, without_faults: Collection[int]) -> None:
        """Set the variant, and the numbers of faults that are left out, when the lab is up."""
        self.variant, self._without_faults = variant, without_faults

    @property
    def now(self) -> float:
        """Return virtual seconds since the variant began."""
        return self.log.now / 1e9

    @contextlib.contextmanager
    def step(self, text: str) -> Iterator[None]:
        """Run a step. At its end faults are verified to hold still, and the switch tables and the counters are written
        to the run directory."""
        self._report(events.STEP(), text)
        yield
        for injection in self.lab.injections:
            injection.check()
        self._files.save_tables(text)
        self.failures += [missing for missing in self._files.count(text) if missing not in self.failures]

    @contextlib.contextmanager
    def sampled(self, every: float) -> Iterator[None]:
        """Write the counters of queues to counters.jsonl every so many virtual seconds during the block: their fill
        levels, and on lossless ports pauses and the rates of queue pairs, as time series that the report draws."""
        stop = self.lab.scheduler.every(every, self._files.sample)
        try:
            yield
        finally:
            stop()

    def note(self, **evidence: Any) -> None:
        """Record evidence for the verdict, shown beside it: short values under the field's names."""
        self.evidence |= plain(evidence)
        self._report(events.EVIDENCE(**evidence), ", ".join(f"{name} {value}" for name, value in evidence.items()))

    def expect(self, what: str, actual: Any, expected: Any) -> bool:
        """Expect that `actual` equals `expected`, or that `expected(actual)` holds. No data (None) never passes."""
        met = _holds(actual, expected)
        self._report(events.EXPECT(met=met, actual=actual), what)
        if not met:
            wanted = "" if callable(expected) else f", not {plain(expected)!r}"
            self.failures.append(f"{what}: it was {plain(actual)!r}{wanted}")
        return met

    def eventually(self, what: str, probe: Callable[[], Any], expected: Any, *, within: float) -> bool:
        """Expect the same of `probe()`, for at most `within` virtual seconds. It is called whenever something has
        happened that may change its result: see `Lab.wait`."""
        actual = None

        def true() -> bool:
            nonlocal actual
            actual = probe()
            return _holds(actual, expected)

        self.lab.scheduler.wait(true, within)
        return self.expect(what, actual, expected)

    def observe(self, observed: Observed, text: str) -> None:
        """Report what users see in the end. Exactly once in a run."""
        if observed not in ("fault", "healthy"):
            raise InputError(f"users see 'fault' or 'healthy', not {observed!r}")
        if self.observed:
            raise InputError(f"the scenario observed {self.observed} before it observed {observed}")
        self.observed = observed
        self._report(events.OBSERVED(observed=observed), text)

    def observe_status(self, status: str, healthy: str, *, who: str = "the client") -> bool:
        """Observe the end of `who`'s work request: `healthy` is what users see if its status is SUCCESS; else they see
        a fault, and its status is expected to be that of unanswered retries. Return whether it succeeded."""
        if status == "SUCCESS":
            self.observe("healthy", healthy)
            return True
        self.observe("fault", f"{who}'s work request dies of {status}")
        self.expect("it dies of unanswered retries", status, "RETRY_EXC_ERR")
        return False

    def _report(self, data: events.Data, text: str) -> None:
        """Emit an event of the scenario itself, and settle the log, so that it is shown now and in its place."""
        self.log.emit(data, "", text)
        self.log.settle(self.lab.scheduler.catch_up)

    def nics(self, *hosts: str) -> list[HostInterface]:
        """Return the interface ``eth1`` of each of the hosts."""
        return [self.lab.host(name)["eth1"] for name in hosts]

    def write(
        self, near: HostInterface, far: HostInterface, attributes: Attributes | None = None, *, size: int = 4096
    ) -> str:
        """Make a new connection from one NIC to another, and one RDMA WRITE of `size` bytes over it. Return the
        completion's status; without a connection the error of modify to RTR, ETIMEDOUT where nobody answers ARP."""
        try:
            with connected(near, far, attributes) as ends:
                return Connection(self, near, *ends).write(size).status
        except ConnectError as error:
            text = f"no connection to {far.node}: {error.error}"
            self.log.emit(events.CONNECT(error=error.error), near.node.name, text)
            return error.error

    def expect_write(self, text: str, near: HostInterface, far: HostInterface) -> None:
        """Run the step `text`, in which one NIC connects to another and a first WRITE arrives."""
        with self.step(text):
            self.expect("the first WRITE", self.write(near, far), "SUCCESS")

    def connect(
        self,
        text: str,
        near: HostInterface,
        far: HostInterface,
        attributes: Attributes | None = None,
        *,
        size: int = 4096,
    ) -> Connection:
        """Run the step of `expect_write`, over a connection that lasts until its `close`, or the end of the run."""
        connection = Connection(self, near, open_endpoint(near), open_endpoint(far))
        connect_pair(connection.near, connection.far, attributes)
        with self.step(text):
            self.expect("the first WRITE", connection.write(size).status, "SUCCESS")
        return connection

    def completed(self, near: HostInterface, completion: Completion) -> Completion:
        """Emit the completion of a work request."""
        text = f"{completion.opcode} ends with {completion.status} after {completion.elapsed_s * 1e3:.1f} ms"
        data = events.COMPLETION(
            opcode=completion.opcode,
            status=completion.status,
            elapsed_s=completion.elapsed_s,
            near=completion.near,
            far=completion.far,
        )
        self.log.emit(data, near.node.name, text, at_ns=completion.t_ns)
        return completion

    def sleep(self, seconds: float, why: str) -> None:
        """Let virtual time pass as part of the run."""
        self._report(events.SLEEP(seconds=seconds), f"{seconds:g} s: {why}")
        self.lab.scheduler.sleep(seconds)

    def tries(self, attempt: Callable[[], str], within: float, pause: float, longest: float | None = None) -> list[str]:
        """Repeat `attempt` until it returns SUCCESS, and return the result of each: ``run.write`` in most cases. There
        is no further one once `within` seconds have passed, so 0 allows one.

        The client sleeps `pause` seconds between two attempts; with `longest` the pause doubles each time, up to that.
        """
        ends = self.now + within
        statuses = [attempt()]
        while statuses[-1] != "SUCCESS" and self.now < ends:
            self.sleep(pause, "the client waits before it tries again")
            if longest is not None:
                pause = min(2 * pause, longest)
            statuses.append(attempt())
        return statuses

    def silence(self, interface: HostInterface, nic: HostInterface | None = None) -> None:
        """Set a static neighbour entry of its gateway, so that an interface has no reason to send ARP. A pod has the
        gateway of its node's `nic`. InputError if there is no switch with an SVI at the other end."""
        nic = nic or interface
        switch = nic.peer.node if nic.peer else nic.node
        gateway = nic.gateway()
        mac = virtual_mac_of(self.lab.plan, gateway) or self.lab.switch(switch.name).svi_mac()
        interface.set_neighbour(gateway, mac)

    def wait_for_gateway(
        self,
        interface: HostInterface,
        gateway: AnAddress | None = None,
        *,
        within: float = 30.0,
        announce: bool = False,
    ) -> bool:
        """Expect, as a readiness gate, that the gateway of an interface answers a ping `within` seconds. For a pod,
        give it. With `announce` the interface announces itself after each unanswered ping. Return whether it opened."""
        address = address_of(gateway) if gateway else interface.gateway()

        def answered() -> bool:
            if interface.node.ping(address, within=1):
                return True
            if announce:
                interface.announce()
            return False

        return self.eventually(f"{interface.node} reaches its gateway", answered, True, within=within)

    def events(self, kind: str, **data: Any) -> list[Event]:
        """Return past events of a kind whose data contains all of `data`, oldest first: ``arp.aged``, ``ip=ip``.
        InputError for a kind that there is not."""
        if kind not in events.KINDS:
            hint = f"{did_you_mean(kind, events.KINDS)}docs/events.md has all kinds."
            raise InputError(f"there are no events {kind!r}", hint=hint)
        self.lab.scheduler.catch_up()
        return self.log.find(kind, **data)

    def inject(
        self, fault: Fault, *, after: float = 0.0, lasting: float | None = None, may_outlast_run: bool = False
    ) -> Injection:
        """Inject a fault `after` so many seconds, and recover it when it has lasted `lasting`, else by `recover`, or at
        the end. The run ends here if the fault does not begin, or does not end.

        A fault that the end of the run cuts short makes the variant unexpected, unless it `may_outlast_run`. A fault
        that `--without-fault` names is left out: the returned injection was never active.
        """
        if not isinstance(fault, Fault):
            raise InputError(f"{fault!r} is no fault", hint="Give an object, such as LinkDown(end='leaf:e1').")
        injection = Injection(self.lab, fault)
        number = len(self._injections) + self._left_out + 1
        if number in self._without_faults:
            self._left_out += 1
            self._report(events.LEFT_OUT(number=number, fault=str(fault)), f"fault {number} is left out: {fault}")
            return injection
        self._injections.append((injection, may_outlast_run))
        injection.inject_after(after, lasting)
        return injection

    @contextlib.contextmanager
    def fault(self, fault: Fault) -> Iterator[Injection]:
        """Inject a fault for the block."""
        injection = self.inject(fault)
        try:
            yield injection
        finally:
            injection.recover()

    def outcome(self, directory: Path) -> VariantOutcome:
        """Return the verdict: as expected when users saw what the variant expects and every expectation held."""
        if self.observed is None:
            self.failures.append("the scenario ended without an observation")
        elif self.observed != self.variant.expected:
            self.failures.append(f"users saw {self.observed} where {self.variant.expected} was expected")
        for injection in self.lab.injections:
            injection.judged = True
            if injection.lost:
                self.failures.append(f"fault {injection.fault} {injection.lost}")
        self.failures += [
            f"fault {injection.fault} {injection.unfinished or 'was never injected: it was recovered before its time'}"
            for injection, may_outlast_run in self._injections
            if not injection.came or (injection.unfinished and not may_outlast_run)
        ]
        self.failures += self.log.losses()
        verdict = events.VERDICT(failures=list(self.failures))
        self.log.emit(verdict, "", "unexpected" if self.failures else "as expected")
        return {
            "observed": self.observed,
            "evidence": self.evidence,
            "failures": self.failures,
            "warnings": self.warnings,
            "trace": self.log.write(directory / "events.jsonl"),
            "virtual_s": self.log.now / 1e9,
        }


class Connection:
    """A connection of a run: the endpoint `near` of the NIC that writes, and `far`."""

    def __init__(self, run: Run, nic: HostInterface, near: Endpoint, far: Endpoint) -> None:
        self._run = run
        self._nic = nic
        self.near = near
        self.far = far

    def write(self, size: int = 4096) -> Completion:
        """Make one RDMA WRITE of `size` bytes; expect that they arrived if it succeeded."""
        done = self._run.completed(self._nic, self.near.write(size, within=WRITE_S))
        if done.ok:
            self._run.expect("the bytes arrived", self.far.load(0, size) == self.near.load(0, size), True)
        return done

    def close(self) -> None:
        """Close both ends, as the end of a job does: an open one acknowledges packets that are delivered late."""
        self.near.close()
        self.far.close()
