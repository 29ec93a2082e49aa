"""JSON lines of real text: `{timestamp, input, output, session_id}`, or OpenAI-style `messages`.

Records are replayed by `timestamp` where all have one, else in file order. `output`, or the last
message when its role is `assistant`, follows the prompt in the tree. Chat messages are rendered as
`<|role|>`, content and a newline; a real chat template changes offsets, not the sharing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from spc_sglang.replay.loaders.reading import json_lines
from spc_sglang.replay.loaders.tokens import Encode, text_request
from spc_sglang.replay.trace import Request


def load(paths: Sequence[Path], encode: Encode) -> Iterator[Request]:
    """Requests of all files by time; ties by file, then by line."""
    records: list[tuple[Any, int, tuple[str, str]]] = []
    for path in paths:
        for where, record in json_lines(path):
            records.append((record.get("timestamp"), len(records), _texts(record, where)))
    if all(isinstance(time, int | float) for time, _, _ in records):
        records.sort(key=lambda entry: entry[:2])
    for _, _, (prompt, output) in records:
        yield text_request(encode, prompt, output)


def _texts(record: dict[str, Any], where: str) -> tuple[str, str]:
    if "messages" in record:
        return _chat(record["messages"], where)
    prompt, output = record.get("input"), record.get("output", "")
    if not isinstance(prompt, str) or not isinstance(output, str):
        raise ValueError(f"{where}: need text in `input` and `output`, or a list `messages`")
    return prompt, output


def _chat(messages: Any, where: str) -> tuple[str, str]:
    if not isinstance(messages, list) or not messages:
        raise ValueError(f"{where}: messages is {messages!r}, need a list of role and content")
    rendered = []
    for message in messages:
        content = message.get("content") if isinstance(message, dict) else None
        if not isinstance(content, str):
            raise ValueError(f"{where}: message {message!r} has no text `content`")
        rendered.append((str(message.get("role")), content + "\n"))
    output = rendered.pop()[1] if rendered[-1][0] == "assistant" else ""
    head = "".join(f"<|{role}|>\n{content}" for role, content in rendered)
    return (head + "<|assistant|>\n", output) if output else (head, "")
