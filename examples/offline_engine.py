"""Offline batch with `sglang.Engine`: the first question pays for the document, the rest resume.

    python examples/offline_engine.py --cpu                                  # small random model
    python examples/offline_engine.py --model-path Qwen/Qwen3.5-0.8B         # on a GPU

Needs no server. `--cpu` makes the demo's model and runs on a machine without a GPU.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
TEXTS = HERE / "text"
CPU_MODEL = "qwen3_5"
SAMPLING = {"max_new_tokens": 16, "temperature": 0}


def run_batch(engine_kwargs: Mapping[str, object], block_tokens: int, num_questions: int) -> None:
    """One question first, then the others in one batch; prints what each resumed."""
    import sglang

    document = (TEXTS / "handbook.md").read_text(encoding="utf-8")
    questions = (TEXTS / "questions.txt").read_text(encoding="utf-8").splitlines()
    prompts = [f"{document}\nQuestion: {text}\nAnswer:" for text in questions[:num_questions]]
    engine = sglang.Engine(
        **engine_kwargs,
        radix_cache_backend="spc",
        spc_placement="block",
        spc_block_tokens=block_tokens,
    )
    try:
        # requests that arrive together cannot resume from each other
        answers = [engine.generate(prompts[0], SAMPLING)]
        answers += engine.generate(prompts[1:], SAMPLING) if prompts[1:] else []
    finally:
        engine.shutdown()
    for question, answer in zip(questions, answers, strict=False):
        meta = answer["meta_info"]
        print(
            f"resumed {meta['cached_tokens']} of {meta['prompt_tokens']} prompt tokens: {question}"
        )
        print(f"  {answer['text']!r}")


def run_on_cpu(arguments: Sequence[str], block_tokens: int, num_questions: int) -> int:
    """Run in a process that has had the CPU's environment from its start; its exit status."""
    from spc_sglang.adapter.cpu.models import build_model
    from spc_sglang.adapter.cpu.server import CpuServerConfig

    model_path = build_model(CPU_MODEL, HERE.parent / ".cache" / "models" / CPU_MODEL)
    config = CpuServerConfig(model_path, log_level="error")
    if os.environ.get("SGLANG_USE_CPU_ENGINE") != "1":
        command = [sys.executable, str(Path(__file__).resolve()), *arguments]
        return subprocess.run(command, env=config.environment(), check=False).returncode
    run_batch(config.engine_kwargs(), block_tokens, num_questions)
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; returns the exit status."""
    arguments = sys.argv[1:] if arguments is None else arguments
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--model-path", help="a hybrid model: a folder or a hub name")
    parser.add_argument("--cpu", action="store_true", help="small random model, no GPU")
    parser.add_argument("--block-tokens", type=int, default=512, metavar="N")
    parser.add_argument("--questions", type=int, default=4, help="how many of the shipped ones")
    given = parser.parse_args(arguments)
    if given.cpu == bool(given.model_path):
        parser.error("give either --model-path or --cpu")
    if given.cpu:
        return run_on_cpu(arguments, given.block_tokens, given.questions)
    run_batch({"model_path": given.model_path}, given.block_tokens, given.questions)
    return 0


# the engine starts its own processes, which import this file again
if __name__ == "__main__":
    raise SystemExit(main())
