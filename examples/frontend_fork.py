"""SGLang's frontend language: read one document once, then fork into several questions.

    python -m examples.demo --serve                              # or any SGLang server
    SGLANG_USE_CPU_ENGINE=1 python -m examples.frontend_fork

The variable is for a machine without a GPU, where `import sglang` needs it. With a server
elsewhere: --base-url http://HOST:PORT. Any text file will do: --document FILE.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import sglang as sgl

TEXTS = Path(__file__).resolve().parent / "text"
MAX_NEW_TOKENS = 16


@sgl.function
def ask_all(s: sgl.lang.interpreter.ProgramState, document: str, questions: list[str]) -> None:
    """One fork a question; all of them share the document."""
    s += document
    # sends the document now; without it the forks start before it is in the cache
    s.sync()
    forks = s.fork(len(questions))
    for fork, question in zip(forks, questions, strict=True):
        fork += f"\nQuestion: {question}\nAnswer:"
        fork += sgl.gen("answer", max_tokens=MAX_NEW_TOKENS, temperature=0)
    for index, fork in enumerate(forks):
        s[f"answer_{index}"] = fork["answer"]
        s[f"meta_{index}"] = fork.get_meta_info("answer")


def main(arguments: Sequence[str] | None = None) -> None:
    """Ask every question about the document and print what each resumed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--base-url", default="http://127.0.0.1:30000")
    parser.add_argument("--document", type=Path, default=TEXTS / "report.md")
    parser.add_argument("--questions", type=int, default=4, help="how many of the shipped ones")
    given = parser.parse_args(arguments)
    document = given.document.read_text(encoding="utf-8")
    questions = (TEXTS / "questions.txt").read_text(encoding="utf-8").splitlines()
    asked = questions[: given.questions]

    sgl.set_default_backend(sgl.RuntimeEndpoint(given.base_url))
    state = ask_all.run(document=document, questions=asked)
    for index, question in enumerate(asked):
        meta = state[f"meta_{index}"]
        print(
            f"resumed {meta['cached_tokens']} of {meta['prompt_tokens']} prompt tokens: {question}"
        )
        print(f"  {state[f'answer_{index}']!r}")


if __name__ == "__main__":
    main()
