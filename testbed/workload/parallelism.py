"""The traffic of training a transformer on many ranks: tensor, pipeline, data and expert parallelism.

Pure planning: a model, a number of ranks in each dimension and a schedule determine the groups of ranks, the bytes
between each pair in a step, and the steps that a `Group` carries out. Sources: Narayanan et al., "Efficient Large-Scale
Language Model Training on GPU Clusters Using Megatron-LM" (SC 2021, PTD-P): parameters, bytes of tensor and pipeline
parallelism, the schedule 1F1B. Megatron-Core: the order of ranks.
"""

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

from testbed.errors import InputError
from testbed.workload.collectives import algorithms

Dimension = Literal["tensor", "expert", "data", "pipeline"]
Pair = tuple[int, int]
"""The rank that sends, and the one that receives."""
Matrix = dict[Pair, dict[Dimension, int]]
"""Bytes that a rank sends to another in a step, by dimension. Pairs without traffic are absent."""
Collective = Callable[[algorithms.Shape], Iterator[algorithms.Step]]
BOTH_WAYS = 2
"""Forward and backward."""


@dataclass(frozen=True)
class Model:
    """A transformer. `hidden` is its width, `sequence` the tokens of a sample, `element` the bytes of a number.

    With `experts` every layer has a mixture of so many in place of its MLP; each token uses `top_k` of them.
    """

    layers: int
    hidden: int
    sequence: int
    vocabulary: int = 51_200
    experts: int = 0
    top_k: int = 2
    element: int = 2

    @property
    def parameters(self) -> int:
        """Return those of the dense model (equation 2 of PTD-P), and 8 hidden² per layer for each further expert."""
        dense = self.layers * self.hidden * (12 * self.hidden + 13) + (self.vocabulary + self.sequence) * self.hidden
        return dense + max(0, self.experts - 1) * 8 * self.layers * self.hidden**2


@dataclass(frozen=True)
class Parallel:
    """The number of ranks that share a model, by dimension. `expert` divides `data`: its ranks differ in experts."""

    tensor: int = 1
    pipeline: int = 1
    data: int = 1
    expert: int = 1

    def __post_init__(self) -> None:
        for name in "tensor", "pipeline", "data", "expert":
            if getattr(self, name) < 1:
                raise InputError(f"{name} is {getattr(self, name)}; at least 1 is needed")
        if self.data % self.expert:
            raise InputError(f"expert is {self.expert} and data is {self.data}", hint="expert must divide data.")

    @property
    def ranks(self) -> int:
        return self.tensor * self.pipeline * self.data

    def rank(self, tensor: int, data: int, pipeline: int) -> int:
        """Return the rank at a place: tensor parallel ranks come first, then data, then pipeline, as in Megatron."""
        return (pipeline * self.data + data) * self.tensor + tensor

    def groups(self, dimension: Dimension) -> list[list[int]]:
        """Return the ranks that communicate in a dimension, each group in its order."""
        tensor, data, pipeline = range(self.tensor), range(self.data), range(self.pipeline)
        if dimension == "tensor":
            return [[self.rank(t, d, p) for t in tensor] for p in pipeline for d in data]
        if dimension == "pipeline":
            return [[self.rank(t, d, p) for p in pipeline] for d in data for t in tensor]
        if dimension == "data":
            return [[self.rank(t, d, p) for d in data] for p in pipeline for t in tensor]
        blocks = range(0, self.data, self.expert)
        return [
            [self.rank(t, first + d, p) for d in range(self.expert)]
            for p in pipeline
            for first in blocks
            for t in tensor
        ]


@dataclass(frozen=True)
class Training:
    """A step of training: `micro_batches` of `micro_batch` samples pass each pipeline. Bytes are divided by `scale`,
    for labs whose links are slower than real ones. `computes_s` are the seconds that a rank computes for a micro-batch
    in one direction."""

    model: Model
    parallel: Parallel
    micro_batch: int = 1
    micro_batches: int = 4
    scale: int = 1
    computes_s: float = 0.0

    def __post_init__(self) -> None:
        if self.model.layers % self.parallel.pipeline:
            raise InputError(
                f"{self.model.layers} layers cannot be divided evenly among {self.parallel.pipeline} pipeline stages"
            )
        if self.parallel.expert > 1 and self.model.experts % self.parallel.expert:
            raise InputError(f"{self.model.experts} experts cannot be divided among {self.parallel.expert} ranks")

    @property
    def layers(self) -> int:
        """Return the number of layers of a pipeline stage."""
        return self.model.layers // self.parallel.pipeline

    @property
    def activation(self) -> int:
        """Return the bytes of a micro-batch between two layers."""
        return self._scaled(self.micro_batch * self.model.sequence * self.model.hidden * self.model.element)

    @property
    def gradient(self) -> int:
        """Return the bytes of the gradients of a rank."""
        return self._scaled(
            self.model.parameters * self.model.element // (self.parallel.tensor * self.parallel.pipeline)
        )

    @property
    def routed(self) -> int:
        """Return the bytes of a micro-batch's tokens on their way to the experts that they use, in whole blocks."""
        ranks = self.parallel.expert
        return -(-self.activation * self.model.top_k // ranks) * ranks

    @property
    def tensor_allreduces(self) -> int:
        """Return those of a micro-batch in a stage and one direction: behind attention and MLP of each layer."""
        return 2 * self.layers if self.parallel.tensor > 1 else 0

    @property
    def expert_alltoalls(self) -> int:
        """Return those of a micro-batch in a stage and one direction: to the experts and back, in each layer."""
        return 2 * self.layers if self.parallel.expert > 1 else 0

    def _scaled(self, number: int) -> int:
        return max(1, number // self.scale)

    # The bytes of a step

    def matrix(self) -> Matrix:
        """Return the bytes from rank to rank in a step."""
        found: Matrix = defaultdict(lambda: defaultdict(int))
        times = BOTH_WAYS * self.micro_batches
        collectives: tuple[tuple[Dimension, Collective, int, int], ...] = (
            ("tensor", algorithms.ring_allreduce, self.activation, times * self.tensor_allreduces),
            ("expert", algorithms.pairwise_alltoall, self.routed, times * self.expert_alltoalls),
            ("data", algorithms.ring_allreduce, self.gradient, 1),
        )
        for dimension, steps, size, number in collectives:
            for group in self.parallel.groups(dimension) if number else ():
                for (local, peer), sent in _pairs(steps, len(group), size).items():
                    found[group[local], group[peer]][dimension] += number * sent
        for group in self.parallel.groups("pipeline"):
            for near, far in itertools.pairwise(group):
                found[near, far]["pipeline"] += self.micro_batches * self.activation
                found[far, near]["pipeline"] += self.micro_batches * self.activation
        return {pair: dict(found[pair]) for pair in sorted(found)}

    def shares(self) -> dict[Dimension, float]:
        """Return the part of all bytes that each dimension has."""
        found: dict[Dimension, int] = defaultdict(int)
        for by_dimension in self.matrix().values():
            for dimension, sent in by_dimension.items():
                found[dimension] += sent
        return {dimension: sent / sum(found.values()) for dimension, sent in found.items()}

    def silent_pairs(self) -> float:
        """Return the part of all pairs of ranks without traffic, each direction counted separately."""
        ranks = self.parallel.ranks
        return 1 - len(self.matrix()) / (ranks * (ranks - 1))

    # The steps of each rank

    def steps(self) -> list[list[algorithms.Step]]:
        """Return the steps of each rank in a step of training: forward and backward passes in the order 1F1B, then the
        allreduce of the gradients."""
        return [list(self._of(rank)) for rank in range(self.parallel.ranks)]

    def _of(self, rank: int) -> Iterator[algorithms.Step]:
        members = {
            dimension: next(group for group in self.parallel.groups(dimension) if rank in group)
            for dimension in get_args(Dimension)
        }
        stages = members["pipeline"]
        stage = stages.index(rank)
        behind = stages[stage - 1] if stage else None
        ahead = stages[stage + 1] if stage + 1 < len(stages) else None
        block = list(self._pass(rank, members["tensor"], members["expert"]))
        message = algorithms.Span(0, self.activation)

        def to(peer: int | None) -> list[algorithms.Send]:
            return [algorithms.Send(peer, message)] if peer is not None else []

        def of(peer: int | None) -> list[algorithms.Receive]:
            return [algorithms.Receive(peer, message)] if peer is not None else []

        warm_up = min(len(stages) - stage - 1, self.micro_batches)
        steady = self.micro_batches - warm_up
        for _ in range(warm_up):
            yield from (algorithms.Step(receives=of(behind)), *block, algorithms.Step(sends=to(ahead)))
        if steady:
            yield algorithms.Step(receives=of(behind))
        for number in range(steady):
            last = number == steady - 1
            yield from (*block, algorithms.Step(to(ahead), of(ahead)))
            yield from (*block, algorithms.Step(to(behind), [] if last else of(behind)))
        for _ in range(warm_up):
            yield from (algorithms.Step(receives=of(ahead)), *block, algorithms.Step(sends=to(behind)))
        if self.parallel.data > 1:
            yield from _among(members["data"], rank, algorithms.ring_allreduce, self.gradient)

    def _pass(self, rank: int, tensor: Sequence[int], expert: Sequence[int]) -> Iterator[algorithms.Step]:
        """Yield the computation and the collectives of a micro-batch on its way through a stage, in one direction."""
        if self.computes_s:
            yield algorithms.Step(computes_s=self.computes_s)
        for _ in range(self.layers):
            for _ in range(self.tensor_allreduces // self.layers):
                yield from _among(tensor, rank, algorithms.ring_allreduce, self.activation)
            for _ in range(self.expert_alltoalls // self.layers):
                yield from _among(expert, rank, algorithms.pairwise_alltoall, self.routed)


def _among(members: Sequence[int], rank: int, collective: Collective, size: int) -> Iterator[algorithms.Step]:
    for step in collective(algorithms.Shape(members.index(rank), len(members), size)):
        sends = [replace(send, to=members[send.to]) for send in step.sends]
        yield algorithms.Step(sends, [replace(receive, of=members[receive.of]) for receive in step.receives])


def _pairs(collective: Collective, ranks: int, size: int) -> Mapping[Pair, int]:
    return algorithms.between([list(collective(algorithms.Shape(rank, ranks, size))) for rank in range(ranks)])
