"""Requests as paths in one canonical trie of 64-token blocks."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

BLOCK_TOKENS = 64
NodeArray = NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Request:
    """One request as keys of whole 64-token blocks: equal keys after equal prefixes are equal text.

    `prompt` leaves out the block that holds the last prompt token, which no cache can serve;
    `output` are the blocks that follow in the tree once the request is done.
    """

    prompt: Sequence[Hashable]
    output: Sequence[Hashable] = ()


def whole_blocks(tokens: int) -> int:
    """Blocks of a prompt that can be resumed: all but the one with the last token."""
    return max(0, (tokens - 1) // BLOCK_TOKENS)


@dataclass(frozen=True, eq=False)
class Trace:
    """`paths[i]` are the trie nodes of request i (prompt, then output); a node's depth in blocks
    is its index + 1. `prompt_blocks[i]` says how many of them are prompt."""

    paths: tuple[NodeArray, ...]
    prompt_blocks: tuple[int, ...]
    num_nodes: int

    def __len__(self) -> int:
        return len(self.paths)

    @classmethod
    def of(cls, requests: Iterable[Request]) -> Trace:
        """Number the trie nodes in order of appearance. O(blocks)."""
        children: dict[tuple[int, Hashable], int] = {}
        paths, prompt_blocks = [], []
        for request in requests:
            node, path = -1, []
            for key in (*request.prompt, *request.output):
                node = children.setdefault((node, key), len(children))
                path.append(node)
            paths.append(np.array(path, dtype=np.int32))
            prompt_blocks.append(len(request.prompt))
        return cls(tuple(paths), tuple(prompt_blocks), len(children))
