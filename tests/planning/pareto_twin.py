"""The Pareto clock once more, straight from its definition: no tree, no arrays, no increments.

Nodes are the prompt prefixes themselves (tuples of blocks). Everything that can be recomputed
from the set of live prefixes is recomputed at every question.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, log, log2

Prefix = tuple[int, ...]
BLOCK = 64


@dataclass
class Watched:
    kind: str
    last: int
    booked: int
    order: int
    cls: tuple[bool, bool, int]


class Twin:
    def __init__(self, slots: int) -> None:
        self.slots, self.now, self.count = slots, 0, 0
        self.b = min(30.0, max(4.0, slots / 4))
        self.passes: dict[Prefix, int] = {}
        self.live: dict[Prefix, Watched] = {}
        self.ghosts: dict[Prefix, Watched] = {}
        self.hits: dict[tuple[bool, bool, int], float] = {}
        self.exposure: dict[tuple[bool, bool, int], float] = {}
        self.touched: list[Prefix] = []
        self.ends: set[Prefix] = set()
        self.share = self.matched = self.requests = 0.0

    def above(self, prefix: Prefix) -> Prefix:
        return max(
            (p for p in self.live if p == prefix[: len(p)] and p != prefix), key=len, default=()
        )

    def below(self, prefix: Prefix) -> bool:
        return any(p[: len(prefix)] == prefix and p != prefix for p in self.live)

    def class_of(self, prefix: Prefix, kind: str) -> tuple[bool, bool, int]:
        passes = 0 if kind == "tail" else min(7, ceil(log2(self.passes[prefix])))
        if kind == "turn":
            passes = -1  # a class of its own, whatever the passes
        return kind in ("guess", "slack"), self.below(prefix), passes

    def alpha(self, cls: tuple[bool, bool, int]) -> float:
        return (self.hits.get(cls, 0.0) + 1.0) / (self.exposure.get(cls, 0.0) + 1.0)

    def book(self, w: Watched) -> None:
        seen = log((self.b + self.now - w.last) / (self.b + w.booked - w.last))
        self.exposure[w.cls] = self.exposure.get(w.cls, 0.0) + seen
        w.booked = self.now

    def use(self, w: Watched) -> None:
        self.book(w)
        self.hits[w.cls] = self.hits.get(w.cls, 0.0) + 1.0
        w.last = w.booked = self.now

    def reclassify(self) -> None:
        for prefix, w in self.live.items():
            w.cls = self.class_of(prefix, w.kind)

    def child_changed(self, prefix: Prefix) -> None:
        """The live prefix above gained or lost a checkpoint directly below."""
        if self.above(prefix):
            self.book(self.live[self.above(prefix)])

    def follow_lru(self, prompt: Prefix, matched: int, restored: int) -> None:
        held = set(self.touched[-self.slots :])
        lru = max((d for d in range(1, matched + 1) if prompt[:d] in held), default=0)
        if lru:
            self.touched.append(prompt[:lru])
        if matched > lru:
            self.touched.append(prompt[:matched])
        self.matched = 0.99 * self.matched + matched
        self.requests = 0.99 * self.requests + 1.0
        gain = (lru - restored) / (self.matched / self.requests)
        self.share = min(1.0, max(0.0, 0.998 * self.share + 0.2 * gain))

    def kept(self, prefix: Prefix) -> int:
        """0 if it may go, else how late it was touched."""
        if prefix not in self.touched:
            return 0
        last = len(self.touched) - self.touched[::-1].index(prefix)
        return last if last > len(self.touched) - self.share * self.slots else 0

    def continues(self, prompt: Prefix, matched: int, restored: int) -> bool:
        return any(prompt[:d] in self.ends for d in range(max(1, restored), matched + 1))

    def admit(self, prompt: Prefix, matched: int, restored: int) -> bool:
        self.now += 1
        if matched:
            self.follow_lru(prompt, matched, restored)
        if self.now % 1024 == 0:
            for table in (self.hits, self.exposure):
                for cls in table:
                    table[cls] *= 0.5
        if restored:
            self.use(self.live[prompt[:restored]])
        lost = [prompt[:d] for d in range(restored + 1, matched + 1) if prompt[:d] in self.ghosts]
        if lost:
            self.use(self.ghosts[lost[-1]])
        for d in range(1, len(prompt) + 1):
            self.passes[prompt[:d]] = self.passes.get(prompt[:d], 0) + 1
        self.reclassify()
        return bool(lost)

    def insert(self, prefix: Prefix, kind: str) -> None:
        if prefix in self.ghosts:
            self.book(self.ghosts.pop(prefix))
        self.count += 1
        w = Watched(kind, self.now, self.now, self.count, (False, False, 0))
        self.live[prefix] = w
        w.cls = self.class_of(prefix, kind)
        if kind in ("tail", "turn"):
            self.touched.append(prefix)
            self.ends.add(prefix)
        self.child_changed(prefix)
        self.reclassify()

    def evict(self, prefix: Prefix) -> None:
        w = self.live.pop(prefix)
        self.book(w)
        self.child_changed(prefix)
        self.reclassify()
        self.ghosts[prefix] = w
        if len(self.ghosts) > 2 * self.slots:
            self.book(self.ghosts.pop(next(iter(self.ghosts))))

    def value(self, prefix: Prefix, queued: float = 0.0) -> float:
        w = self.live[prefix]
        gap = BLOCK * (len(prefix) - len(self.above(prefix)))
        return gap * (self.alpha(w.cls) / (self.b + self.now - w.last)) + gap * queued

    def victim(self, exclude: set[Prefix], queued: dict[Prefix, float]) -> Prefix | None:
        candidates = [p for p in self.live if p not in exclude]
        return min(
            candidates,
            key=lambda p: (self.kept(p), self.value(p, queued.get(p, 0.0)), self.live[p].order),
            default=None,
        )
