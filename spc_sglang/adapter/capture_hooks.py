"""Scheduler side of the hooks in `hooks.SCHEDULER`; thin, the work is done elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from spc_sglang.adapter.capture import CapturePlan
from spc_sglang.adapter.queue_order import put_oldest_first

if TYPE_CHECKING:  # imports torch and sglang
    from spc_sglang.adapter.capture_backend import CaptureBackend
    from spc_sglang.adapter.radix_cache import SpcRadixCache

_PLAN = "_spc_capture_plan"


class Handover:
    """Carries a plan from a scheduler batch to the forward that runs it.

    An attribute on `ForwardBatch` would be lost, since the runners rebuild that object before
    the backend sees it. One forward is prepared at a time in a scheduler process.
    """

    def __init__(self) -> None:
        self._plan: CapturePlan | None = None
        self.backend: CaptureBackend | None = None
        """How the server's prefill kernel is captured from, None where it is not."""

    def arm(self, plan: CapturePlan | None) -> None:
        self._plan = plan

    def take(self, prefix_lens: list[int], extend_lens: list[int]) -> CapturePlan | None:
        """The armed plan if the forward has its rows; a plan is taken at most once."""
        plan, self._plan = self._plan, None
        if plan is None or not plan.fits(prefix_lens, extend_lens):
            return None
        return plan


HANDOVER = Handover()


def ours(cache: Any) -> SpcRadixCache | None:
    """The cache if it is ours; another scheduler of this process may have SGLang's."""
    from spc_sglang.adapter.radix_cache import SpcRadixCache

    return cache if isinstance(cache, SpcRadixCache) else None


def around_prepare_for_extend(original: Callable[..., Any], self: Any, *args: Any) -> Any:
    """AROUND `ScheduleBatch.prepare_for_extend(self)`."""
    cache = ours(self.tree_cache)
    if cache is None:
        return original(self, *args)
    cache.planner.before_extend(self)
    result = original(self, *args)
    setattr(self, _PLAN, cache.planner.plan_extend(self))
    cache.export_counters()
    return result


def after_init_new(
    result: Any, cls: type, batch: Any, model_runner: Any, *_: Any, **__: Any
) -> None:
    """AFTER `ForwardBatch.init_new(cls, batch, model_runner, ...)`."""
    HANDOVER.arm(getattr(batch, _PLAN, None) if _is_prefill(result) else None)


def after_init_forward_metadata(result: Any, self: Any, forward_batch: Any) -> None:
    """AFTER `init_forward_metadata(self, forward_batch)` of the backend that we capture from."""
    if not _is_prefill(forward_batch):
        return
    plan = HANDOVER.take(
        list(forward_batch.extend_prefix_lens_cpu), list(forward_batch.extend_seq_lens_cpu)
    )
    chosen = HANDOVER.backend
    if plan is not None and chosen is not None and chosen.backend is self:
        chosen.capture(plan, forward_batch)


def around_get_new_batch_prefill_raw(
    original: Callable[..., Any], self: Any, *args: Any, **kwargs: Any
) -> Any:
    """AROUND `Scheduler._get_new_batch_prefill_raw(self, delayer, running_batch)`."""
    cache = ours(self.tree_cache)
    if cache is None:
        return original(self, *args, **kwargs)
    running = kwargs["running_batch"] if "running_batch" in kwargs else args[1]
    with cache.holding_back(self, running):
        return original(self, *args, **kwargs)


def after_calc_priority(result: Any, self: Any, waiting_queue: Any, *_: Any, **__: Any) -> None:
    """AFTER `SchedulePolicy.calc_priority(self, waiting_queue, ...)`."""
    cache = ours(self.tree_cache)
    if cache is not None and getattr(self.policy, "value", None) == "lpm":
        put_oldest_first(waiting_queue, cache.counters.requests)


def after_init_mamba_truncation_align(result: Any, self: Any) -> None:
    """AFTER `Scheduler.init_mamba_truncation_align(self)`."""
    cache = ours(self.tree_cache)
    if cache is not None:
        cache.attach_queue(lambda: self.waiting_queue)


def after_add_topology(result: Any, self: Any, state: dict[str, Any]) -> None:
    """AFTER `SchedulerInternalStateController._add_topology(self, state)`."""
    cache = ours(self.scheduler.tree_cache)
    if cache is not None:
        state["spc"] = cache.report()


def _is_prefill(forward_batch: Any) -> bool:
    mode = forward_batch.forward_mode
    return mode.is_extend() and not mode.is_target_verify()
