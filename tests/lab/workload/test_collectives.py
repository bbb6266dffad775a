"""Collectives over queue pairs: results as numpy has them, bytes as the algorithms have them, failures with a name."""

import numpy as np
import pytest

from testbed.errors import DeadlineError, InputError
from testbed.topology.fabrics import leaf_spine, single
from testbed.workload import (
    Attributes,
    CollectiveError,
    Group,
    Model,
    Parallel,
    Side,
    Traffic,
    Training,
    bandwidth_table,
    perftest,
)
from testbed.workload.collectives.algorithms import Shape, Step, ring_allreduce

FOUR = single(hosts=4).topology()
SHORT = Attributes(timeout=10, retry_cnt=1)
PACKET = 1024
OVERHEAD = 14 + 20 + 8 + 12 + 4
"""Ethernet, IPv4, UDP, BTH, ICRC: bytes of each packet beside its payload."""


def nics(lab, number=4):
    return [lab.host(f"host{host + 1}")["eth1"] for host in range(number)]


@pytest.fixture(scope="module")
def random():
    return np.random.default_rng(1)


def inputs(random, ranks, length, dtype):
    if np.dtype(dtype).kind == "f":
        return [random.integers(-8, 8, length).astype(dtype) for _ in range(ranks)]  # sums are exact in every order
    return [random.integers(0, 4, length).astype(dtype) for _ in range(ranks)]


@pytest.mark.topology(FOUR)
def test_each_collective_gives_what_numpy_gives(lab, random):
    with Group(nics(lab)) as group:
        for dtype in ("float32", "float64", "float16", "int32", "int64", "uint8"):
            for length in (1, 3, 40_001) if dtype == "float32" else (1001,):
                arrays = inputs(random, 4, length, dtype)
                before = [array.copy() for array in arrays]
                for op, ufunc in (("sum", np.add), ("prod", np.multiply), ("min", np.minimum), ("max", np.maximum)):
                    wanted = ufunc.reduce(np.stack(arrays), axis=0, dtype=dtype)
                    algorithms = ("ring", "halving-doubling", "tree") if op == "sum" else ("ring",)
                    for algorithm in algorithms:
                        result = group.allreduce(arrays, op, algorithm)
                        assert all(np.array_equal(one, wanted) for one in result.outputs), (
                            dtype,
                            length,
                            op,
                            algorithm,
                        )
                assert np.array_equal(group.reduce(arrays, root=2).outputs[2], np.sum(arrays, axis=0, dtype=dtype))
                assert all(np.array_equal(one, arrays[1]) for one in group.broadcast(arrays[1], root=1).outputs)
                assert np.array_equal(group.gather(arrays, root=3).outputs[3], np.concatenate(arrays))
                assert all(np.array_equal(one, np.concatenate(arrays)) for one in group.allgather(arrays).outputs)
                assert all(np.array_equal(array, old) for array, old in zip(arrays, before, strict=True))
            wide = inputs(random, 4, 4 * 500, dtype)
            blocks = [np.split(array, 4) for array in wide]
            for rank in range(4):
                expected = np.concatenate([blocks[of][rank] for of in range(4)])
                assert np.array_equal(group.alltoall(wide).outputs[rank], expected)
                assert np.array_equal(group.scatter(wide[1], root=1).outputs[rank], blocks[1][rank])
                total = np.sum([blocks[of][rank] for of in range(4)], axis=0, dtype=dtype)
                assert np.array_equal(group.reduce_scatter(wide).outputs[rank], total)
        assert group.barrier().size == 0


@pytest.mark.topology(single(hosts=5).topology())
@pytest.mark.slow
def test_ranks_that_are_no_power_of_two_and_several_queue_pairs(lab, random):
    arrays = inputs(random, 5, 100_003, "int64")
    labels = []

    def flow_label(low, high, number):
        labels.append((low, high, number))
        return 1 + 100 * low + 10 * high + number

    with Group(nics(lab, 5), queue_pairs=3, message=4096, flow_label=flow_label) as group:
        for algorithm in ("ring", "halving-doubling", "tree"):
            result = group.allreduce(arrays, algorithm=algorithm)
            assert all(np.array_equal(one, np.sum(arrays, axis=0)) for one in result.outputs)
    assert {(0, 1, 0), (0, 1, 1), (0, 1, 2)} <= set(labels)
    assert len(labels) == len(set(labels)), "queue pairs stay for the next collective"


@pytest.mark.topology(FOUR)
def test_the_wire_has_the_bytes_of_the_algorithm_and_no_others(lab):
    ends = nics(lab)
    with Group(ends, message=PACKET * 16) as group:
        arrays = [np.ones(64 * PACKET, np.float32)] * 4
        group.allreduce(arrays)  # connections and neighbours
        counted = [Traffic(end) for end in ends]
        result = group.allreduce(arrays)
        bytes_of = [traffic.bytes() for traffic in counted]
    assert list(result.sent) == [2 * 3 * arrays[0].nbytes // 4] * 4
    for counts, sent in zip(bytes_of, result.sent, strict=True):
        packets = sent // PACKET
        acknowledgements = 4 + OVERHEAD
        assert sent + packets * OVERHEAD <= counts["roce_out"] <= sent + packets * (OVERHEAD + acknowledgements)
        assert counts["tcp_out"] == 0


@pytest.mark.topology(FOUR)
@pytest.mark.slow
def test_a_ring_allreduce_reaches_most_of_what_ib_write_bw_reaches(lab, tmp_path):
    """Both are bound by the one CPU that executes every host: it moves so many bytes a second, whosoever they are."""
    ends = nics(lab)
    server, client = Side.of(ends[1]), Side.of(ends[0])
    measured = perftest("ib_write_bw", server, client, tmp_path, options=["-n", "64", "-s", "65536"], within=60)
    assert measured.ok, measured.error
    with Group(ends) as group:
        arrays = [np.ones(1 << 20, np.float32)] * 4
        group.allreduce(arrays)
        result = group.allreduce(arrays)
    print(bandwidth_table([result]), measured.figures)
    together = sum(result.sent) / result.elapsed_s / (1 << 20)
    assert together >= 0.7 * measured.figures["BW_average"]


@pytest.mark.fresh
@pytest.mark.topology(FOUR)
def test_a_dead_path_fails_with_the_ranks_at_its_ends_and_the_status(lab, log):
    arrays = [np.ones(1000, np.float32)] * 4
    with Group(nics(lab), SHORT) as group:
        group.allreduce(arrays)
        lab.switch("leaf1")["e3"].down()
        with pytest.raises(CollectiveError) as error:
            group.allreduce(arrays)
        rank, peer = error.value.rank, error.value.peer
        assert (rank, peer) in [(1, 2), (2, 3)]  # what host3 gets, and what it sends: the first to give up
        assert f"rank {rank} on host{rank + 1} towards rank {peer} on host{peer + 1}: SEND ends with RETRY" in str(
            error.value
        )
        assert error.value.status == "RETRY_EXC_ERR"
        with pytest.raises(InputError, match="the group has failed: allreduce"):
            group.barrier()
    done, failed = (event["data"] for event in log.find("collective"))
    assert done["operation"] == failed["operation"] == "allreduce (ring) of 4000 bytes"
    assert done["devices"] == failed["devices"] == [f"host{number}-eth1" for number in range(1, 5)]
    assert None not in done["finished_s"]
    assert failed["finished_s"][rank] is failed["finished_s"][peer] is None


@pytest.mark.fresh
@pytest.mark.topology(FOUR)
def test_a_deadline_names_who_waits_for_whom(lab):
    with Group(nics(lab), Attributes(timeout=18, retry_cnt=6)) as group:
        group.barrier()
        lab.switch("leaf1")["e3"].down()
        with pytest.raises(
            DeadlineError, match=r"is not done after 0.5 s: .*rank 3 on host4: step \d of \d: .*waits for rank 2"
        ):
            group.barrier(within=0.5)


@pytest.mark.topology(FOUR)
def test_wrong_arguments_are_refused_before_anything_is_sent(lab):
    one = np.ones(8, np.float32)
    ends = nics(lab)
    with pytest.raises(InputError, match="at least two ranks, not 1"):
        Group(ends[:1])
    with pytest.raises(InputError, match="message is 100 bytes; it must be a multiple of 16"):
        Group(ends, message=100)
    with Group(ends) as group:
        for wrong, message in (
            ([one] * 3, "3 arrays are given for 4 ranks"),
            ([one[:0]] * 4, "rank 0 on host1 has no element"),
            ([one, one, one[:4], one], "rank 2 on host3 has 4 elements of float32, but rank 0 on host1 has 8"),
            ([one.reshape(2, 4)] * 4, "rank 0 on host1 has an array of float32 and 2 dimensions"),
        ):
            with pytest.raises(InputError, match=message):
                group.allreduce(wrong)
        with pytest.raises(InputError, match="7 elements cannot be divided evenly among 4 ranks"):
            group.alltoall([one[:7]] * 4)
        with pytest.raises(InputError, match="rank 4 does not exist"):
            group.broadcast(one, root=4)
        with pytest.raises(InputError, match="operation 'avg' does not exist"):
            group.allreduce([one] * 4, "avg")


@pytest.mark.topology(leaf_spine(leaves=2, spines=2, hosts=2, rails=2).topology())
def test_a_step_of_parallel_training_sends_what_its_matrix_says(lab, log):
    """8 ranks on 4 hosts with 2 NICs: those of a host pass messages in its memory."""
    training = Training(Model(layers=4, hidden=64, sequence=64, vocabulary=128), Parallel(2, 2, 2))
    hosts = [lab.host(f"host{number + 1}") for number in range(4)]
    nics = [host[f"eth{rail}"] for host in hosts for rail in (1, 2)]
    with Group(nics) as group:
        counted = [Traffic(nic) for nic in nics]
        done = group.carry_out(training.steps(), "a step of training", within=60)
        bytes_of = [traffic.bytes()["roce_out"] for traffic in counted]
    assert len(done.finished_s) == 8
    wire = [0] * 8
    for (rank, peer), by_dimension in training.matrix().items():
        wire[rank] += sum(by_dimension.values()) if rank // 2 != peer // 2 else 0
    assert [sent >= payload for sent, payload in zip(bytes_of, wire, strict=True)] == [True] * 8
    assert sum(bytes_of) < 1.2 * sum(wire)
    (event,) = log.find("collective")
    whole = {pair: sum(by_dimension.values()) for pair, by_dimension in training.matrix().items()}
    assert {(rank, peer): size for rank, peer, size in event["data"]["matrix"]} == whole
    assert event["data"]["hosts"] == [nic.node.name for nic in nics]


@pytest.mark.topology(FOUR)
def test_a_rank_that_computes_for_longer_sets_the_pace_of_all(lab, log):
    shapes = [Shape(rank, 4, 1000) for rank in range(4)]
    steps = [[Step(computes_s=1.0 if rank == 2 else 0.1), *ring_allreduce(shape)] for rank, shape in enumerate(shapes)]
    with Group(nics(lab)) as group:
        done = group.carry_out(steps, "one slow rank", within=10)
    (event,) = log.find("collective")
    assert event["data"]["computed_s"] == [0.1, 0.1, 1.0, 0.1]
    assert min(done.finished_s) > 1.0
    assert done.elapsed_s < 1.2
