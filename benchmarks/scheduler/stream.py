"""Requests that keep thousands of states alive: shared prefixes, conversations, forks."""

from __future__ import annotations

import random
from array import array
from collections.abc import Iterator
from dataclasses import dataclass

VOCABULARY = 150_000


@dataclass(frozen=True, slots=True)
class Shape:
    """Lengths in tokens; a prompt beyond `most_tokens` starts anew."""

    shared_prefixes: int = 40
    shared_tokens: int = 1024
    turn_tokens: tuple[int, int] = (128, 512)
    most_tokens: int = 4096
    remembered: int = 3000
    """Prompts that a later one may continue or fork."""


def prompts(shape: Shape, seed: int) -> Iterator[array[int]]:
    """Endless: 50 % continue an earlier prompt, 10 % fork one, 40 % follow a shared prefix."""
    rng = random.Random(seed)
    heads = [_text(rng, shape.shared_tokens) for _ in range(shape.shared_prefixes)]
    earlier: list[array[int]] = []
    while True:
        draw = rng.random()
        head = rng.choice(heads)
        if earlier and draw < 0.6:
            head = rng.choice(earlier)
            if draw < 0.1:
                head = head[: rng.randrange(1, len(head))]
        turn = _text(rng, rng.randint(*shape.turn_tokens))
        prompt = head + turn if len(head) + len(turn) <= shape.most_tokens else turn
        earlier.append(prompt)
        if len(earlier) > shape.remembered:
            earlier.pop(0)
        yield prompt


def long_prompts(tokens: int, seed: int) -> Iterator[array[int]]:
    """Endless: prompts of `tokens` that leave the one before after a half to nine tenths."""
    rng = random.Random(seed)
    prompt = _text(rng, tokens)
    while True:
        yield prompt
        kept = rng.randrange(tokens // 2, tokens * 9 // 10)
        prompt = prompt[:kept] + _text(rng, tokens - kept)


def _text(rng: random.Random, count: int) -> array[int]:
    return array("q", rng.choices(range(VOCABULARY), k=count))
