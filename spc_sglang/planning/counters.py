"""Counters since start, in tokens and slots; what the server reports about its cache."""

from __future__ import annotations

from dataclasses import asdict, dataclass


@dataclass(slots=True)
class CacheCounters:
    """Sums since start.

    matched_tokens = resumed_tokens + lost_tokens: what full attention alone could have
    reused, what was reused, and what had to be recomputed for want of a recurrent state.
    captured = published + duplicate + unwritten + unowned + revoked + released + pending.
    """

    requests: int = 0
    readmitted_requests: int = 0
    prompt_tokens: int = 0
    matched_tokens: int = 0
    resumed_tokens: int = 0
    requests_with_loss: int = 0
    captured: int = 0
    published: int = 0
    duplicate: int = 0
    in_flight_elsewhere: int = 0
    no_slot: int = 0
    unwritten: int = 0
    unowned: int = 0
    revoked: int = 0
    released: int = 0

    @property
    def lost_tokens(self) -> int:
        return self.matched_tokens - self.resumed_tokens

    def admit(self, *, prompt_tokens: int, overlap_depth: int, restore_depth: int) -> None:
        """Book one admitted request."""
        assert 0 <= restore_depth <= overlap_depth, (restore_depth, overlap_depth)
        self.requests += 1
        self.prompt_tokens += prompt_tokens
        self.matched_tokens += overlap_depth
        self.resumed_tokens += restore_depth
        self.requests_with_loss += restore_depth < overlap_depth

    def as_dict(self) -> dict[str, int]:
        """All counters by name, `lost_tokens` included."""
        return asdict(self) | {"lost_tokens": self.lost_tokens}
