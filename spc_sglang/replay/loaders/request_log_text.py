"""The text form of SGLang's request log: Python's rendering of a dataclass and of a dict."""

from __future__ import annotations

import ast
import re
from typing import Any

# a quoted string, a bracket, or a comma; everything else lies between
_TOKEN = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|[\[({]|[\])}]|,""")
MEDIA_FIELDS = ("image_data", "video_data", "audio_data")
NAMESPACE_FIELDS = ("extra_key", "cache_salt", "lora_path")
COUNTS = ("prompt_tokens", "completion_tokens")
LEVEL_3 = "log with --log-requests-level 3"
_GIVEN = (*MEDIA_FIELDS, "input_embeds")
_WANTED = frozenset(
    ("rid", "text", "input_ids", "output_ids", "meta_info", *_GIVEN, *NAMESPACE_FIELDS, *COUNTS)
)


def parse(line: str, where: str) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """("received" or "finished", fields of the request, fields of the output).

    `line` begins with `Receive: obj=` or `Finish: obj=`. Only the fields that a replay needs are
    there. Raises ValueError, with `where`, for a line that is no such rendering or was cut.
    """
    event = "received" if line.startswith("Receive") else "finished"
    told, end = _fields(line, line.find("(") + 1, "=", where)
    out: dict[str, Any] = {}
    start = line.find(", out={", end)
    if start >= 0:
        out, _ = _fields(line, start + len(", out={"), ": ", where)
    return event, told, out


def _fields(line: str, start: int, sign: str, where: str) -> tuple[dict[str, Any], int]:
    """Wanted fields of the rendering that opens before `start`, and where it ends."""
    found: dict[str, Any] = {}
    depth, begin = 0, start
    for token in _TOKEN.finditer(line, start):
        symbol = token.group()
        if symbol in "[({":
            depth += 1
        elif symbol in "])}" and depth:
            depth -= 1
        elif depth == 0 and (symbol == "," or symbol in "])}"):
            name, _, value = line[begin : token.start()].strip().partition(sign)
            name = name.strip("'")
            if name in _WANTED:
                found[name] = _value(name, value, where)
            begin = token.end()
            if symbol != ",":
                return found, begin
    raise ValueError(f"{where}: the line ends inside {line[:40]!r}")


def _value(name: str, text: str, where: str) -> Any:
    if name == "meta_info":
        return _fields(text, 1, ": ", where)[0]
    if name in _GIVEN:
        return text != "None"
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        raise ValueError(f"{where}: {name} cannot be read, it may be cut: {LEVEL_3}") from None
