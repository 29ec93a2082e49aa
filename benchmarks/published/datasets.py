"""The three data sets as token ids a request: the user's files, or synthetic ones of their shape.

The synthetic ones follow what is known of each: QuALITY, articles of about 6,700 tokens;
NarrativeQA, broad lengths around 57,000; system prompts, families of revisions that part early.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from spc_sglang.replay.loaders import documents
from spc_sglang.replay.loaders.tokens import Encode, encoder
from spc_sglang.replay.trace import Request

Tokens = NDArray[np.int32]
Load = Callable[[Sequence[Path], Encode, int], Iterator[Request]]
LOADERS: dict[str, Load] = {
    "QuALITY": documents.quality,
    "NarrativeQA": documents.narrativeqa,
    "System prompts": documents.prompts,
}
RANDOM_QUERIES = (
    "real prompts; without a ShareGPT .json each query is 200 random words of one length, which "
    "flatters placement from the end"
)


@dataclass(frozen=True)
class Dataset:
    """Prompts in order of arrival."""

    name: str
    prompts: tuple[Tokens, ...]
    synthetic: bool
    note: str
    """What a reader has to know about it."""

    @property
    def label(self) -> str:
        """The name as tables show it."""
        if self.synthetic:
            return f"{self.name}-like (synthetic)"
        return f"{self.name} ({len(self.prompts):,} requests)"


def from_files(
    name: str, paths: Sequence[Path], tokenizer: Path | None, limit: int, seed: int
) -> Dataset:
    """The first `limit` requests of the user's files, by the loader of `spc-sglang replay`.

    Raises ValueError if there is none, and what the loader raises.
    """
    encode, seen = encoder(tokenizer), []

    def tapped(text: str) -> list[int]:
        ids = encode(text)
        seen.append(np.array(ids, dtype=np.int32))
        return ids

    # the loader keeps blocks only; each of its requests is one text that passes through `encode`
    num_requests = sum(1 for _ in islice(LOADERS[name](paths, tapped, seed), limit))
    if not num_requests:
        raise ValueError(f"{name}: no request in {', '.join(map(str, paths))}")
    drawn = name == "System prompts" and not any(path.suffix == ".json" for path in paths)
    note = RANDOM_QUERIES if drawn else "real text"
    return Dataset(name, tuple(seen[:num_requests]), synthetic=False, note=note)


def synthetic(name: str, limit: int, seed: int) -> Dataset:
    """Made up, of the shape of the named data set."""
    rng = np.random.default_rng([seed, list(LOADERS).index(name)])
    make = _revisions if name == "System prompts" else _documents
    prompts = tuple(islice(make(name, limit, rng), limit))
    return Dataset(name, prompts, synthetic=True, note="made up, random tokens")


def _documents(name: str, limit: int, rng: np.random.Generator) -> Iterator[Tokens]:
    """Twenty questions a document, all in random order."""
    num_documents = -(-limit // 20)
    if name == "QuALITY":
        lengths = rng.normal(6_700, 250, num_documents)
    else:
        lengths = 57_000 * np.exp(rng.normal(0.0, 0.5, num_documents))
    texts = [_fresh(int(length), rng) for length in lengths]
    for index in rng.permutation(np.repeat(np.arange(num_documents), 20))[:limit]:
        yield np.concatenate([texts[index], _fresh(int(rng.integers(30, 120)), rng)])


def _revisions(name: str, limit: int, rng: np.random.Generator) -> Iterator[Tokens]:
    """Families drawn by Zipf's law; every eighth request of one brings its next revision."""
    current = [_fresh(int(rng.integers(2_000, 16_000)), rng) for _ in range(max(2, limit // 40))]
    chances = 1.0 / np.arange(1, len(current) + 1)
    for _ in range(limit):
        family = int(rng.choice(len(current), p=chances / chances.sum()))
        if rng.random() < 1 / 8:
            kept = min(int(rng.exponential(2_500)), len(current[family]))
            fresh = _fresh(len(current[family]) - kept + int(rng.integers(0, 400)), rng)
            current[family] = np.concatenate([current[family][:kept], fresh])
        yield np.concatenate([current[family], _fresh(int(rng.integers(50, 400)), rng)])


def _fresh(count: int, rng: np.random.Generator) -> Tokens:
    return rng.integers(0, 2**31 - 1, count, dtype=np.int32)
