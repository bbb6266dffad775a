"""The traffic of training in parallel, against published figures and against what its own steps send."""

from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.errors import InputError
from testbed.workload.parallelism import Model, Parallel, Training

GPT_1T = Model(layers=128, hidden=25_600, sequence=2048)
SMALL = Model(layers=8, hidden=16, sequence=8, vocabulary=64)


@pytest.mark.parametrize(
    ("layers", "hidden", "billions"),
    [(24, 2304, 1.7), (30, 3072, 3.6), (36, 4096, 7.5), (48, 8192, 39.1), (96, 12_288, 174.6), (128, 25_600, 1008.0)],
)
def test_parameters_are_those_of_table_1_of_ptd_p(layers: int, hidden: int, billions: float) -> None:
    assert Model(layers, hidden, 2048).parameters / 1e9 == pytest.approx(billions, abs=0.051)


def test_groups_are_those_of_megatron() -> None:
    """The example of Megatron-Core's initialize_model_parallel."""
    parallel = Parallel(tensor=2, pipeline=4, data=2)
    assert parallel.groups("tensor") == [[rank, rank + 1] for rank in range(0, 16, 2)]
    assert parallel.groups("data")[:3] == [[0, 2], [1, 3], [4, 6]]
    assert parallel.groups("pipeline") == [[0, 4, 8, 12], [1, 5, 9, 13], [2, 6, 10, 14], [3, 7, 11, 15]]


def test_a_trillion_parameters_on_3072_ranks_most_pairs_are_silent_and_tensor_parallelism_has_the_bytes() -> None:
    """The case of PTD-P, whose traffic "Rail-only" (Wang et al. 2023) draws: over 99 % of the pairs carry nothing."""
    training = Training(GPT_1T, Parallel(tensor=8, pipeline=64, data=6), micro_batches=512)
    shares = training.shares()
    assert training.parallel.ranks == 3072
    assert training.silent_pairs() > 0.99
    assert shares["tensor"] > 0.85
    assert shares["data"] < 0.01


@given(
    st.integers(1, 4),
    st.sampled_from([1, 2, 4]),
    st.sampled_from([(1, 1), (2, 1), (2, 2), (4, 2), (4, 4)]),
    st.integers(1, 5),
)
def test_the_steps_of_all_ranks_send_what_the_matrix_says(tensor: int, pipeline: int, data, micro_batches: int) -> None:
    model = Model(8, 16, 8, 64, experts=8)
    training = Training(model, Parallel(tensor, pipeline, *data), micro_batches=micro_batches)
    steps = training.steps()
    sent: dict[tuple[int, int], int] = defaultdict(int)
    received: dict[tuple[int, int], int] = defaultdict(int)
    for rank, each in enumerate(steps):
        for step in each:
            for send in step.sends:
                sent[rank, send.to] += send.span.length
            for receive in step.receives:
                received[receive.of, rank] += receive.span.length
    assert sent == received
    assert sent == {pair: sum(by.values()) for pair, by in training.matrix().items()}


def test_what_cannot_be_shared_out_is_refused() -> None:
    with pytest.raises(InputError, match="8 layers cannot be divided evenly among 3 pipeline stages"):
        Training(SMALL, Parallel(pipeline=3))
    with pytest.raises(InputError, match="expert is 3 and data is 4"):
        Parallel(data=4, expert=3)
    with pytest.raises(InputError, match="tensor is 0; at least 1"):
        Parallel(tensor=0)
    with pytest.raises(InputError, match="6 experts cannot be divided among 4 ranks"):
        Training(Model(8, 16, 8, experts=6), Parallel(data=4, expert=4))


def test_a_rank_computes_for_each_micro_batch_forward_and_backward() -> None:
    training = Training(SMALL, Parallel(pipeline=2, data=2), micro_batches=3, computes_s=0.5)
    for own in training.steps():
        assert sum(step.computes_s for step in own) == 2 * 3 * 0.5
