"""Elastic jobs of torchrun: a rendezvous (c10d) where hosts meet. Each of its rounds starts the ranks anew, on those
hosts that are there, with gloo over TCP."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from testbed.errors import InputError
from testbed.lab import Host, HostInterface, Lab
from testbed.lab.processes import Process
from testbed.workload.jobs.job import Job, forked
from testbed.workload.jobs.placement import Rank, each, management
from testbed.workload.jobs.torchrun import AGENT, PORT, Told, agent, blame, checked, told

LOOK_S = 0.05
"""Seconds between two checks for a round that begins."""
Lines = list[tuple[int, Told]]
"""What agents have told, with their numbers."""


class ElasticJob:
    """Agents of torchrun, one a host, and the rounds so far. A round ends when a rank fails or a host comes back; then
    the agents that are there begin the next one."""

    def __init__(
        self,
        lab: Lab,
        nics: Sequence[HostInterface],
        program: str | Path,
        *arguments: str,
        name: str = "job",
        at_least: int = 0,
        restarts: int = 0,
        ranks_per_host: int = 1,
        management_interface: str = "mgmt0",
        environment: Mapping[str, str] | None = None,
        beside: Sequence[Path] = (),
    ) -> None:
        """Start an agent on the host of each of `nics`, by which gloo sends. The agents meet at the first host, on the
        management network.

        A round begins when all hosts are there, or `at_least` of them and nobody else has come for 30 s (torchrun's
        last call). `restarts` is torchrun's --max-restarts. The files of the directories `beside` are in the ranks'
        working directory, which all rounds have. InputError for what cannot be started."""
        self.lab, self.name = lab, name
        self.rounds: list[Round] = []
        self._hosts = [lab.host(nic.node.name) for nic in nics]
        file = checked(program, self._hosts)
        each(self._hosts, ranks_per_host)
        if not 0 <= at_least <= len(nics):
            raise InputError(f"a round needs {at_least} hosts, and the job has {len(nics)}")
        self._nics = [nic.name for nic in nics]
        self._ends = [end.address().ip for end in management(self._hosts[0], self._hosts[1:], management_interface)]
        self._first = Job(lab, name, [])
        for directory in beside:
            self._first.bring(directory)
        self._command = [
            *("--rdzv-backend=c10d", f"--rdzv-id={name}", f"--rdzv-endpoint={self._ends[0]}:{PORT}"),
            *(f"--nnodes={at_least or len(nics)}:{len(nics)}", f"--max-restarts={restarts}"),
            *(f"--nproc-per-node={ranks_per_host}", "--no-python", *forked(file), *arguments),
        ]
        self._environment = {"OMP_NUM_THREADS": "1", **(environment or {})}
        self.agents: dict[int, Process] = {}
        self.lost: set[tuple[int, int]] = set()
        """Agents that a signal ended, with the number of rounds by then."""
        for node in range(len(self._hosts)):
            self._start(node)
        lab.defer(self.close)

    def _start(self, node: int) -> None:
        variables = {
            "TMPDIR": self._first.scratch,
            "TESTBED_RANKS": self._first.directory,
            "TESTBED_LAUNCHER": agent(node),
            "GLOO_SOCKET_IFNAME": self._nics[node],
            **self._environment,
        }
        own = [f"--rdzv-conf=is_host={int(node == 0)}", f"--local-addr={self._ends[node]}"]
        words = [f"{key}={value}" for key, value in variables.items()]
        command = [*words, *forked(AGENT), *own, *self._command]
        self.agents[node] = self._first.launch(self._hosts[node], command, of_all=False)

    def host(self, node: int) -> Host:
        return self._hosts[node]

    def next_round(self, within: float) -> Round | None:
        """Wait until the ranks of a further round start; None if the job has ended, or after `within` seconds."""
        self.lab.scheduler.wait(lambda: self._begun() or not self.running, within, pause=LOOK_S)
        if not self._begun():
            return None
        number, lines = self._complete()[len(self.rounds)]
        placed = {rank: self._hosts[node] for node, line in lines for rank in line.get("ranks", ())}
        ranks = [Rank(rank, host) for rank, host in sorted(placed.items())]
        self.rounds.append(Round(self, number, ranks))
        return self.rounds[-1]

    def _begun(self) -> bool:
        return len(self._complete()) > len(self.rounds)

    def over(self, one: Round) -> bool:
        """Return whether a later round has begun than this, or no agent is left."""
        return one is not self.rounds[-1] or self._begun() or not self.running

    @property
    def running(self) -> bool:
        """Return whether agents work. One whose host has crashed and booted is started again, as by a Pod's restart
        policy, if others still do."""
        working = [node for node, process in self.agents.items() if process.status is None]
        for node, process in self.agents.items():
            if (process.status or 0) < 0:
                self.lost.add((node, len(self.rounds)))
                if working and not self._hosts[node].off:
                    self._start(node)
        return bool(working)

    @property
    def succeeded(self) -> bool:
        """Return whether the agents that were there to the end ended well."""
        ends = [process.status for process in self.agents.values()]
        return 0 in ends and not any(end is not None and end > 0 for end in ends)

    def lines(self, number: int) -> Lines:
        """Return what agents have told of a round."""
        return [(node, line) for node, line in told(self._first.directory) if line["round"] == number]

    def _complete(self) -> list[tuple[int, Lines]]:
        """Return the rounds of which all agents have told that they start ranks."""
        rounds: dict[int, Lines] = defaultdict(list)
        for node, line in told(self._first.directory):
            rounds[line["round"]].append((node, line))
        found = []
        for number, lines in sorted(rounds.items()):
            started = [line for _, line in lines if "ranks" in line]
            if started and sum(len(line["ranks"]) for line in started) == started[0]["world"]:
                found.append((number, lines))
        return found

    def close(self) -> None:
        for one in self.rounds:
            one.end()
        self._first.close()

    def output(self) -> str:
        return self._first.launcher_output()


class Round(Job):
    """The ranks of a round. It runs until the next one begins, or the job has ended."""

    def __init__(self, elastic: ElasticJob, number: int, ranks: Sequence[Rank]) -> None:
        self._elastic, self._number = elastic, number
        name = f"{elastic.name}-{number + 1}" if number else elastic.name
        super().__init__(elastic.lab, name, ranks, lambda _: self._first_failed(), made=True)
        self._processes = list(elastic.agents.values())

    @property
    def running(self) -> bool:
        return not self._elastic.over(self)

    def launcher_output(self) -> str:
        return self._elastic.output()

    def close(self) -> None:
        """End the job; only this round if a later one has begun."""
        if self._elastic.running and self._elastic.over(self):
            self.end()
        else:
            self._elastic.close()

    def end(self) -> None:
        self._watch.stop()
        self._clear()

    def _first_failed(self) -> tuple[Rank, str] | None:
        here = self._elastic.rounds.index(self) + 1
        lost = [self._elastic.host(node) for node, rounds in self._elastic.lost if rounds == here]
        found = next((rank for rank in self.ranks if rank.host in lost), None)
        if found:
            return found, "its torchrun was killed"
        return blame(self, iter(self._elastic.lines(self._number)))

    def _failed(self) -> bool:
        return self is not self._elastic.rounds[-1] or self._elastic.running or not self._elastic.succeeded
