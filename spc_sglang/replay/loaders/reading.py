"""Reading gzip or plain files with errors that name file and line."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO, cast


def open_text(path: Path) -> TextIO:
    """A text stream of a plain or gzip file, told apart by its first bytes."""
    with open(path, "rb") as probe:
        zipped = probe.read(2) == b"\x1f\x8b"
    if zipped:
        return cast(TextIO, gzip.open(path, "rt", encoding="utf-8"))
    return open(path, encoding="utf-8")


def json_lines(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """("file:line", object) for each non-empty line; ValueError for one that is no object."""
    with open_text(path) as stream:
        for number, line in enumerate(stream, 1):
            if not line.strip():
                continue
            where = f"{path}:{number}"
            try:
                record = json.loads(line)
            except json.JSONDecodeError as error:
                raise ValueError(f"{where}: not JSON ({error.msg}), got {line[:40]!r}") from None
            if not isinstance(record, dict):
                raise ValueError(f"{where}: need a JSON object, got {line[:40]!r}")
            yield where, record


def whole_number(record: dict[str, Any], name: str, where: str) -> int:
    """`record[name]` as a whole number >= 0, else ValueError."""
    value = record.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"{where}: {name} is {value!r}, need a whole number >= 0")
    return value
