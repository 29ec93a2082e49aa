"""A scheduler's cache without its model: real pools, real requests, real batches.

Only the forward is left out, and the KV cache behind the KV indices: no step of the scheduler
reads either. Needs SGLANG_USE_CPU_ENGINE=1 from the start of the process on a CPU.
"""

from __future__ import annotations

import logging
import sys
from array import array
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

MOST_RUNNING = 4
LAST_TOKEN = 7


@dataclass(frozen=True, slots=True)
class Sizes:
    """Pools of one cache."""

    slots: int
    kv_tokens: int
    context_tokens: int


def load_sglang() -> None:
    """Load SGLang with its plugins; arguments of this process must not reach them."""
    arguments, sys.argv = sys.argv, sys.argv[:1]
    logging.disable(logging.WARNING)
    from sglang.srt.plugins import load_plugins

    load_plugins()
    sys.argv = arguments


class World:
    """One cache and the life of requests on it; `backend` is None for stock or "spc"."""

    def __init__(
        self,
        model: Path,
        sizes: Sizes,
        backend: str | None,
        *,
        kv_eviction: str = "lru",
        kv_events: bool = False,
    ) -> None:
        from sglang.srt.configs.model_config import ModelConfig
        from sglang.srt.mem_cache.cache_init_params import CacheInitParams
        from sglang.srt.runtime_context import publish

        server_args = _server_args(model, sizes, backend, kv_eviction)
        publish(server_args, role="scheduler")
        self.config = ModelConfig.from_server_args(server_args)
        self.rows, self.kv = _pools(self.config, sizes)
        params = CacheInitParams(
            disable=False,
            req_to_token_pool=self.rows,
            token_to_kv_pool_allocator=self.kv,
            page_size=1,
            eviction_policy=kv_eviction,
            enable_mamba_extra_buffer=True,
            enable_kv_cache_events=kv_events,
        )
        self.cache = _cache(server_args, params, self.config, backend)
        self._requests = 0

    @property
    def live_states(self) -> int:
        return int(self.cache.mamba_evictable_size() + self.cache.mamba_protected_size())

    def request(self, ids: array[int], extra_key: str | None = None) -> Any:
        """A request as the scheduler receives it; another extra key shares no KV."""
        from sglang.srt.managers.schedule_batch import Req
        from sglang.srt.sampling.sampling_params import SamplingParams

        self._requests += 1
        parameters = SamplingParams(max_new_tokens=4, temperature=0.0)
        parameters.normalize(None)
        vocabulary = self.config.vocab_size
        name = f"r{self._requests}"
        return Req(name, "", ids, parameters, extra_key=extra_key, vocab_size=vocabulary)

    def admit(self, req: Any) -> None:
        """Match the prompt and lock what it resumes from."""
        req.init_next_round_input(self.cache)
        req.lock = self.cache.lock(req.last_node)

    def batch(self, req: Any) -> Any:
        """A prefill batch of one request."""
        from sglang.srt.managers.schedule_batch import ScheduleBatch
        from sglang.srt.speculative.spec_info import SpeculativeAlgorithm

        req.extend_end = len(req.full_untruncated_fill_ids)
        return ScheduleBatch.init_new(
            [req],
            self.rows,
            self.kv,
            self.cache,
            self.config,
            True,
            SpeculativeAlgorithm.NONE,
        )

    def store(self, req: Any) -> None:
        """What follows a prefill: the tree takes its KV and states."""
        from sglang.srt.mem_cache.common import checkpoint_kv_cache

        checkpoint_kv_cache(req, self.cache)

    def finish(self, req: Any) -> None:
        """One decoded token, then the end of the request."""
        from sglang.srt.managers.schedule_batch import FINISH_LENGTH
        from sglang.srt.mem_cache.common import release_kv_cache

        req.output_ids.append(LAST_TOKEN)
        req.finished_reason = FINISH_LENGTH(length=1)
        release_kv_cache(req, self.cache, checkpoint=True)

    def give_up(self, req: Any) -> None:
        """The client left; nothing is stored."""
        from sglang.srt.managers.schedule_batch import FINISH_ABORT
        from sglang.srt.mem_cache.common import release_kv_cache

        req.finished_reason = FINISH_ABORT()
        release_kv_cache(req, self.cache, checkpoint=False)

    def check(self) -> None:
        """The trees' own checks, and that every slot and every KV index has one owner."""
        self.cache.sanity_check()
        free = self.rows.mamba_allocator.available_size()
        assert free + self.live_states == self.rows.mamba_allocator.size, (free, self.live_states)
        kept = self.cache.full_evictable_size() + self.cache.full_protected_size()
        assert kept + self.kv.available_size() == self.kv.size, (kept, self.kv.available_size())
        assert self.cache.mamba_protected_size() == 0 and self.cache.full_protected_size() == 0


def _server_args(model: Path, sizes: Sizes, backend: str | None, kv_eviction: str) -> Any:
    from sglang.srt.server_args import ServerArgs

    return ServerArgs(
        model_path=str(model),
        device="cpu",
        attention_backend="torch_native",
        dtype="float32",
        mamba_radix_cache_strategy="extra_buffer",
        mamba_track_interval=64,
        page_size=1,
        radix_eviction_policy=kv_eviction,
        max_mamba_cache_size=sizes.slots,
        max_total_tokens=sizes.kv_tokens,
        max_running_requests=MOST_RUNNING,
        radix_cache_backend=backend,
    )


def _pools(config: Any, sizes: Sizes) -> tuple[Any, Any]:
    from sglang.srt.configs.hybrid_arch import hybrid_gdn_config
    from sglang.srt.mem_cache.memory_pool import HybridReqToTokenPool

    from benchmarks.scheduler.free_list import FreeListInPieces

    states = hybrid_gdn_config(config).mamba2_cache_params
    rows = HybridReqToTokenPool(
        size=MOST_RUNNING,
        mamba_size=sizes.slots,
        mamba_spec_state_size=MOST_RUNNING,
        max_context_len=sizes.context_tokens,
        device="cpu",
        enable_memory_saver=False,
        cache_params=states,
        mamba_layer_ids=states.layers,
        enable_mamba_extra_buffer=True,
    )
    no_kv = SimpleNamespace()
    return rows, FreeListInPieces(sizes.kv_tokens, torch.int64, "cpu", no_kv, False)


def _cache(server_args: Any, params: Any, config: Any, backend: str | None) -> Any:
    from sglang.srt.mem_cache.registry import (
        TreeCacheBuildContext,
        default_radix_cache_factory,
        get_radix_cache_factory,
    )

    factory = default_radix_cache_factory if backend is None else get_radix_cache_factory(backend)
    return factory(
        TreeCacheBuildContext(
            server_args=server_args,
            params=params,
            is_hybrid_swa=False,
            is_hybrid_ssm=True,
            enable_hierarchical_cache=False,
            disable_radix_cache=False,
            tp_worker=SimpleNamespace(model_runner=_runner(params)),
            model_config=config,
            tp_size=1,
            tp_rank=0,
            tp_group=None,
        )
    )


def _runner(params: Any) -> Any:
    """What our cache asks the model runner for: the backend's name, the pool and the device."""
    backend = type("GDNAttnBackend", (), {"kernel_dispatcher": SimpleNamespace(extend_kernel=None)})
    return SimpleNamespace(
        attn_backend=SimpleNamespace(linear_attn_backend=backend()),
        req_to_token_pool=params.req_to_token_pool,
        device="cpu",
        dtype=torch.float32,
    )
