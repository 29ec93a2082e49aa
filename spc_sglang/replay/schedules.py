"""Where other engines and recipes capture; each is an `Interior` that owns its whole budget."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from spc_sglang.placement import OverlapWeights, balanced, block, greedy
from spc_sglang.planning.capture_policy import Extend
from spc_sglang.planning.observation import Observations


@dataclass(frozen=True, slots=True)
class End:
    """The prompt end only."""

    def depths(self, extend: Extend) -> Iterable[int]:
        return (extend.prompt - 1,)


@dataclass(frozen=True, slots=True)
class ChunkEnds:
    """SGLang `extra_buffer`: the end of each prefill chunk, or the branch point in its stead."""

    chunk: int

    def depths(self, extend: Extend) -> Iterable[int]:
        start, last = extend.restore_depth, extend.prompt - 1
        while start < last:
            end = min(start + self.chunk, last)
            branch = extend.branch_depth
            yield branch if branch is not None and start < branch <= end else end
            start = end


@dataclass(frozen=True, slots=True)
class WholeBlocks:
    """vLLM align: the last whole block of the prompt, and of the match on its second sighting.

    A hybrid model's blocks are large, since one must hold as many bytes as a state.
    """

    block: int

    def depths(self, extend: Extend) -> Iterable[int]:
        if extend.branch_depth is not None:
            yield extend.branch_depth // self.block * self.block
        yield (extend.prompt - 1) // self.block * self.block


@dataclass(frozen=True, slots=True)
class StaticOffsets:
    """TensorRT-LLM style: a fixed period, the prompt end, and the branch point."""

    period: int

    def depths(self, extend: Extend) -> Iterable[int]:
        if extend.branch_depth is not None:
            yield extend.branch_depth
        yield extend.prompt - 1
        yield from block(extend.prompt, self.period)


@dataclass(frozen=True, slots=True)
class FixedLadder:
    """llama.cpp style: every `period` tokens, one micro-batch before the end, and the end."""

    period: int
    last_batch: int

    def depths(self, extend: Extend) -> Iterable[int]:
        yield from block(extend.prompt, self.period)
        yield extend.prompt - 1 - self.last_batch
        yield extend.prompt - 1


@dataclass(frozen=True, slots=True)
class Blocks:
    """M equal blocks of the prompt; the last ends with it."""

    budget: int

    def depths(self, extend: Extend) -> Iterable[int]:
        length = extend.prompt - 1
        return block(length, -(-length // self.budget))


@dataclass(frozen=True, slots=True)
class Greedy:
    """M positions, one after the other where it saves most, on the law of absolute depths."""

    observations: Observations
    budget: int

    def depths(self, extend: Extend) -> Iterable[int]:
        depths, shares = self.observations.absolute.law()
        inside = (depths > 0) & (depths < extend.prompt)
        if not inside.any():
            return balanced(extend.prompt, self.budget)
        return greedy(OverlapWeights(depths[inside], shares[inside]), self.budget)
