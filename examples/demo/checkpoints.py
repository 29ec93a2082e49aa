"""Where the captures of each request sit, worked out from what the client saw.

The server reports how many states it captured and not where. The demo pins the placement to
evenly spaced depths, so the rest follows; `count_mismatches` compares the counts with the
server's.
"""

from __future__ import annotations

from collections.abc import Sequence

from examples.demo.measure import Measurement

CHUNK_GRID = 64  # tokens between the states that the gated-delta kernels hand out


def capture_depths(
    measurement: Measurement, *, block_tokens: int, chunk_size: int
) -> tuple[int, ...]:
    """Depths of the captures of one request, increasing.

    Every `block_tokens`, the end of the match and the end of the prompt less one token, each
    moved down to the grid, less what SGLang stores itself at the end of a prefill chunk.
    """
    prompt, resumed = measurement.prompt_tokens, measurement.resumed_tokens
    matched = measurement.own_matched_tokens
    wanted = [*range(block_tokens, prompt + 1, block_tokens), matched or 0, prompt - 1]
    on_grid = {depth // CHUNK_GRID * CHUNK_GRID for depth in wanted}
    ends = [*range(resumed + chunk_size, prompt, chunk_size), prompt]
    stored_by_engine = {end // CHUNK_GRID * CHUNK_GRID for end in ends}
    return tuple(sorted(depth for depth in on_grid - stored_by_engine if depth > resumed))


def count_mismatches(
    measurements: Sequence[Measurement], *, block_tokens: int, chunk_size: int
) -> int:
    """Requests for which the server captured another number of states than worked out here."""
    return sum(
        len(capture_depths(m, block_tokens=block_tokens, chunk_size=chunk_size)) != m.own_captures
        for m in measurements
    )
