"""Counters since start; what the server reports about its cache.

Tokens, requests and slots, and the seconds spent on planning, which nothing decides upon.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass


@dataclass(slots=True)
class CacheCounters:
    """Sums since start.

    matched_tokens = resumed_tokens + lost_off_grid_tokens + lost_evicted_tokens +
    lost_no_slot_tokens + lost_refused_tokens + lost_uncaptured_tokens: what full attention alone
    could have reused, what was reused, and what was recomputed since the match ended between two
    grid positions, since the checkpoint had been evicted, since a planned one found no slot or was
    worth less than all that were kept, or since none was planned. Without a view of the tree (LRU
    in SGLang's own core) an evicted checkpoint counts as not planned.
    captured = published + duplicate + unwritten + unowned + revoked + released + pending.
    """

    requests: int = 0
    readmitted_requests: int = 0
    prompt_tokens: int = 0
    matched_tokens: int = 0
    resumed_tokens: int = 0
    lost_off_grid_tokens: int = 0
    lost_evicted_tokens: int = 0
    lost_no_slot_tokens: int = 0
    lost_refused_tokens: int = 0
    lost_uncaptured_tokens: int = 0
    ghost_hits: int = 0
    requests_with_loss: int = 0
    captured: int = 0
    published: int = 0
    duplicate: int = 0
    in_flight_elsewhere: int = 0
    no_slot: int = 0
    refused: int = 0
    unwritten: int = 0
    unowned: int = 0
    revoked: int = 0
    released: int = 0
    waits_for_slots: int = 0
    ends_not_stored: int = 0
    planning_seconds: float = 0.0

    @property
    def lost_tokens(self) -> int:
        """Matched, not resumed."""
        return (
            self.lost_off_grid_tokens
            + self.lost_evicted_tokens
            + self.lost_no_slot_tokens
            + self.lost_refused_tokens
            + self.lost_uncaptured_tokens
        )

    def admit(
        self,
        *,
        prompt_tokens: int,
        overlap_depth: int,
        restore_depth: int,
        grid: int = 1,
        ghost_depth: int | None = None,
        no_slot_depth: int | None = None,
        refused_depth: int | None = None,
    ) -> None:
        """Book one admitted request.

        Between restore and overlap depth, `ghost_depth` is the deepest evicted checkpoint,
        `no_slot_depth` the deepest planned one that found no slot, and `refused_depth` the deepest
        that was not worth one.
        """
        assert 0 <= restore_depth <= overlap_depth, (restore_depth, overlap_depth)
        self.requests += 1
        self.prompt_tokens += prompt_tokens
        self.matched_tokens += overlap_depth
        self.resumed_tokens += restore_depth
        self.requests_with_loss += restore_depth < overlap_depth
        self.ghost_hits += ghost_depth is not None and ghost_depth > restore_depth
        on_grid = max(restore_depth, overlap_depth // grid * grid)
        reached, lost = restore_depth, []
        for depth in (ghost_depth, no_slot_depth, refused_depth, on_grid):
            deeper = min(on_grid, max(reached, depth or 0))
            lost.append(deeper - reached)
            reached = deeper
        self.lost_off_grid_tokens += overlap_depth - on_grid
        self.lost_evicted_tokens += lost[0]
        self.lost_no_slot_tokens += lost[1]
        self.lost_refused_tokens += lost[2]
        self.lost_uncaptured_tokens += lost[3]

    def as_dict(self) -> dict[str, int | float]:
        """All counters by name, `lost_tokens` included."""
        return asdict(self) | {"lost_tokens": self.lost_tokens}
