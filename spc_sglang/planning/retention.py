"""Which checkpoint to give up: the Pareto clock.

    value = gap * alpha[class] / (b + age)

`gap` is what one hit saves: depth minus the depth of the nearest live checkpoint above, in
tokens. `alpha[class] / (b + age)` is the chance that the next request asks for it; it falls like
a Pareto return time, and the rates are learnt (`class_rates`). Evicted checkpoints stay watched
as ghosts, so that a class is not forgotten because it was never kept. Where LRU would have resumed
more, the states it would hold are kept out of the choice (`lru_guard`). Time is the number of
admitted requests: two schedulers that see the same requests decide alike.

Report to it, in this order for one request: `admitted`, then `leaf` and `split` as the tree
changes, `inserted` for each state, and after each insert, while the pool is over its limit,
`choose_victim` and `evicted`. Choosing before inserting would let an end state that the insert
supersedes look fresh.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np

from spc_sglang.planning.class_rates import (
    HALVING_REQUESTS,
    ClassRates,
    class_of,
    clock_offset,
)
from spc_sglang.planning.live_states import LiveStates, Scores
from spc_sglang.planning.lru_guard import LruGuard
from spc_sglang.planning.matched_path import (
    Admitted,
    deepest_ghost,
    from_depth,
    overlaps_inside,
    visits,
)
from spc_sglang.planning.node import Checkpoint, Kind, Node, pass_by

GHOSTS_PER_SLOT = 2
EVICTIONS = ("value", "lru")
_KEPT = 1e12
"""Above any value: goes only if nothing else can, the least recently touched first."""


class Retention:
    """Values of the live checkpoints of one pool of `slots` states.

    `eviction` is "value" (the Pareto clock) or "lru" (least recently made or resumed from). The
    clock is `guarded` by what LRU would keep.
    """

    guarded = True
    """False in subclasses with a score of their own."""

    def __init__(self, slots: int, eviction: str = "value") -> None:
        if slots < 1:
            raise ValueError(f"slots must be at least 1, got {slots}")
        if eviction not in EVICTIONS:
            raise ValueError(f"eviction must be one of {EVICTIONS}, got {eviction!r}")
        self.slots = slots
        self.eviction = eviction
        self.now = 0
        self.rates = ClassRates(clock_offset(slots))
        self.guard = LruGuard(slots)
        self._clear()

    def _clear(self) -> None:
        self._ghosts: dict[Node, Checkpoint] = {}
        self.live = LiveStates(self.slots)

    def __len__(self) -> int:
        """Live checkpoints."""
        return len(self.live)

    @property
    def num_ghosts(self) -> int:
        return len(self._ghosts)

    # ---- events

    def admitted(self, matched: Node | None, restored: Node | None) -> Admitted:
        """A request was admitted: the deepest node it matched, and the one it resumes from.

        O(path).
        """
        nodes = [] if matched is None else matched.path()
        self.now += 1
        if self.now % HALVING_REQUESTS == 0:
            self.rates.halve()
        restore_depth = 0
        if restored is not None:
            restore_depth = restored.depth
            self._used(_live_checkpoint(restored))
        ghost = deepest_ghost(nodes, restore_depth)
        if ghost is not None:
            self._used(ghost)
        continues = any(node.ended for node in from_depth(nodes, restore_depth))
        if nodes and self._is_guarded:
            self._compare_with_lru(nodes, restore_depth)
        earlier_visits = visits(nodes)
        for node in pass_by(nodes, self.now):
            if node.is_live:  # its class holds ceil log2 of passes
                self._classify(_live_checkpoint(node))
        overlaps = overlaps_inside(nodes, restore_depth)
        ghost_depth = None if ghost is None else ghost.node.depth
        return Admitted(ghost_depth, continues, earlier_visits, overlaps)

    def leaf(self, node: Node, depth: int) -> None:
        """The tree has a new leaf, at `depth` tokens: this request's text."""
        node.depth, node.heated_at = depth, self.now

    def split(self, upper: Node, depth: int, lower: Node) -> None:
        """The tree put the new node `upper` above `lower`: all that passed one passed both."""
        assert 0 < depth < lower.depth, (depth, lower.depth)
        upper.depth, upper.passes = depth, lower.passes
        upper.heat, upper.heated_at = lower.heat, lower.heated_at
        upper.live_below = int(lower.leads_to_live)

    def inserted(self, node: Node, kind: Kind) -> None:
        """A state was stored at a node. O(path + live checkpoints directly below)."""
        assert not node.is_live, node.depth
        if node.checkpoint is not None:
            self._forget_ghost(node.checkpoint)
        node.checkpoint = checkpoint = Checkpoint(node, kind, self.now, self.now)
        self.live.append(checkpoint, self.now)
        self._classify(checkpoint)
        if kind.is_tail:
            node.ended = True
            self._touch(node)
        above = node.live_ancestor()
        self._set_gaps(node, above)
        self._count_below(node, 1)
        if above is not None:
            self._reclassify(above)

    def evicted(self, node: Node, *, watch: bool = True) -> None:
        """The state of a node is gone; its KV may stay. `watch` keeps it as a ghost."""
        checkpoint = _live_checkpoint(node)
        self._book(checkpoint)
        self.live.remove(checkpoint)
        self._count_below(node, -1)
        above = node.live_ancestor()
        depth_above = 0 if above is None else above.depth
        for below in node.live_fringe():
            assert below.checkpoint is not None
            self.live.gap[below.checkpoint.slot] = below.depth - depth_above
        if above is not None:
            self._reclassify(above)
        if watch:
            self._ghosts[node] = checkpoint
            if len(self._ghosts) > GHOSTS_PER_SLOT * self.slots:
                self._forget_ghost(next(iter(self._ghosts.values())))
        else:
            node.checkpoint = None

    def forgotten(self, node: Node) -> None:
        """A leaf left the tree, and with it its state or ghost."""
        if node.is_live:
            self.evicted(node, watch=False)
        elif node.checkpoint is not None:
            self._forget_ghost(node.checkpoint)

    def flushed(self) -> None:
        """The whole tree is gone; the learnt rates stay."""
        for checkpoint in [*self.live.checkpoints, *self._ghosts.values()]:
            self._book(checkpoint)
        self._clear()

    # ---- queries

    def value(self, node: Node) -> float:
        """Tokens that keeping this live checkpoint is expected to save at the next request."""
        slot = _live_checkpoint(node).slot
        return float(self.scores()[slot])

    def choose_victim(
        self,
        exclude: Collection[Node] = (),
        locked: Callable[[Node], bool] | None = None,
        queue_hits: Mapping[Node, float] | None = None,
    ) -> Node | None:
        """The node whose checkpoint has least value, or None if all are excluded or locked.

        `queue_hits` adds hits that the waiting queue promises to a node: the value becomes
        gap * (alpha / (b + age) + hits). What the guard keeps goes only where nothing else can.
        Ties go to the one inserted first. A few passes over S.
        """
        cheapest = self._cheapest(exclude, locked, queue_hits)
        return None if cheapest is None else cheapest[0]

    def outbids(
        self,
        kind: Kind,
        gap: int,
        locked: Callable[[Node], bool] | None = None,
        queue_hits: Mapping[Node, float] | None = None,
    ) -> bool:
        """Whether a new checkpoint above another one is worth more than the state it replaces.

        `gap` is its depth minus that of the checkpoint above it. False where nothing can go;
        under LRU what is new outbids what is old.
        """
        cheapest = self._cheapest((), locked, queue_hits)
        if cheapest is None or self.eviction == "lru":
            return cheapest is not None
        rate = self.rates.rates[class_of(kind, checkpoint_below=True, passes=1)]
        return bool(gap * rate / self.rates.offset > cheapest[1])

    # ---- inside

    def _cheapest(
        self,
        exclude: Collection[Node],
        locked: Callable[[Node], bool] | None,
        queue_hits: Mapping[Node, float] | None,
    ) -> tuple[Node, float] | None:
        scores = self.scores()
        if queue_hits and self.eviction == "value":
            for node, hits in queue_hits.items():
                if node.is_live:
                    slot = _live_checkpoint(node).slot
                    scores[slot] += self.live.gap[slot] * hits
        for node in exclude:
            if node.is_live:
                scores[_live_checkpoint(node).slot] = np.inf
        guarded = self._is_guarded and self.guard.share > 0.0
        while scores.size:
            least = self.live.least(scores)
            if least is None:
                return None
            slot, score = least
            if guarded and self.guard.keeps(self.live.touched[slot]):
                self._put_kept_last(scores)
                guarded = False
                continue
            victim = self.live.checkpoints[slot].node
            if locked is None or not locked(victim):
                return victim, score
            scores[slot] = np.inf
        return None

    def _put_kept_last(self, scores: Scores) -> None:
        """What the guard keeps goes after all else, the least recently touched first."""
        touched = self.live.touched[: len(self)]
        kept = self.guard.keeps(touched) & np.isfinite(scores)
        scores[kept] = _KEPT + touched[kept]

    def scores(self) -> Scores:
        """Values by slot, `[live]`; the least one goes first. The next call overwrites them."""
        if self.eviction == "lru":
            return self.live.last_use[: len(self)].copy()
        return self.live.values(self.rates.rates, self.rates.offset + self.now)

    def _used(self, checkpoint: Checkpoint) -> None:
        self._book(checkpoint)
        self.rates.hit(checkpoint.of_class)
        checkpoint.last_use = self.now
        if checkpoint.slot >= 0:
            self.live.last_use[checkpoint.slot] = self.now

    @property
    def _is_guarded(self) -> bool:
        return self.guarded and self.eviction == "value"

    def _compare_with_lru(self, nodes: Sequence[Node], restore_depth: int) -> None:
        last = nodes[-1]
        lru = self.guard.resumes_from(nodes)
        lru_depth = 0 if lru is None else lru.depth
        if lru is not None:
            self._touch(lru)
        if last.depth > lru_depth:
            self._touch(last)  # the branch point that it would store
        self.guard.compared(last.depth, lru_depth, restore_depth)

    def _touch(self, node: Node) -> None:
        self.guard.touch(node)
        if node.is_live:
            assert node.checkpoint is not None
            self.live.touched[node.checkpoint.slot] = node.touched

    def _book(self, checkpoint: Checkpoint) -> None:
        born = checkpoint.last_use
        self.rates.watched(checkpoint.of_class, checkpoint.booked - born, self.now - born)
        checkpoint.booked = self.now

    def _reclassify(self, node: Node) -> None:
        """Its set of checkpoints below may have become empty or stopped being so."""
        assert node.checkpoint is not None
        self._book(node.checkpoint)
        self._classify(node.checkpoint)

    def _classify(self, checkpoint: Checkpoint) -> None:
        node, kind = checkpoint.node, checkpoint.kind
        checkpoint.of_class = class_of(
            kind, checkpoint_below=node.live_below > 0, passes=node.passes
        )
        self.live.of_class[checkpoint.slot] = checkpoint.of_class

    def _set_gaps(self, node: Node, above: Node | None) -> None:
        assert node.checkpoint is not None
        self.live.gap[node.checkpoint.slot] = node.depth - (0 if above is None else above.depth)
        for below in node.live_fringe():
            assert below.checkpoint is not None
            self.live.gap[below.checkpoint.slot] = below.depth - node.depth

    def _count_below(self, node: Node, change: int) -> None:
        """A node became live (+1) or stopped being so (-1). O(nodes that this changes)."""
        if node.live_below:
            return
        above = node.parent
        while above is not None:
            led_before = above.leads_to_live
            above.live_below += change
            if led_before and above.leads_to_live:
                break
            above = above.parent

    def _forget_ghost(self, ghost: Checkpoint) -> None:
        self._book(ghost)
        del self._ghosts[ghost.node]
        ghost.node.checkpoint = None


def _live_checkpoint(node: Node) -> Checkpoint:
    checkpoint = node.checkpoint
    assert checkpoint is not None and checkpoint.slot >= 0, node.depth
    return checkpoint
