"""What the waiting queue promises to the states that it will resume from."""

from __future__ import annotations

from collections.abc import Sequence

from spc_sglang.planning.node import Node


def expected_hits(resume_points: Sequence[Node | None]) -> dict[Node, float]:
    """Hits the waiting queue promises: a request at position i adds 1 / (i + 1) to its state.

    `resume_points[i]` is the node of the deepest live checkpoint that waiting request i would
    resume from; None where there is none, or where its prompt extends a running or an earlier
    waiting one.
    """
    hits: dict[Node, float] = {}
    for position, node in enumerate(resume_points):
        if node is not None:
            hits[node] = hits.get(node, 0.0) + 1.0 / (position + 1)
    return hits
