"""The requests of the demo, in the order in which they are sent.

Three kinds of traffic that share prefixes, each as users produce it:

- documents: readers of two documents, each at another place, ask about what they have read;
- prompts: one system prompt in three revisions, each used by three users;
- chat: one conversation that only grows, with the model's own answers kept in it.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from examples.demo.texts import Document, Texts

GROUPS = ("documents", "prompts", "chat")
SEED = 7
CHAT_OPENING = "You are a patient support agent. Answer in one short paragraph.\n"


@dataclass(frozen=True)
class Request:
    """One request; `continues` puts the conversation so far in front of `text`."""

    name: str
    group: str  # one of GROUPS
    text: str
    continues: bool = False


def build_workload(texts: Texts, *, quick: bool = False) -> tuple[Request, ...]:
    """All requests; the groups are interleaved evenly, as concurrent users would."""
    count = 3 if quick else 8
    documents = [_document_requests(document, count) for document in texts.documents]
    prompts = _prompt_requests(texts.system_prompts, texts.member_messages)
    chat = _chat_requests(texts.chat)
    if quick:
        documents, prompts, chat = documents[:1], prompts[:4], chat[:3]
    return _interleave([*documents, prompts, chat])


def _document_requests(document: Document, count: int) -> list[Request]:
    """`count` questions, each after a uniformly drawn number of sections."""
    draw = random.Random(f"{SEED} {document.title}")
    requests = []
    for index in range(count):
        depth = draw.randint(1, len(document.sections))
        question = draw.choice(document.questions)
        text = f"{''.join(document.sections[:depth])}\nQuestion: {question}\nAnswer:"
        name = f"{document.title}, {depth} of {len(document.sections)} sections"
        requests.append(Request(f"{name} (reader {index + 1})", "documents", text))
    return requests


def _prompt_requests(revisions: Sequence[str], messages: Sequence[str]) -> list[Request]:
    return [
        Request(
            f"system prompt, revision {revision} (user {user})",
            "prompts",
            f"{prompt}\nUser: {message}\nAssistant:",
        )
        for revision, prompt in enumerate(revisions, 1)
        for user, message in enumerate(messages, 1)
    ]


def _chat_requests(messages: Sequence[str]) -> list[Request]:
    openings = [CHAT_OPENING, *["\n"] * (len(messages) - 1)]
    return [
        Request(f"chat, turn {turn}", "chat", f"{opening}User: {message}\nAssistant:", turn > 1)
        for turn, (opening, message) in enumerate(zip(openings, messages, strict=True), 1)
    ]


def _interleave(groups: Sequence[Sequence[Request]]) -> tuple[Request, ...]:
    """Spread every group evenly over the run; each keeps its own order."""
    placed = [
        ((position + 0.5) / len(group), index, request)
        for index, group in enumerate(groups)
        for position, request in enumerate(group)
    ]
    return tuple(request for _, _, request in sorted(placed, key=lambda item: item[:2]))
