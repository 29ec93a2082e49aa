"""Made-up traffic that should hurt a learned policy: how far below stock does ours fall?

    python benchmarks/mixes.py

Chats, documents and repeated prompts, alone, in changing order, with long prompts that nobody
repeats in between, and one kind of traffic after another, each replayed in pools of 16 and 64
states. Stock is the better of SGLang's 2k and 8k chunks in each mix. Prints the mixes where ours
resumes more than a point less, then means, and ends with one JSON object, also written to
benchmarks/results/mixes.json. Lengths are in blocks of 64 tokens.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import count
from pathlib import Path
from statistics import mean

import numpy as np

from spc_sglang.replay.contenders import CONTENDERS
from spc_sglang.replay.simulator import Simulator
from spc_sglang.replay.trace import Request, Trace

RESULT = Path(__file__).parent / "results" / "mixes.json"
STOCK = ("sglang-2k", "sglang-8k")
POOLS = (16, 64)
Requests = list[Request]


@dataclass
class Texts:
    """Prompts of fresh blocks; every order is drawn from one seed."""

    rng: random.Random = field(default_factory=lambda: random.Random(0))
    _ids: Iterator[int] = field(default_factory=count)

    def fresh(self, blocks: int) -> list[int]:
        return [next(self._ids) for _ in range(blocks)]

    def order(self, how: str, things: int, rounds: int) -> list[int]:
        """Which of `things` comes when: "turns", "shuffled", "zipf" or "to and fro"."""
        turns = list(range(things)) * rounds
        if how == "shuffled":
            self.rng.shuffle(turns)
        elif how == "zipf":
            weights = [1 / (n + 1) for n in range(things)]
            turns = self.rng.choices(range(things), weights, k=things * rounds)
        elif how == "to and fro":
            turns = [*range(things), *reversed(range(things))] * (rounds // 2)
        return turns

    def chats(
        self, users: int, rounds: int, first: int, step: int, how: str = "turns", system: int = 0
    ) -> Requests:
        """Conversations: each prompt is the history, one block of answer follows."""
        head = self.fresh(system)
        history = {user: head + self.fresh(first) for user in range(users)}
        asked = []
        for user in self.order(how, users, rounds):
            answer = self.fresh(1)
            asked.append(Request(tuple(history[user]), tuple(answer)))
            history[user] = history[user] + answer + self.fresh(step)
        return asked

    def documents(
        self, documents: int, rounds: int, blocks: int, question: int, how: str = "turns"
    ) -> Requests:
        """Questions, each new, after documents; no question repeats the prompt itself."""
        texts = [self.fresh(blocks) for _ in range(documents)]
        chosen = self.order(how, documents, rounds)
        return [Request((*texts[n], *self.fresh(question)), ()) for n in chosen]

    def few_shot(self, heads: int, rounds: int) -> Requests:
        """Short heads, a third of them with a suffix of 100 blocks, the others with one."""
        chosen = self.order("shuffled", heads, rounds)
        texts = [self.fresh(3) for _ in range(heads)]
        suffixes = self.rng.choices((1, 1, 100), k=len(chosen))
        return [
            Request((*texts[n], *self.fresh(blocks)), ())
            for n, blocks in zip(chosen, suffixes, strict=True)
        ]

    def one_offs(self, number: int, blocks: int) -> Requests:
        return [Request(tuple(self.fresh(blocks)), ()) for _ in range(number)]

    def among(self, asked: Requests, number: int, blocks: int) -> Requests:
        """`number` prompts that nobody repeats after each request."""
        return [part for one in asked for part in (one, *self.one_offs(number, blocks))]


def mixes(slots: int) -> Iterator[tuple[str, Requests]]:
    """Names and requests; sizes follow the pool."""
    yield from _alone(slots)
    yield from _among_one_offs(slots)
    yield from _one_after_another(slots)


def _alone(slots: int) -> Iterator[tuple[str, Requests]]:
    half, double = slots // 2, 2 * slots
    for users in (half, slots - 2, slots, 3 * half, 3 * slots):
        yield f"{users} chats in turn", Texts().chats(users, 25, 5, 3)
    yield "chats shuffled", Texts().chats(double, 20, 5, 3, "shuffled")
    yield "chats by Zipf", Texts().chats(4 * slots, 20, 5, 3, "zipf")
    yield "chats with a system prompt", Texts().chats(slots, 20, 2, 3, system=10)
    yield "one long chain", Texts().chats(1, 300, 5, 3)
    yield "one chain of long turns", Texts().chats(1, 60, 40, 40)
    yield "two documents", Texts().documents(2, 60, 60, 2)
    for documents in (half, slots):
        yield f"{documents} documents in turn", Texts().documents(documents, 10, 40, 2)
    yield "documents to and fro", Texts().documents(double, 10, 40, 2, "to and fro")
    yield "documents by Zipf", Texts().documents(3 * slots, 10, 40, 2, "zipf")
    for prompts in (slots - 2, slots):
        yield f"{prompts} prompts repeated", Texts().documents(prompts, 12, 20, 0)
    for how in ("shuffled", "zipf"):
        yield f"prompts repeated, {how}", Texts().documents(double, 12, 20, 0, how)
    texts = Texts()
    short, long = texts.chats(half, 25, 2, 2), texts.chats(half, 25, 30, 20)
    both = [one for pair in zip(short, long, strict=True) for one in pair]
    yield "short and long chats", both


def _among_one_offs(slots: int) -> Iterator[tuple[str, Requests]]:
    quarter = slots // 4
    for blocks in (16, 32, 80, 120):
        for number in (1, 2):
            texts = Texts()
            chats = texts.chats(quarter, 25, 4, 2)
            yield f"chats, {number} x {64 * blocks} between", texts.among(chats, number, blocks)
    for blocks in (32, 80):
        for name, documents, rounds, length, question in (
            ("256-token prompts", quarter, 25, 4, 0),
            ("512-token system prompts", 3, 60, 8, 1),
            ("1,024-token documents", quarter, 20, 16, 1),
        ):
            texts = Texts()
            asked = texts.documents(documents, rounds, length, question, "shuffled")
            yield f"{name}, 1 x {64 * blocks} between", texts.among(asked, 1, blocks)
    yield "few-shot heads of 192 tokens, some long suffixes", Texts().few_shot(2 * slots, 12)
    texts = Texts()
    jobs = [Request(tuple(texts.fresh(10)), ()) for _ in range(6)]
    rounds = [one for _ in range(20) for one in (*jobs, *texts.one_offs(slots // 2, 80))]
    yield "periodic jobs among one-offs", rounds
    texts = Texts()
    yield "few short chats", texts.among(texts.chats(slots // 3, 30, 2, 1), 1, 80)
    texts = Texts()
    yield "short chats starved", texts.among(texts.chats(quarter, 30, 2, 1), 2, 80)


def _one_after_another(slots: int) -> Iterator[tuple[str, Requests]]:
    half = slots // 2
    texts = Texts()
    yield "one-offs, then chats", texts.one_offs(20 * slots, 30) + texts.chats(half, 20, 4, 2)
    texts = Texts()
    yield (
        "documents, then chats",
        texts.documents(3 * slots, 20, 40, 2, "zipf") + texts.chats(slots - 2, 20, 4, 2),
    )
    texts = Texts()
    yield (
        "chats, then repeats",
        texts.chats(slots - 2, 30, 4, 2) + texts.documents(slots, 12, 20, 0),
    )
    texts = Texts()
    yield "chats, then documents", texts.chats(half, 25, 4, 2) + texts.documents(half, 40, 12, 1)


def share(policy: str, slots: int, trace: Trace) -> float:
    """Percent of the KV-reusable tokens that were resumed."""
    outcome = Simulator(trace, CONTENDERS[policy](slots, trace)).run()
    return 100 * sum(outcome.resumed_tokens) / max(1, sum(outcome.matched_tokens))


@dataclass(frozen=True, slots=True)
class Row:
    """Percent of the KV-reusable tokens resumed in one mix; stock is the better of `STOCK`."""

    mix: str
    slots: int
    stock: float
    spc: float

    @property
    def shortfall(self) -> float:
        """Points below stock; 0 where ours resumes as much or more."""
        return max(0.0, self.stock - self.spc)


def compare(slots: int, name: str, requests: Sequence[Request]) -> Row:
    """One mix in one pool."""
    trace = Trace.of(requests)
    stock = max(share(policy, slots, trace) for policy in STOCK)
    return Row(name, slots, round(stock, 1), round(share("spc", slots, trace), 1))


def summary(rows: Sequence[Row]) -> dict[str, object]:
    """Means over the mixes, and how far ours falls short where it does."""
    return {
        "mixes": len(rows),
        "mean_stock": round(mean(row.stock for row in rows), 1),
        "mean_spc": round(mean(row.spc for row in rows), 1),
        "mean_shortfall": round(mean(row.shortfall for row in rows), 2),
        "largest_shortfall": round(max(row.shortfall for row in rows), 1),
        "more_than_a_point_short": sum(row.shortfall > 1.0 for row in rows),
    }


def main() -> None:
    """Replay all, print and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=RESULT, help="where the JSON goes")
    output: Path = parser.parse_args().output
    rows = [compare(slots, name, asked) for slots in POOLS for name, asked in mixes(slots)]
    result = {
        "command": "python benchmarks/mixes.py",
        "versions": {"python": platform.python_version(), "numpy": np.__version__},
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        **summary(rows),
        "rows": [asdict(row) for row in rows],
    }
    print("| mix | slots | stock % | ours % |\n|---|---|---|---|")
    for row in rows:
        if row.shortfall > 1.0:
            print(f"| {row.mix} | {row.slots} | {row.stock} | {row.spc} |")
    print(summary(rows))
    output.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
