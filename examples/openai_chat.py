"""A chat of several turns through the OpenAI client; the conversation only grows.

    python -m examples.demo --serve        # or any SGLang server with --enable-cache-report
    python -m examples.openai_chat

With a server elsewhere: --base-url http://HOST:PORT. Without --enable-cache-report a server does
not tell what it resumed.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from openai import OpenAI
from openai.types.chat import ChatCompletionMessageParam

TEXTS = Path(__file__).resolve().parent / "text"
MAX_NEW_TOKENS = 32


def chat(client: OpenAI, model: str, system_prompt: str, user_messages: Sequence[str]) -> None:
    """Send the messages one after the other and print what each turn resumed."""
    messages: list[ChatCompletionMessageParam] = [{"role": "system", "content": system_prompt}]
    for turn, text in enumerate(user_messages, 1):
        messages.append({"role": "user", "content": text})
        completion = client.chat.completions.create(
            model=model, messages=messages, temperature=0, max_tokens=MAX_NEW_TOKENS
        )
        answer = completion.choices[0].message.content or ""
        messages.append({"role": "assistant", "content": answer})
        usage = completion.usage
        assert usage is not None
        details = usage.prompt_tokens_details
        resumed = "?" if details is None else details.cached_tokens
        print(f"turn {turn}: resumed {resumed} of {usage.prompt_tokens} prompt tokens")
        print(f"  {answer!r}")


def main(arguments: Sequence[str] | None = None) -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--base-url", default="http://127.0.0.1:30000")
    parser.add_argument("--turns", type=int, default=4, help="how many of the shipped messages")
    given = parser.parse_args(arguments)
    client = OpenAI(base_url=given.base_url.rstrip("/") + "/v1", api_key="none")
    model = client.models.list().data[0].id
    system_prompt = (TEXTS / "system_prompt_3.txt").read_text(encoding="utf-8")
    user_messages = (TEXTS / "chat.txt").read_text(encoding="utf-8").splitlines()
    chat(client, model, system_prompt, user_messages[: given.turns])


if __name__ == "__main__":
    main()
