"""What the waiting queue promises to the states that it will resume from."""

from __future__ import annotations

from collections.abc import Sequence

from spc_sglang.planning.mirror import Handle


def expected_hits(resume_points: Sequence[Handle | None]) -> dict[Handle, float]:
    """Hits the waiting queue promises: a request at position i adds 1 / (i + 1) to its state.

    `resume_points[i]` is the deepest live checkpoint that waiting request i would resume from;
    None where there is none, or where its prompt extends a running or an earlier waiting one.
    """
    hits: dict[Handle, float] = {}
    for position, handle in enumerate(resume_points):
        if handle is not None:
            hits[handle] = hits.get(handle, 0.0) + 1.0 / (position + 1)
    return hits
