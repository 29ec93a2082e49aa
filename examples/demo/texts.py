"""The text that the demo sends: public data sets next to the project, else the shipped files.

The data folder is optional. Its formats are the original ones of QuALITY (one article a line),
of the LMCache agent traces (one message a line) and of a list of system-prompt revisions.
"""

from __future__ import annotations

import gzip
import html
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SHIPPED = Path(__file__).resolve().parents[1] / "text"
DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
DOCUMENT_BYTES = 7000  # a longer article is cut here: the demo has four minutes
PROMPT_BYTES = 5000  # likewise for a system prompt
SECTION_BYTES = 600  # least size of a section where the text has no headings
CHAT_TURNS = 8


@dataclass(frozen=True)
class Document:
    """A text in sections, and questions that can be asked anywhere in it."""

    title: str
    sections: tuple[str, ...]
    questions: tuple[str, ...]


@dataclass(frozen=True)
class Texts:
    """What the demo sends, and where it comes from."""

    source: str
    documents: tuple[Document, ...]
    system_prompts: tuple[str, ...]  # revisions of one prompt, oldest first
    member_messages: tuple[str, ...]  # first messages of the users of these prompts
    chat: tuple[str, ...]  # what the user of one long conversation says


def load_texts(data: Path = DATA) -> Texts:
    """The data sets under `data` as far as they are there, else the shipped files."""
    article = _quality_article(data / "quality" / "quality_example.jsonl.gz")
    prompts = _prompt_revisions(data / "system_prompts" / "revisions.jsonl.gz")
    chat = _agent_chat(data / "agent_text")
    found = {"QuALITY": article, "system-prompt revisions": prompts, "agent trace": chat}
    handbook, report = _shipped_document("handbook.md"), _shipped_document("report.md")
    return Texts(
        source=", ".join([*(name for name, value in found.items() if value), "shipped text"]),
        documents=(handbook, article or report),
        system_prompts=prompts or _shipped_prompts(),
        member_messages=_shipped_lines("member_messages.txt"),
        chat=chat or _shipped_lines("chat.txt")[:CHAT_TURNS],
    )


def _shipped_document(name: str) -> Document:
    text = (SHIPPED / name).read_text(encoding="utf-8")
    head, *bodies = re.split(r"^(?=## )", text, flags=re.MULTILINE)
    sections = (head + bodies[0], *bodies[1:])
    return Document(head.strip("# \n"), sections, _shipped_lines("questions.txt"))


def _shipped_prompts() -> tuple[str, ...]:
    paths = sorted(SHIPPED.glob("system_prompt_*.txt"))
    return tuple(path.read_text(encoding="utf-8") for path in paths)


def _shipped_lines(name: str) -> tuple[str, ...]:
    return tuple((SHIPPED / name).read_text(encoding="utf-8").splitlines())


def _quality_article(path: Path) -> Document | None:
    """The first article of a QuALITY file, cut to whole paragraphs within DOCUMENT_BYTES."""
    record = next(_records(path), None)
    if record is None:
        return None
    article = record["article"]
    paragraphs = _paragraphs(article if isinstance(article, str) else "".join(article))
    sections: list[str] = [""]
    for paragraph in paragraphs:
        if sum(map(len, sections)) + len(paragraph) > DOCUMENT_BYTES:
            break
        if len(sections[-1]) >= SECTION_BYTES:
            sections.append("")
        sections[-1] += paragraph + "\n\n"
    return Document(
        record["title"], tuple(sections), (*_questions(record), *_shipped_lines("questions.txt"))
    )


def _paragraphs(article: str) -> list[str]:
    """Plain text of each HTML paragraph, one line each, as ASCII."""
    blocks = re.findall(r"<p\b[^>]*>(.*?)</p>", article, flags=re.DOTALL) or article.split("\n\n")
    plain = (html.unescape(re.sub(r"<[^>]+>", " ", block)) for block in blocks)
    return [" ".join(text.split()).encode("ascii", "replace").decode() for text in plain]


def _questions(record: dict[str, Any]) -> tuple[str, ...]:
    """The questions with their options; the example file numbers them in its column names."""
    if "questions" in record:
        return tuple(_ask(item["question"], item["options"]) for item in record["questions"])
    names = sorted(name for name in record if re.fullmatch(r"question\d+", name))
    return tuple(_ask(record[n], [record[f"{n}option{i}"] for i in range(1, 5)]) for n in names)


def _ask(question: str, options: list[str]) -> str:
    choices = (f"\n({i}) {option.strip()}" for i, option in enumerate(options, 1))
    return (question.strip() + "".join(choices)).encode("ascii", "replace").decode()


def _prompt_revisions(path: Path) -> tuple[str, ...]:
    """Three revisions of the first prompt that starts alike in all of them and is 4 to 9 KB."""
    revisions: dict[str, list[str]] = {}
    for record in _records(path):
        revisions.setdefault(record["prompt"], []).append(record["text"])
    for texts in revisions.values():
        sizes = [len(text.encode()) for text in texts]
        alike = len({text[:500] for text in texts}) == 1
        if len(texts) >= 3 and alike and min(sizes) >= 4000 and max(sizes) <= 9000:
            return tuple(text[:PROMPT_BYTES] for text in texts[:3])
    return ()


def _agent_chat(folder: Path) -> tuple[str, ...]:
    """What the customer says in the longest conversation; the trace alternates the speakers."""
    conversations = []
    for path in sorted(folder.glob("*.jsonl.gz")):
        records = sorted(_records(path), key=lambda record: record["timestamp"])
        conversations.append([record["output"] for record in records if record["output"]])
    longest = max(conversations, key=len, default=[])
    return tuple(longest[::2][:CHAT_TURNS])


def _records(path: Path) -> Iterator[dict[str, Any]]:
    """JSON objects of a gzip file with one a line; none if there is no such file."""
    if path.is_file():
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            yield from (json.loads(line) for line in lines)
