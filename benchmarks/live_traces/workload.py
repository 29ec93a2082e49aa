"""A public trace cut down to what a CPU serves, as prompts in token ids.

The cut trace is a trace of its own: the servers and the simulator all get the same one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np

from spc_sglang.adapter.cpu.models import SPECIAL_TOKENS
from spc_sglang.replay.loaders import FORMATS, Source
from spc_sglang.replay.trace import BLOCK_TOKENS, NodeArray, Trace

FIRST_TOKEN = len(SPECIAL_TOKENS)
BYTE_TOKENS = 256
RANK_TOKENS = 2
ID_TOKENS = 4


@dataclass(frozen=True, slots=True)
class Cut:
    """How a trace is made small enough; the defaults of one trace format."""

    format: str
    coarsen: int
    """This many blocks of the trace become one block of 64 tokens."""
    most_blocks: int
    """Prompts are cut to their first so many blocks, after coarsening."""
    limit: int
    """First so many requests."""
    slots: tuple[int, ...]
    """Effective slots: pool sizes without what one running request holds."""


CUTS = {
    cut.format: cut
    for cut in (
        Cut("mooncake", 8, 127, 300, (64, 128, 256)),
        Cut("weka", 16, 127, 400, (16, 64, 256)),
        Cut("prompts", 16, 127, 300, (16, 64, 256)),
    )
}


@dataclass(frozen=True, eq=False)
class Workload:
    """Requests of a cut trace; `reusable[i]` tokens of prompt i came in earlier prompts."""

    cut: Cut
    trace: Trace
    reusable: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.trace)

    @property
    def distinct_tokens(self) -> int:
        return self.trace.num_nodes * BLOCK_TOKENS

    @property
    def longest_prompt(self) -> int:
        return max(self.trace.prompt_blocks) * BLOCK_TOKENS + 1

    @property
    def prompt_tokens(self) -> int:
        return sum(self.trace.prompt_blocks) * BLOCK_TOKENS

    def prompts(self) -> Iterator[list[int]]:
        """Token ids; one token more than whole blocks, since no cache serves the last token."""
        rank, siblings = {}, Counter[int]()
        for path in self.trace.paths:
            prompt, above = [], -1
            for node in path.tolist():
                if node not in rank:
                    rank[node] = siblings[above]
                    siblings[above] += 1
                prompt += block_tokens(node, rank[node])
                above = node
            yield [*prompt, FIRST_TOKEN]


def load(cut: Cut, paths: tuple[Path, ...]) -> Workload:
    """The first `limit` requests of at least one block, coarsened and cut."""
    source = Source(paths)
    whole = Trace.of(islice(FORMATS[cut.format](source), 2 * cut.limit))
    kept = []
    for path, blocks in zip(whole.paths, whole.prompt_blocks, strict=True):
        coarse = path[:blocks][cut.coarsen - 1 :: cut.coarsen][: cut.most_blocks]
        if len(coarse) and len(kept) < cut.limit:
            kept.append(coarse)
    if not kept:
        raise ValueError(f"{cut.format}: no request of {cut.coarsen * BLOCK_TOKENS} tokens")
    return _renumbered(cut, kept)


def _renumbered(cut: Cut, kept: list[NodeArray]) -> Workload:
    """Trie nodes name prefixes, so every coarsen-th of them is a trie again."""
    nodes, inverse = np.unique(np.concatenate(kept), return_inverse=True)
    ends = np.cumsum([len(path) for path in kept])
    paths = tuple(part.astype(np.int32) for part in np.split(inverse, ends[:-1]))
    seen = np.zeros(len(nodes), dtype=bool)
    reusable = []
    for path in paths:
        known = seen[path]
        overlap = len(path) if known.all() else int(known.argmin())
        reusable.append(overlap * BLOCK_TOKENS)
        seen[path] = True
    return Workload(cut, Trace(paths, tuple(map(len, paths)), len(nodes)), tuple(reusable))


def block_tokens(node: int, rank: int) -> list[int]:
    """64 byte tokens of a trie node, which is the `rank`-th below its parent.

    The rank comes first, so that blocks which part differ in their first token already; then the
    node's number, so that no two blocks are equal; then a seeded sequence.
    """
    head = [(rank >> 8 * digit) % BYTE_TOKENS for digit in range(RANK_TOKENS)]
    head += [(node >> 8 * digit) % BYTE_TOKENS for digit in range(ID_TOKENS)]
    rest = np.random.default_rng(node).integers(0, BYTE_TOKENS, BLOCK_TOKENS - len(head))
    return [FIRST_TOKEN + value for value in (*head, *rest.tolist())]
