"""Prefill chunks that end on planned depths, where a kernel gives no state inside a forward.

SGLang stores a state at the end of every chunk that lies on the grid, so a chunk that ends on a
planned depth leaves a checkpoint there without any capture of ours. Each costs one forward more,
hence only with `--spc-chunk-end on`. A request's depths are planned once, when it is admitted.

SGLang can keep one request in the middle of its prompt. While there is one, no other is cut, and
one that does not fit whole waits, as it would have to behind a chunk that takes the whole budget.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from spc_sglang.adapter.capture_hooks import ours

_ENDS = "_spc_chunk_ends"


def around_select_prefill_admission(
    original: Callable[..., Any], self: Any, req: Any, **keywords: Any
) -> Any:
    """AROUND `PrefillAdder._select_prefill_admission(self, req, *, ...)`: the first chunk.

    The original chooses how much of the prompt comes next and changes nothing yet.
    """
    from sglang.srt.managers.schedule_policy import AddReqResult

    found = original(self, req, **keywords)
    cache = _cutting(self)
    if cache is None or isinstance(found, AddReqResult):
        return found
    if keywords["has_chunked_req"] or self.new_chunked_req is not None:
        return AddReqResult.OTHER if found.is_chunked else found
    setattr(req, _ENDS, plan_ends(cache, req, found.prefix_len))
    tokens = tokens_to_next_end(req, found.prefix_len, cache.capture_grid)
    aligned = keywords.get("truncation_align_size") or 1
    if tokens is None or tokens >= found.extend_len or tokens % aligned:
        return found
    return replace(found, extend_len=tokens, is_chunked=True, max_new_tokens=0)


def around_add_chunked_req(original: Callable[..., Any], self: Any, req: Any) -> Any:
    """AROUND `PrefillAdder.add_chunked_req(self, req)`: every further chunk."""
    cache = _cutting(self)
    if cache is not None:
        tokens = tokens_to_next_end(req, req.prefix_len, cache.capture_grid)
        limits = [limit for limit in (self.chunked_req_limit, tokens) if limit is not None]
        self.chunked_req_limit = min(limits, default=None)
    return original(self, req)


def plan_ends(cache: Any, req: Any, prefix: int) -> tuple[int, ...]:
    """Depths behind `prefix` at which chunks of this request shall end, increasing."""
    end = len(req.full_untruncated_fill_ids)
    if req.skip_radix_cache_insert or req.retracted_stain or end <= prefix:
        return ()
    grid = cache.capture_grid
    on_grid = prefix + (end - prefix) // grid * grid
    engine_depth = on_grid if cache.enable_mamba_extra_buffer else end
    extend = cache.planner.extend_of(req, prefix, end, engine_depth, slack=False)
    return tuple(sorted(depth for depth, _ in cache.planner.captures.proposals(extend)))


def tokens_to_next_end(req: Any, prefix: int, grid: int) -> int | None:
    """Tokens from `prefix` to the next planned end, None without one.

    An end that cannot be reached on the grid is passed over: SGLang would store nothing there.
    """
    ends = getattr(req, _ENDS, ())
    return next((end - prefix for end in ends if end > prefix and (end - prefix) % grid == 0), None)


def _cutting(adder: Any) -> Any:
    """The cache if it wants chunks to end on its depths, and chunks exist at all."""
    chunked = adder.rem_chunk_tokens is not None and adder.dllm_config is None
    return ours(adder.tree_cache) if chunked else None
