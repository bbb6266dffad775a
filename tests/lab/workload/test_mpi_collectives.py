"""Collectives of MPI: the wire has the bytes that their algorithms have in theory."""

from pathlib import Path
from typing import NamedTuple

import pytest

from testbed.topology.fabrics import single
from testbed.workload import Traffic, mpirun

PROGRAM = Path(__file__).with_name("programs") / "collectives.py"
RANKS = 4
BLOCK = 8192 * 8
"""Bytes that one rank has for another; a vector has four blocks."""
TOLERANCE = 0.005
"""Of what a rank sends and receives: UCX's rendezvous headers (request, READ, acknowledgement), AETH of responses."""
HEADERS = 14 + 20 + 8 + 12 + 4
"""Of each packet: Ethernet, IPv4, UDP, BTH and ICRC."""
JOB_S = 120


class Blocks(NamedTuple):
    """What each rank sends and receives, in blocks."""

    sent: tuple[int, ...]
    received: tuple[int, ...]


def payload(traffic: Traffic) -> tuple[int, int]:
    """The bytes in RoCE packets that a host sent and received."""
    size, packets = traffic.bytes(), traffic.packets()
    sent, received = (size[way] - packets[way] * HEADERS for way in ("roce_out", "roce_in"))
    return sent, received


def alike(blocks: int) -> Blocks:
    return Blocks((blocks,) * RANKS, (blocks,) * RANKS)


# The numbers are those of coll_tuned_<operation>_algorithm. Trees and lists have rank 0 as their root.
LISTS_AND_RINGS = {
    "allreduce": 4,  # ring
    "reduce": 1,  # linear
    "bcast": 1,  # linear
    "gather": 1,  # linear
    "allgather": 4,  # ring
    "reduce_scatter": 3,  # ring
    "scatter": 1,  # linear
    "alltoall": 2,  # pairwise
}
IN_THEORY_OF_LISTS_AND_RINGS = {
    "allreduce": alike(6),
    "reduce": Blocks((0, 4, 4, 4), (12, 0, 0, 0)),
    "broadcast": Blocks((12, 0, 0, 0), (0, 4, 4, 4)),
    "gather": Blocks((0, 1, 1, 1), (3, 0, 0, 0)),
    "allgather": alike(3),
    "reduce-scatter": alike(3),
    "scatter": Blocks((3, 0, 0, 0), (0, 1, 1, 1)),
    "alltoall": alike(3),
}
TREES = {
    "allreduce": 3,  # recursive doubling
    "reduce": 5,  # binomial
    "bcast": 6,  # binomial
    "gather": 2,  # binomial
    "allgather": 1,  # gather, then broadcast
    "reduce_scatter": 1,  # reduce, then scatter to each directly
    "scatter": 2,  # binomial
    "alltoall": 3,  # Bruck
}
IN_THEORY_OF_TREES = {
    "allreduce": alike(8),
    "reduce": Blocks((0, 4, 4, 4), (8, 0, 4, 0)),
    "broadcast": Blocks((8, 4, 0, 0), (0, 4, 4, 4)),
    "gather": Blocks((0, 1, 2, 1), (3, 0, 1, 0)),
    "allgather": Blocks((8, 5, 2, 1), (3, 4, 5, 4)),
    "reduce-scatter": Blocks((3, 4, 4, 4), (8, 1, 5, 1)),
    "scatter": Blocks((3, 0, 1, 0), (0, 1, 2, 1)),
    "alltoall": alike(4),
}


@pytest.mark.topology(single(hosts=RANKS, management=True).topology())
@pytest.mark.parametrize(
    ("algorithms", "in_theory"),
    [(LISTS_AND_RINGS, IN_THEORY_OF_LISTS_AND_RINGS), (TREES, IN_THEORY_OF_TREES)],
    ids=["lists-and-rings", "trees"],
)
def test_the_wire_has_the_bytes_of_each_algorithm(lab, algorithms, in_theory):
    hosts = [lab.host(f"host{number + 1}") for number in range(RANKS)]
    # Without `han`, which would split each into those of its own choice where a host has several ranks.
    parameters = {"coll": "^han", "coll_tuned_use_dynamic_rules": "1"}
    parameters |= {f"coll_tuned_{name}_algorithm": str(number) for name, number in algorithms.items()}
    job = mpirun(lab, hosts, PROGRAM, launcher=lab.host("launcher"), mca=parameters)

    def all_said(words: str) -> bool:
        def over() -> bool:
            return all(words in job.output(rank) for rank in range(RANKS)) or not job.running

        return lab.scheduler.wait(over, JOB_S, pause=0.05)

    measured = {}
    for name in in_theory:
        assert all_said(f"ready for {name}\n")
        counted = [Traffic(host["eth1"]) for host in hosts]
        (job.directory / f"go-{name}").touch()
        assert all_said(f"did {name}\n")
        measured[name] = [payload(traffic) for traffic in counted]
        assert not any(traffic.bytes()["tcp_out"] for traffic in counted)
    job.check(JOB_S)

    for name, payloads in measured.items():
        print(f"{name:15}", *(f"{out / BLOCK:.3f}/{in_ / BLOCK:.3f}" for out, in_ in payloads))
    for name, blocks in in_theory.items():
        for (out, in_), sent, received in zip(measured[name], *blocks, strict=True):
            headers = TOLERANCE * (sent + received) * BLOCK
            assert sent * BLOCK <= out <= sent * BLOCK + headers, name
            assert received * BLOCK <= in_ <= received * BLOCK + headers, name
