"""Which depths the backend captured for each request, worked out with the backend's own policy.

The server reports how many states it captured and not where; the same pure function, fed with
what the client saw, gives the depths. `count_mismatches` compares the two.
"""

from __future__ import annotations

from collections.abc import Sequence

from examples.demo.measure import Measurement
from spc_sglang.planning.capture_policy import BlockPlacement, Extend

CHUNK_GRID = 64  # tokens between the states that the gated-delta kernels hand out


def planned_depths(
    measurement: Measurement, *, block_tokens: int, chunk_size: int
) -> tuple[int, ...]:
    """Depths of the captures of one request, increasing."""
    policy = BlockPlacement(block_tokens)
    prompt, resumed = measurement.prompt_tokens, measurement.resumed_tokens
    depths: list[int] = []
    for prefix in range(resumed, prompt, chunk_size):
        end = min(prefix + chunk_size, prompt)
        depths += policy.plan(
            Extend(
                prefix=prefix,
                end=end,
                prompt=prompt,
                grid=CHUNK_GRID,
                overlap_depth=measurement.own_matched_tokens or measurement.matched_tokens,
                restore_depth=resumed,
                engine_depth=engine_depth(prefix, end),
            )
        )
    return tuple(sorted(depths))


def engine_depth(prefix: int, end: int) -> int:
    """Where SGLang itself stores a state: the last grid position of the forward."""
    return end // CHUNK_GRID * CHUNK_GRID if end - prefix >= CHUNK_GRID else prefix


def count_mismatches(
    measurements: Sequence[Measurement], *, block_tokens: int, chunk_size: int
) -> int:
    """Requests for which the server captured another number of states than worked out here."""
    return sum(
        len(planned_depths(m, block_tokens=block_tokens, chunk_size=chunk_size)) != m.own_captures
        for m in measurements
    )
