"""Never much worse than LRU: how much of what a plain LRU pool would hold is kept from eviction.

Values are learnt, and what is not learnt yet can be wrong: short conversations among long prompts
that nobody repeats look cheap until their rate is known. So a second pool is followed on the
side, with places but no states: ends of requests and branch points under LRU, about what SGLang
keeps. Each request says which of the two resumed deeper. Where LRU did, a larger share of its
most recent places is kept from eviction; where the values did, a smaller one.

A place counts as held by the LRU pool while fewer than S places were stored or resumed from since
(a window, hence no list: O(1) a touch).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from spc_sglang.planning.node import Node

STEP = 0.2
"""Change of the share where one of the two resumed a whole average match and the other nothing."""
FADE = 0.998
"""Factor a request, so that values get a new chance where both do alike."""
MATCH_GAMMA = 0.99
"""Weight of the past in the average match."""


class LruGuard:
    """The share of the LRU pool of `slots` places that is kept, in [0, 1]."""

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self.share = 0.0
        self.touches = 0
        self._matched_tokens = 0.0
        self._requests = 0.0

    def touch(self, node: Node) -> None:
        """The LRU pool stores this place, or resumes from it."""
        self.touches += 1
        node.touched = self.touches

    def resumes_from(self, nodes: Sequence[Node]) -> Node | None:
        """The deepest of these nodes that the LRU pool holds. O(path)."""
        oldest = self.touches - self.slots
        held = (node for node in reversed(nodes) if node.touched > max(0, oldest))
        return next(held, None)

    def compared(self, matched_tokens: int, lru_tokens: int, resumed_tokens: int) -> None:
        """One request that matched: what the LRU pool would have resumed, and what was."""
        self._matched_tokens = MATCH_GAMMA * self._matched_tokens + matched_tokens
        self._requests = MATCH_GAMMA * self._requests + 1.0
        average = self._matched_tokens / self._requests
        share = FADE * self.share + STEP * (lru_tokens - resumed_tokens) / average
        self.share = min(1.0, max(0.0, share))

    def keeps(self, touched: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which states, by the last touch of their places `[...]`, must not be evicted now."""
        oldest = self.touches - self.share * self.slots
        mask: NDArray[np.bool_] = touched > max(0.0, oldest)
        return mask
