"""torchrun as a program that fork_server.py can run. It tells in which round of the rendezvous it starts which ranks,
and which fail. The records of each round have a directory of their own."""

import json
import os
import time
from typing import Any

from torch.distributed.elastic.agent.server.api import WorkerState
from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
from torch.distributed.elastic.rendezvous.dynamic_rendezvous import DynamicRendezvousHandler
from torch.distributed.run import main

_start, _monitor = LocalElasticAgent._start_workers, LocalElasticAgent._monitor_workers
_records = os.environ["TESTBED_RANKS"]
_told = f"{_records}/{os.environ['TESTBED_LAUNCHER']}.jsonl"


def _tell(group: Any, **what: Any) -> None:
    line = {"round": _round(group), "t": time.monotonic_ns(), **what}
    with open(_told, "a") as file:
        file.write(json.dumps(line) + "\n")


def _round(group: Any) -> int:
    handler = group.spec.rdzv_handler
    return handler._state_holder.state.round if isinstance(handler, DynamicRendezvousHandler) else 0


def _started(agent: LocalElasticAgent, group: Any) -> Any:
    number = _round(group)
    os.environ["TESTBED_RANKS"] = f"{_records}-{number + 1}" if number else _records
    os.makedirs(os.environ["TESTBED_RANKS"], exist_ok=True)
    _tell(group, ranks=[worker.global_rank for worker in group.workers], world=group.workers[0].world_size)
    return _start(agent, group)


def _monitored(agent: LocalElasticAgent, group: Any) -> Any:
    result = _monitor(agent, group)
    if result.state == WorkerState.FAILED:
        _tell(group, failed={rank: failure.exitcode for rank, failure in result.failures.items()})
    return result


LocalElasticAgent._start_workers, LocalElasticAgent._monitor_workers = _started, _monitored
main()
