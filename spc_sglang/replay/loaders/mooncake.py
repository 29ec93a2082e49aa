"""Mooncake JSONL: `timestamp`, `input_length`, `output_length`, `hash_ids` of 512-token blocks.

Ids are global. Each becomes eight 64-token keys; the output is not in the trace, so a later turn
shows it as its own prompt.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from spc_sglang.replay.loaders.reading import json_lines, whole_number
from spc_sglang.replay.trace import BLOCK_TOKENS, Request, whole_blocks

MOONCAKE_BLOCK_TOKENS = 512
_SUB_BLOCKS = MOONCAKE_BLOCK_TOKENS // BLOCK_TOKENS


def load(path: Path) -> Iterator[Request]:
    """Requests of one file, in file order."""
    for where, record in json_lines(path):
        tokens = whole_number(record, "input_length", where)
        hashes = record.get("hash_ids")
        if not isinstance(hashes, list):
            raise ValueError(f"{where}: hash_ids is {hashes!r}, need a list of block ids")
        keys = [block * _SUB_BLOCKS + part for block in hashes for part in range(_SUB_BLOCKS)]
        yield Request(keys[: whole_blocks(tokens)])
