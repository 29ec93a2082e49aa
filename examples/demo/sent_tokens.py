"""What full attention alone could have reused: the longest prefix that was sent before."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


class SentTokens:
    """Every token sequence so far, and how much of it is distinct.

    A prefix tree would give the same numbers; a few dozen sequences are compared directly.
    """

    def __init__(self) -> None:
        self._sequences: list[np.ndarray] = []
        self.distinct_tokens = 0  # tokens a KV pool needs to hold all of them

    def match(self, prompt: Sequence[int]) -> int:
        """Longest common prefix with anything sent or generated, short of the last token."""
        tokens = np.asarray(prompt)[:-1]
        return max((_common_prefix(tokens, seen) for seen in self._sequences), default=0)

    def add(self, tokens: Sequence[int]) -> None:
        """Add a prompt with the answer whose KV the server computed."""
        array = np.asarray(tokens)
        known = max((_common_prefix(array, seen) for seen in self._sequences), default=0)
        self._sequences.append(array)
        self.distinct_tokens += len(array) - known


def _common_prefix(left: np.ndarray, right: np.ndarray) -> int:
    size = min(len(left), len(right))
    different = np.flatnonzero(left[:size] != right[:size])
    return int(different[0]) if different.size else size
