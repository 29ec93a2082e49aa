"""Text to blocks: a Hugging Face tokenizer directory, or one token a byte."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from pathlib import Path

import numpy as np

from spc_sglang.replay.trace import BLOCK_TOKENS, Request, whole_blocks

Encode = Callable[[str], list[int]]


def encoder(directory: Path | None) -> Encode:
    """Token ids of a text by `tokenizer.json` in the directory; None gives UTF-8 bytes."""
    if directory is None:
        return lambda text: list(text.encode("utf-8"))
    file = directory / "tokenizer.json"
    if not file.is_file():
        raise ValueError(f"tokenizer {directory}: no tokenizer.json in it")
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise ValueError(f"tokenizer {directory}: needs `pip install tokenizers`") from None
    tokenizer = Tokenizer.from_file(str(file))
    return lambda text: list(tokenizer.encode(text, add_special_tokens=False).ids)


def text_request(encode: Encode, prompt: str, output: str = "") -> Request:
    """Blocks of the prompt and of what follows it; equal 64 tokens give equal keys."""
    return ids_request(encode(prompt), encode(output) if output else [])


def ids_request(
    prompt: Sequence[int], output: Sequence[int], namespace: Sequence[object] = ()
) -> Request:
    """The same from token ids; prompts of different namespaces share nothing."""
    ids = np.array([*prompt, *output], dtype=np.int32)
    keys: list[Hashable] = [
        ids[start : start + BLOCK_TOKENS].tobytes()
        for start in range(0, whole_blocks(len(ids)) * BLOCK_TOKENS, BLOCK_TOKENS)
    ]
    if keys and any(namespace):
        keys[0] = (keys[0], *map(str, namespace))
    prompt_blocks = min(whole_blocks(len(prompt)), len(keys))
    return Request(keys[:prompt_blocks], keys[prompt_blocks:])
