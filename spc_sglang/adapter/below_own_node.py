"""A request stores its KV and state below the node it has locked, and touches nothing above.

SGLang 0.5.23 copies the whole prompt and all its KV indices at every `checkpoint`, inserts from
the root, reads the indices of the path back into the request's row, and unlocks and locks the
whole path. What lies above the request's own node is locked, is the request's own text, and is in
its row already, so only the part below needs any of this. And SGLang evicts a state for a new one
before the new one is in the tree. Needs `tree_core.SpcTreeCore`.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

from sglang.srt.environ import envs
from sglang.srt.mem_cache.base_prefix_cache import InsertParams, InsertResult, TreeLock
from sglang.srt.mem_cache.radix_cache import RadixKey
from sglang.srt.mem_cache.unified_cache.components import ComponentType
from sglang.srt.mem_cache.unified_radix_cache import UnifiedRadixCache
from sglang.srt.utils.rank_consensus_checker import rank_consensus

from spc_sglang.adapter.tree_core import Components, SpcTreeCore


class BelowOwnNode(UnifiedRadixCache):
    """`UnifiedRadixCache` with a shorter `checkpoint_into_tree` on a core that allows it.

    Trees, requests and pools end as with SGLang's own insert, lock and read-out
    (`tests/adapter/test_tree_core.py`); only the victim is chosen later.
    """

    @cached_property
    def takes_short_ways(self) -> bool:
        """Other KV evictions than LRU read hits and priorities that SGLang's walks update."""
        return isinstance(self.tree_core, SpcTreeCore) and self.tree_core.kv.is_lru

    @cached_property
    def _left_unlocked(self) -> Components:
        """What SGLang's option leaves out of the lock of a request that decodes."""
        left_out = envs.SGLANG_OPT_MAMBA_SKIP_DECODE_LOCK.get()
        return (ComponentType.MAMBA,) if left_out else ()

    def checkpoint_into_tree(self, req: Any, *, up_to: int, **kwargs: Any) -> None:
        short = self.takes_short_ways and req.lock is not None and req.kv_rotation_base is None
        if self.disable or not short:
            super().checkpoint_into_tree(req, up_to=up_to, **kwargs)
            return
        params = InsertParams(priority=req.priority or 0, session_id=req.session_id)
        known = min(up_to, len(req.full_untruncated_fill_ids))
        if self.enable_mamba_extra_buffer and not req.finished():
            self._store_tracked(req, known, params)
        else:
            self._store_own(req, known, params)

    def _store_tracked(self, req: Any, known: int, params: InsertParams) -> None:
        """The tree takes the slot that the request tracked its state into, for another one.

        That one is asked for when the state is in the tree already, so that a victim is chosen
        knowing of it, and not at all if the tree has a state there.
        """
        pool, kv = self.req_to_token_pool, req.kv
        depth = kv.mamba_last_track_seqlen
        kv.mamba_last_track_seqlen = kv.mamba_prev_track_seqlen = None
        if not depth or depth > known or depth % self.page_size:
            return
        tracked = pool.get_mamba_ping_pong_keep_idx(req)
        params.mamba_value = kv.mamba_ping_pong_track_buffer[tracked : tracked + 1].clone()
        if not self._stored_below(req, depth, params).mamba_exist:
            slot = self.components[ComponentType.MAMBA]._alloc_mamba_slot()
            pool.set_mamba_ping_pong_slot(req, tracked, slot[0])

    def _store_own(self, req: Any, known: int, params: InsertParams) -> None:
        """A finished request gives its own slot away; one without tracking slots copies it."""
        states, finished = self.components[ComponentType.MAMBA], req.finished()
        if self.enable_mamba_extra_buffer and not req.kv.mamba_last_track_seqlen:
            states.cleanup_after_caching_req(req, is_finished=finished)  # nothing to give
            return
        cut = states.prepare_for_caching_req(
            req=req, insert_params=params, token_ids_len=known, is_finished=finished
        )
        length = (known if cut is None else min(cut, known)) // self.page_size * self.page_size
        result = self._stored_below(req, length, params) if length > 0 else None
        states.cleanup_after_caching_req(
            req, is_finished=finished, insert_result=result, insert_params=params
        )

    @rank_consensus(same_params=["length"], same_results=["result.prefix_len"])
    def _stored_below(self, req: Any, length: int, params: InsertParams) -> InsertResult:
        """Give the tree the request's first `length` tokens and its state; the lock moves there."""
        core, kv = self.tree_core, req.kv
        assert isinstance(core, SpcTreeCore)
        assert length >= kv.cache_protected_len, (length, kv.cache_protected_len)
        key = RadixKey(
            req.full_untruncated_fill_ids, req.extra_key, limit=length, cache_salt=req.cache_salt
        )
        row = self.req_to_token_pool.req_to_token[kv.req_pool_idx]
        grown = core.grow_below(req.last_node, kv.cache_protected_len, key, row, params)
        self._apply_cache_actions(grown.actions)
        for start, shared in grown.shared:
            self.req_to_token_pool.write(
                (kv.req_pool_idx, slice(start, start + shared.numel())), shared
            )
        req.last_node = grown.result.last_device_node
        receipt = core.move_lock(req.lock.receipt, req.last_node, self._left_unlocked)
        req.lock = TreeLock(req.last_node, receipt)
        kv.cache_inserted_len = max(kv.cache_inserted_len, length)
        kv.cache_protected_len = length
        return grown.result
