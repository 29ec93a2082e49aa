"""Request logs of SGLang 0.5.23, from `--log-requests --log-requests-level 3` or the exporter.

Lines are `[time] {"event": "request.finished", ...}` with `--log-requests-format json`,
`[time] Finish: obj=GenerateReqInput(...), out={...}` with the default text format, or the objects
with `request_parameters` that `--export-metrics-to-file` writes; any mix, in any number of files,
between other lines of a server's output. A request is one finished request that is no health
check. Its place is where it was received (for the exporter: sent minus latency); ties by line.

A prompt is `input_ids`, else `text` by the tokenizer. `extra_key`, `cache_salt` and the LoRA
adapter keep prompts apart, as in SGLang's cache. Levels 0 and 1 leave the prompt out and level 2
cuts it, so they are refused.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, TypeGuard

from spc_sglang.replay.loaders.reading import open_text
from spc_sglang.replay.loaders.request_log_text import (
    COUNTS,
    LEVEL_3,
    MEDIA_FIELDS,
    NAMESPACE_FIELDS,
    parse,
)
from spc_sglang.replay.loaders.tokens import Encode, ids_request
from spc_sglang.replay.trace import Request

HEALTH_CHECK = "HEALTH_CHECK"
# level 2 keeps 1,024 characters or ids at each end of what is longer than 2,048
_KEPT = 1024
_CUT_MARK = "..."

Place = tuple[str, int]


def load(paths: Sequence[Path], encode: Encode, *, by_bytes: bool) -> Iterator[Request]:
    """Requests of all files in order of arrival; what is left out is told in a warning.

    `by_bytes` says that `encode` is no tokenizer: then a log with ids in some requests and text
    in others is refused, since their tokens would not compare. Raises ValueError with file and
    line, and for a log without any finished request.
    """
    reader = _Reader(encode, by_bytes)
    for path in paths:
        with open_text(path) as stream:
            for number, line in enumerate(stream, 1):
                reader.read(line, f"{path}:{number}")
    if not reader.finished:
        names = ", ".join(str(path) for path in paths)
        raise ValueError(f"{names}: no finished request: start SGLang with --log-requests")
    reader.warn()
    for _, request in sorted(reader.finished, key=lambda entry: entry[0]):
        yield request


class _Reader:
    """Requests found so far, and when each was received."""

    def __init__(self, encode: Encode, by_bytes: bool) -> None:
        self.finished: list[tuple[Place, Request]] = []
        self._encode, self._by_bytes = encode, by_bytes
        self._received: dict[str, Place] = {}
        self._lines = 0
        self._exporter_time = ""
        self._kinds: dict[str, str] = {}
        self._odd: Counter[str] = Counter()

    def read(self, line: str, where: str) -> None:
        """Take in one line; ValueError for a request line that cannot be read."""
        self._lines += 1
        time, _, rest = line.partition("] ") if line.startswith("[") else ("[", "", line)
        if rest.startswith('{"timestamp"'):
            self._event(_json(rest, where), where)
        elif rest.startswith('{"request_parameters"'):
            self._exported(_json(rest, where), where)
        elif rest.startswith(("Receive: obj=", "Finish: obj=")):
            event, told, out = parse(rest, where)
            self._take(event, time[1:], told, out, where)

    def _event(self, record: dict[str, Any], where: str) -> None:
        event = str(record.get("event")).removeprefix("request.")
        if event in ("received", "finished"):
            told, out = record.get("obj"), record.get("out", {})
            if not isinstance(told, dict) or not isinstance(out, dict):
                raise ValueError(f"{where}: need objects in `obj` and `out`")
            self._take(event, str(record["timestamp"]).replace("T", " "), told, out, where)

    def _exported(self, record: dict[str, Any], where: str) -> None:
        told, sent = record["request_parameters"], record.get("response_sent_to_client_ts")
        if not isinstance(told, str):
            raise ValueError(f"{where}: request_parameters is {told!r}, need JSON in a string")
        if isinstance(sent, float):
            began = datetime.fromtimestamp(sent - float(record.get("e2e_latency") or 0.0))
            self._exporter_time = began.isoformat(" ", "microseconds")
        meta = {name: record[name] for name in COUNTS if name in record}
        self._take("finished", self._exporter_time, _json(told, where), {"meta_info": meta}, where)

    def _take(
        self, event: str, time: str, told: dict[str, Any], out: dict[str, Any], where: str
    ) -> None:
        rid = told.get("rid")
        place = (time, self._lines)
        if event == "received":
            for name in rid if isinstance(rid, list) else [rid]:
                self._received.setdefault(str(name), place)
            return
        begun = self._received.pop(str(rid), place)
        if str(rid).startswith(HEALTH_CHECK):
            return
        if any(told.get(name) for name in MEDIA_FIELDS):
            self._odd["requests with images, video or audio left out"] += 1
        elif told.get("input_embeds") or told.get("text") == "" or told.get("input_ids") == []:
            self._odd["requests without text or ids left out"] += 1
        else:
            self.finished.append((begun, self._request(told, out, where)))

    def _request(self, told: dict[str, Any], out: dict[str, Any], where: str) -> Request:
        ids, text = told.get("input_ids"), told.get("text")
        meta = out.get("meta_info", {})
        if _is_cut(ids) or _is_cut(text):
            raise ValueError(f"{where}: the prompt is cut: {LEVEL_3}")
        if _is_ids(ids):
            kind, prompt, output = "input_ids", ids, out.get("output_ids")
        elif isinstance(text, str):
            kind, prompt, answer = "text", self._encode(text), out.get("text")
            output = self._encode(answer) if isinstance(answer, str) else None
        else:
            raise ValueError(f"{where}: neither text nor input_ids: {LEVEL_3}")
        self._check_kinds(kind, where)
        if not self._by_bytes and meta.get("prompt_tokens", len(prompt)) != len(prompt):
            self._odd["prompts whose token count differs from the server's"] += 1
        if output is None or not _is_whole(out.get("output_ids"), meta):
            self._odd["outputs not logged in full, taken as empty"] += 1
            output = []
        return ids_request(prompt, output, [told.get(name) for name in NAMESPACE_FIELDS])

    def _check_kinds(self, kind: str, where: str) -> None:
        self._kinds.setdefault(kind, where)
        if self._by_bytes and len(self._kinds) > 1:
            places = ", ".join(f"{name} ({place})" for name, place in self._kinds.items())
            raise ValueError(f"prompts come as {places}: give --tokenizer, so that they compare")

    def warn(self) -> None:
        """Say what was left out or changed, one line each."""
        if unfinished := sum(not rid.startswith(HEALTH_CHECK) for rid in self._received):
            self._odd["request ids received but not finished left out"] = unfinished
        for what, count in self._odd.items():
            logging.getLogger(__name__).warning("%d %s", count, what)


def _json(text: str, where: str) -> dict[str, Any]:
    try:
        record = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"{where}: not JSON ({error.msg}), got {text[:40]!r}") from None
    if not isinstance(record, dict):
        raise ValueError(f"{where}: need a JSON object, got {text[:40]!r}")
    return record


def _is_ids(value: Any) -> TypeGuard[list[int]]:
    return isinstance(value, list) and all(isinstance(token, int) for token in value)


def _is_cut(value: Any) -> bool:
    """Whether level 2 took the middle out."""
    if isinstance(value, str):
        marked = value[_KEPT : _KEPT + len(_CUT_MARK)] == _CUT_MARK
        return marked and len(value) == 2 * _KEPT + len(_CUT_MARK)
    return isinstance(value, list) and _CUT_MARK in value


def _is_whole(output_ids: Any, meta: dict[str, Any]) -> bool:
    """False for the last piece of an incremental stream, and for the exporter, which has none."""
    return _is_ids(output_ids) and meta.get("completion_tokens") == len(output_ids)
