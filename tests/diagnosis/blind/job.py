"""The ranks: a pattern of messages in steps, with the time that each step computes, and mistakes of a program."""

import argparse
import os
import signal
import time

import numpy as np

parser = argparse.ArgumentParser()
parser.add_argument("pattern", choices=["allreduce", "alltoall", "gather", "pipeline", "uneven", "checkpoint"])
parser.add_argument("--steps", type=int, default=8)
parser.add_argument("--bytes", type=int, default=200_000)
parser.add_argument("--computes", type=float, default=0.05)
parser.add_argument("--variable", help="of one rank: RANK:NAME=VALUE")
parser.add_argument("--mistake", help="of one rank: RANK:STEP:hang, die, other-collective, receive or slow")
given = parser.parse_args()
me = int(os.environ["OMPI_COMM_WORLD_RANK"])
if given.variable:
    number, _, variable = given.variable.partition(":")
    if int(number) == me:
        os.environ.update([variable.split("=", 1)])

from mpi4py import MPI  # noqa: E402 (UCX reads its variables when MPI starts)

world = MPI.COMM_WORLD
size = world.size
whose, at_step, mistake = given.mistake.split(":") if given.mistake else ("", "0", "")
data, result = np.ones(given.bytes, np.uint8), np.zeros(given.bytes, np.uint8)
gathered = np.zeros(given.bytes * size, np.uint8)
part = given.bytes // size


def exchange() -> None:
    """The messages of a step."""
    if given.pattern == "gather":
        world.Gather(data, gathered if me == 0 else None)
    elif given.pattern == "pipeline":
        if me:
            world.Recv(result, me - 1)
        if me < size - 1:
            world.Send(data, me + 1)
    elif given.pattern == "alltoall":
        world.Alltoall(data[: part * size], gathered[: part * size])
    else:
        world.Allreduce(data, result)


def go_wrong() -> None:
    """What the one rank does in place of the step, or before it."""
    if mistake == "hang":
        time.sleep(10_000)
    elif mistake == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    elif mistake == "other-collective":
        world.Bcast(np.zeros(8, np.uint8), root=me)
    elif mistake == "receive":
        world.Recv(result, (me + 1) % size, tag=77)


for step in range(given.steps):
    slow = mistake == "slow" and int(whose) == me and step >= int(at_step)
    uneven = given.pattern == "uneven" and me == 1 and step % 4 == 0
    time.sleep(given.computes * (12 if slow else 3 if uneven else 1))
    if given.mistake and not slow and (int(whose), int(at_step)) == (me, step):
        go_wrong()
    exchange()
    if given.pattern == "checkpoint" and step % 4 == 3:
        if me == 0:
            time.sleep(10 * given.computes)
        world.Barrier()
    print("step", step, flush=True)
