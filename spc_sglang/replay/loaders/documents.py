"""Questions about documents: QuALITY, NarrativeQA, and system prompts with user queries.

Prompt = document, blank line, question. Questions on documents come shuffled with `seed`, so that
documents are asked at random.
"""

from __future__ import annotations

import csv
import json
import random
from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

from spc_sglang.replay.loaders.reading import json_lines, open_text
from spc_sglang.replay.loaders.tokens import Encode, text_request
from spc_sglang.replay.trace import Request

Pair = tuple[str, str]
REQUESTS_PER_TEXT = 8


def quality(paths: Sequence[Path], encode: Encode, seed: int) -> Iterator[Request]:
    """QuALITY JSONL: `article` (text or lines), and its questions with their options.

    Either `questions[]` of `question` and `options`, or `question1`, `question1option1`, ...
    """
    pairs: list[Pair] = []
    for path in paths:
        for where, record in json_lines(path):
            article = _article(record, where)
            questions = record.get("questions") or _numbered(record)
            if not questions:
                raise ValueError(f"{where}: no `questions` and no `question1`")
            pairs.extend((article, _question(question, where)) for question in questions)
    yield from _shuffled(pairs, encode, seed)


def narrativeqa(paths: Sequence[Path], encode: Encode, seed: int) -> Iterator[Request]:
    """NarrativeQA: `qaps.csv` (`document_id`, `question`) and `tmp/<document_id>.content`."""
    pairs: list[Pair] = []
    for root in paths:
        table = root / "qaps.csv"
        texts: dict[str, str] = {}
        with open_text(table) as stream:
            for row in csv.DictReader(stream):
                document, question = row.get("document_id"), row.get("question")
                where = f"{table}:{len(pairs) + 2}"
                if not document or not question:
                    raise ValueError(f"{where}: need document_id and question, got {row!r}")
                if document not in texts:
                    file = root / "tmp" / f"{document}.content"
                    if not file.is_file():
                        raise ValueError(f"{where}: no text {file}")
                    texts[document] = file.read_text(encoding="utf-8", errors="replace")
                pairs.append((texts[document], question))
    yield from _shuffled(pairs, encode, seed)


def prompts(paths: Sequence[Path], encode: Encode, seed: int) -> Iterator[Request]:
    """System prompts x user queries: eight requests a text on average.

    Prompts: JSONL records with `text` (records of one `prompt` are its revisions, in file order),
    or a folder of text files. A request draws its prompt by Zipf's law over a random ranking, and
    uses the revision of that time: revisions follow each other evenly over the replay. Queries: a
    ShareGPT `.json` file; without one, 200 random words.
    """
    rng = random.Random(seed)
    revisions: dict[str, list[str]] = {}
    queries: list[str] = []
    for path in paths:
        if path.is_dir():
            for file in sorted(file for file in path.rglob("*") if file.is_file()):
                text = file.read_text(encoding="utf-8", errors="replace")
                revisions.setdefault(str(file), []).append(text)
        elif path.suffix == ".json":
            queries.extend(_sharegpt(path))
        else:
            for where, record in json_lines(path):
                name = str(record.get("prompt", where))
                revisions.setdefault(name, []).append(_text(record, where))
    ranked = list(revisions.values())
    rng.shuffle(ranked)
    weights = list(accumulate(1.0 / (rank + 1) for rank in range(len(ranked))))
    total = REQUESTS_PER_TEXT * sum(map(len, ranked))
    for index in range(total):
        texts = rng.choices(ranked, cum_weights=weights)[0]
        text = texts[index * len(texts) // total]
        yield text_request(encode, f"{text}\n\n{_query(queries, rng)}")


def _query(queries: list[str], rng: random.Random) -> str:
    if queries:
        return queries[rng.randrange(len(queries))]
    return " ".join(f"{rng.randrange(10**6):06d}" for _ in range(200))


def _shuffled(pairs: list[Pair], encode: Encode, seed: int) -> Iterator[Request]:
    order = list(range(len(pairs)))
    random.Random(seed).shuffle(order)
    for index in order:
        document, question = pairs[index]
        yield text_request(encode, f"{document}\n\n{question}")


def _text(record: dict[str, Any], where: str) -> str:
    text = record.get("text")
    if not isinstance(text, str):
        raise ValueError(f"{where}: text is {text!r}, need a string")
    return text


def _article(record: dict[str, Any], where: str) -> str:
    article = record.get("article")
    if isinstance(article, list):
        return "".join(str(line) for line in article)
    if not isinstance(article, str):
        raise ValueError(f"{where}: article is {article!r}, need text or a list of lines")
    return article


def _numbered(record: dict[str, Any]) -> list[dict[str, Any]]:
    """The flat form: question1, question1option1, question1option2, ..."""
    found: list[dict[str, Any]] = []
    while (name := f"question{len(found) + 1}") in record:
        options = (record.get(f"{name}option{index}") for index in range(1, 5))
        found.append(
            {"question": record[name], "options": [text for text in options if text is not None]}
        )
    return found


def _question(question: Any, where: str) -> str:
    if not isinstance(question, dict) or not isinstance(question.get("question"), str):
        raise ValueError(f"{where}: question {question!r} has no text")
    options = question.get("options", [])
    return "\n".join([question["question"], *(str(option) for option in options)])


def _sharegpt(path: Path) -> list[str]:
    with open_text(path) as stream:
        conversations = json.load(stream)
    found: list[str] = []
    for entry in conversations:
        turns = entry.get("conversations", []) if isinstance(entry, dict) else []
        found.extend(str(t["value"]) for t in turns if t.get("from") in ("human", "user"))
    if not found:
        raise ValueError(f"{path}: no human turn in any of its conversations")
    return found
