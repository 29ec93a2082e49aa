"""WEKA kv-cache-tester: one coding-agent session a file, `hash_ids` of 64-token blocks.

Ids are local to a file. Sub-agents nest requests of their own under entries of type `subagent`;
they share the session's namespace and its clock. The files say nothing about how sessions overlap:
here 16 run at once, and the next begins when one of them ends.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from spc_sglang.replay.loaders.reading import open_text, whole_number
from spc_sglang.replay.trace import Request, whole_blocks

SESSIONS_AT_ONCE = 16
_NAMESPACE = 1 << 40


def load(paths: Sequence[Path], sessions_at_once: int = SESSIONS_AT_ONCE) -> Iterator[Request]:
    """Requests of all sessions in order of arrival; ties by file, then by order in the file."""
    if sessions_at_once < 1:
        raise ValueError(f"sessions_at_once must be at least 1, got {sessions_at_once}")
    free_at = [0.0] * sessions_at_once
    arrivals = []
    for session, path in enumerate(paths):
        entries = list(_session(path))
        lane = min(range(sessions_at_once), key=free_at.__getitem__)
        start = free_at[lane]
        for order, (time, record, where) in enumerate(entries):
            arrivals.append((start + time, session, order, _request(record, session, where)))
        free_at[lane] = start + max((time for time, _, _ in entries), default=0.0)
    arrivals.sort(key=lambda arrival: arrival[:3])
    for _, _, _, request in arrivals:
        yield request


def _session(path: Path) -> Iterator[tuple[float, dict[str, Any], str]]:
    try:
        with open_text(path) as stream:
            session = json.load(stream)
    except json.JSONDecodeError as error:
        raise ValueError(f"{path}:{error.lineno}: not JSON ({error.msg})") from None
    if not isinstance(session, dict) or not isinstance(session.get("requests"), list):
        raise ValueError(f"{path}:1: need a JSON object with a list `requests`")
    yield from _flatten(session["requests"], f"{path}: requests")


def _flatten(entries: list[Any], where: str) -> Iterator[tuple[float, dict[str, Any], str]]:
    for index, entry in enumerate(entries):
        here = f"{where}[{index}]"
        if not isinstance(entry, dict):
            raise ValueError(f"{here}: need an object, got {entry!r}")
        if entry.get("type") == "subagent":
            yield from _flatten(entry.get("requests", []), f"{here}.requests")
            continue
        time = entry.get("t")
        if isinstance(time, bool) or not isinstance(time, int | float):
            raise ValueError(f"{here}: t is {time!r}, need seconds")
        yield float(time), entry, here


def _request(record: dict[str, Any], session: int, where: str) -> Request:
    hashes = record.get("hash_ids")
    if not isinstance(hashes, list):
        raise ValueError(f"{where}: hash_ids is {hashes!r}, need a list of block ids")
    tokens = whole_number(record, "in", where)
    keys = [session * _NAMESPACE + block for block in hashes[: whole_blocks(tokens)]]
    return Request(keys)
