"""Replay a trace against one policy: its captures and its retention, as in the server.

Requests arrive one after the other, each done before the next begins. Per request: match on
resident KV, resume from the deepest live state on the match, plan the captures of the recomputed
tokens, insert the states from the shallowest to the deepest, and evict after each insert.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from spc_sglang.planning.capture_policy import Extend
from spc_sglang.planning.node import Node
from spc_sglang.planning.observation import Admission
from spc_sglang.planning.presets import Policy
from spc_sglang.replay.trace import BLOCK_TOKENS, NodeArray, Trace
from spc_sglang.replay.tree import RadixTree

SLACK_BELOW = 0.95


@dataclass(slots=True)
class Outcome:
    """Per request, in order: prompt, matched and resumed tokens; and sums over the replay."""

    prompt_tokens: list[int] = field(default_factory=list)
    matched_tokens: list[int] = field(default_factory=list)
    resumed_tokens: list[int] = field(default_factory=list)
    num_captures: int = 0
    num_read_back: int = 0
    peak_live: int = 0


class Simulator:
    """One replay in progress."""

    def __init__(self, trace: Trace, policy: Policy, kv_tokens: int | None = None) -> None:
        blocks = None if kv_tokens is None else kv_tokens // BLOCK_TOKENS
        self.trace = trace
        self.policy = policy
        self.tree = RadixTree(trace.num_nodes, policy.retention, blocks)
        self.outcome = Outcome()
        self._unread: set[Node] = set()

    def run(self) -> Outcome:
        for index in range(len(self.trace)):
            self.serve(index)
        return self.outcome

    def serve(self, index: int) -> None:
        """One request from match to eviction."""
        path, retention = self.trace.paths[index], self.policy.retention
        prompt = self.trace.prompt_blocks[index]
        resident = self.tree.overlap(path)
        overlap = min(resident, prompt)
        matched = self.tree.split_at(path, overlap) if overlap else None
        restored = None
        if matched is not None:
            restored = matched if matched.is_live else matched.live_ancestor()
        restore_tokens = 0 if restored is None else restored.depth
        owner = int(self.tree.owner[path[overlap - 1]]) if overlap else None
        told = retention.admitted(matched, restored)
        self._observe(prompt, overlap, restore_tokens, owner, told.earlier_visits)
        self._book(prompt, overlap, restore_tokens, restored)
        if resident:
            self.tree.split_at(path, resident)
        self.tree.grow(path, resident, index)
        self.tree.touch(path)
        if len(path) * BLOCK_TOKENS > restore_tokens:
            extend = Extend(
                prefix=restore_tokens,
                end=len(path) * BLOCK_TOKENS,
                prompt=len(path) * BLOCK_TOKENS + 1,
                grid=BLOCK_TOKENS,
                overlap_depth=overlap * BLOCK_TOKENS,
                restore_depth=restore_tokens,
                overlaps=told.overlaps,
                continues=told.continues,
                slack=len(retention) < SLACK_BELOW * retention.slots,
            )
            self._capture(path, extend, restored)
        self.tree.shrink()

    def _observe(
        self, prompt: int, overlap: int, restore_tokens: int, owner: int | None, visits: int
    ) -> None:
        owner_blocks = None if owner is None else self.trace.prompt_blocks[owner]
        self.policy.observations.add(
            Admission(
                prompt=prompt * BLOCK_TOKENS,
                overlap_depth=overlap * BLOCK_TOKENS,
                restore_depth=restore_tokens,
                owner_prompt=None if owner_blocks is None else owner_blocks * BLOCK_TOKENS + 1,
                earlier_visits=visits,
            )
        )

    def _book(self, prompt: int, overlap: int, restore_tokens: int, restored: Node | None) -> None:
        outcome = self.outcome
        outcome.prompt_tokens.append(prompt * BLOCK_TOKENS)
        outcome.matched_tokens.append(overlap * BLOCK_TOKENS)
        outcome.resumed_tokens.append(restore_tokens)
        if restored is not None and restored in self._unread:
            self._unread.discard(restored)
            outcome.num_read_back += 1

    def _capture(self, path: NodeArray, extend: Extend, restored: Node | None) -> None:
        """Insert each planned state, then evict while the pool is over its limit.

        A guess may go at once. (A server does not capture one that is worth less than its victim.)

        Of more states than slots only the deepest are inserted: the others would go at once.
        """
        retention = self.policy.retention
        proposals = sorted(
            self.policy.captures.proposals(extend), key=lambda proposal: proposal.depth
        )
        wanted = [(self.tree.split_at(path, p.depth // BLOCK_TOKENS), p.kind) for p in proposals]
        wanted = [(node, kind) for node, kind in wanted if not node.is_live]
        self.outcome.num_captures += len(wanted)
        in_use = () if restored is None else (restored,)
        for node, kind in wanted[-retention.slots :]:
            retention.inserted(node, kind)
            self._unread.add(node)
            while len(retention) > retention.slots:
                kept = in_use if kind.is_guess else (node, *in_use)
                victim = retention.choose_victim(exclude=kept)
                if victim is None:
                    victim = node
                retention.evicted(victim)
                self._unread.discard(victim)
        self.outcome.peak_live = max(self.outcome.peak_live, len(retention))
