"""Captures on their way from a planned slot to a published checkpoint.

A capture owns one slot of the state pool from planning until the slot is published in the
tree or freed. It is never published unless the backend confirmed the write, so a forward path
that we do not cover ends in "no checkpoint" rather than in a wrong state.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import torch

from spc_sglang.planning.node import Kind

MOST_REFUSED = 64
"""Refused captures that are remembered."""


class Refusal(Enum):
    """Why a planned capture was given up: no slot, or none that is worth less."""

    NO_SLOT = "no slot"
    TOO_CHEAP = "too cheap"


@dataclass(slots=True, eq=False)
class Capture:
    """One planned checkpoint: `slot` is an int64 tensor `[1]`, None once it was handed on."""

    row: int
    depth: int
    slot: torch.Tensor | None
    kind: Kind = Kind.GUESS
    written: bool = False

    def take_slot(self) -> torch.Tensor:
        """Hand the slot on; a capture gives its slot away exactly once."""
        assert self.slot is not None, "capture already settled"
        slot, self.slot = self.slot, None
        return slot


@dataclass(slots=True, eq=False)
class CapturePlan:
    """The captures of one extend batch, with the row lengths they were planned for."""

    prefix_lens: list[int]
    extend_lens: list[int]
    captures: list[Capture] = field(default_factory=list)

    def fits(self, prefix_lens: list[int], extend_lens: list[int]) -> bool:
        """Whether a forward still starts with the rows of this plan.

        Padding and decode rows may follow them.
        """
        count = len(self.extend_lens)
        return prefix_lens[:count] == self.prefix_lens and extend_lens[:count] == self.extend_lens

    def live(self) -> list[Capture]:
        """Captures whose slot was not revoked in the meantime."""
        return [capture for capture in self.captures if capture.slot is not None]


@dataclass(slots=True, eq=False)
class _Pending:
    req: Any  # kept alive, so that its id stays its own
    captures: list[Capture]

    @property
    def token_ids(self) -> array[int]:
        return self.req.full_untruncated_fill_ids  # type: ignore[no-any-return]

    @property
    def namespace(self) -> tuple[Any, ...]:
        return namespace_of(self.req)


@dataclass(frozen=True, slots=True, eq=False)
class _Refused:
    """A capture that was given up; the first `depth` of the tokens are its prefix."""

    namespace: tuple[Any, ...]
    token_ids: array[int]
    depth: int
    reason: Refusal


class CaptureLedger:
    """Who owns which unpublished slot, by request, in planning order.

    By the object: request ids are the client's, and two live requests can share one.
    """

    def __init__(self) -> None:
        self._pending: dict[int, _Pending] = {}
        self._refused: deque[_Refused] = deque(maxlen=MOST_REFUSED)

    def __len__(self) -> int:
        return sum(len(pending.captures) for pending in self._pending.values())

    def add(self, req: Any, capture: Capture) -> None:
        self._pending.setdefault(id(req), _Pending(req, [])).captures.append(capture)

    def take(self, req: Any) -> list[Capture]:
        """All captures of one request; the caller settles each of them."""
        pending = self._pending.pop(id(req), None)
        return [] if pending is None else pending.captures

    def holds_same_prefix(self, req: Any, depth: int) -> bool:
        """Whether another request is about to publish the same tokens at the same depth."""
        namespace = namespace_of(req)
        ids = req.full_untruncated_fill_ids
        return any(
            other.namespace == namespace and other.token_ids[:depth] == ids[:depth]
            for other in self._at_depth(depth)
        )

    def depths_shared_with(self, req: Any) -> list[int]:
        """Pending depths at which another request stores a prefix of this prompt."""
        namespace, ids = namespace_of(req), req.origin_input_ids
        return [
            capture.depth
            for pending in self._pending.values()
            if pending.namespace == namespace
            for capture in pending.captures
            if capture.depth < len(ids)
            and pending.token_ids[: capture.depth] == ids[: capture.depth]
        ]

    def _at_depth(self, depth: int) -> Iterator[_Pending]:
        for pending in self._pending.values():
            if any(capture.depth == depth for capture in pending.captures):
                yield pending

    def revoke(self, count: int) -> list[torch.Tensor]:
        """Take back up to `count` slots, the latest planned first; the caller frees them."""
        slots: list[torch.Tensor] = []
        for key in reversed(list(self._pending)):
            captures = self._pending[key].captures
            while captures and len(slots) < count:
                capture = captures.pop()
                self.refused(self._pending[key].req, capture.depth, Refusal.NO_SLOT)
                slots.append(capture.take_slot())
            if not captures:
                del self._pending[key]
            if len(slots) == count:
                break
        return slots

    def refused(self, req: Any, depth: int, reason: Refusal) -> None:
        """A planned capture was given up; remembered to explain later losses."""
        ids = req.full_untruncated_fill_ids
        self._refused.append(_Refused(namespace_of(req), ids, depth, reason))

    def refused_depths(self, req: Any, above: int, up_to: int) -> dict[Refusal, int]:
        """By reason, the deepest of the last refused captures on a prompt, above < d <= up_to."""
        namespace, ids = namespace_of(req), req.origin_input_ids
        deepest: dict[Refusal, int] = {}
        for old in self._refused:
            if not (above < old.depth <= up_to and old.namespace == namespace):
                continue
            if ids[: old.depth] == old.token_ids[: old.depth]:
                deepest[old.reason] = max(old.depth, deepest.get(old.reason, 0))
        return deepest

    def clear(self) -> None:
        """Forget everything without freeing; for a flush that clears the pool itself."""
        self._pending.clear()
        self._refused.clear()


def namespace_of(req: Any) -> tuple[Any, ...]:
    """What separates equal tokens of different tenants or adapters in the tree."""
    return (req.extra_key, req.cache_salt)
