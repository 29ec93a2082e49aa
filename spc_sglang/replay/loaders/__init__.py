"""Trace formats by name: each turns files into requests on the 64-token grid."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from spc_sglang.replay.loaders import documents, mooncake, request_log, text, weka
from spc_sglang.replay.loaders.tokens import Encode, encoder
from spc_sglang.replay.trace import Request


@dataclass(frozen=True)
class Source:
    """Files of one format, and how to read them; `tokenizer` None means one token a byte."""

    paths: tuple[Path, ...]
    tokenizer: Path | None = None
    seed: int = 0

    @property
    def encode(self) -> Encode:
        return encoder(self.tokenizer)


FORMATS: dict[str, Callable[[Source], Iterator[Request]]] = {
    "mooncake": lambda source: chain.from_iterable(map(mooncake.load, source.paths)),
    "weka": lambda source: weka.load(_files(source.paths)),
    "sglang": lambda source: request_log.load(
        _files(source.paths), source.encode, by_bytes=source.tokenizer is None
    ),
    "text": lambda source: text.load(_files(source.paths), source.encode),
    "quality": lambda source: documents.quality(source.paths, source.encode, source.seed),
    "narrativeqa": lambda source: documents.narrativeqa(source.paths, source.encode, source.seed),
    "prompts": lambda source: documents.prompts(source.paths, source.encode, source.seed),
}


def _files(paths: Sequence[Path]) -> list[Path]:
    """The paths themselves, folders replaced by their files in order of name."""
    return [
        file
        for path in paths
        for file in (sorted(p for p in path.iterdir() if p.is_file()) if path.is_dir() else [path])
    ]
