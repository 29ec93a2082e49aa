"""One document, many questions, with a model of flash-linear-attention and without SGLang.

    python -m examples.checkpointed_fla [--document-tokens 1024] [--questions 3]

The document is prefilled once and leaves checkpoints at several depths. Every question then runs
on top of one of them, and its logits are compared with a run over document and question. The
model is tiny and has random weights. On a GPU the kernels are compiled; without one they are
interpreted, which takes minutes for what a GPU does in milliseconds.
"""

from __future__ import annotations

import argparse
import sys
import time

import torch

QUESTION_TOKENS = 128
VOCABULARY = 256


def load_library() -> torch.device:
    """The device to run on, with the interpreter in place if that is the CPU."""
    if torch.cuda.is_available():
        return torch.device("cuda")
    from spc_sglang.adapter.cpu.stubs import tolerate_cuda_torchvision
    from spc_sglang.kernels import interpreter

    tolerate_cuda_torchvision()
    interpreter.activate()
    import fla.models  # noqa: F401 - its kernels are adapted below

    from spc_sglang.kernels.checkpointed.capture import install

    install()
    interpreter.adapt(*(m for name, m in sys.modules.items() if name.startswith("fla.")))
    return torch.device("cpu")


def make_model(device: torch.device) -> torch.nn.Module:
    """Two Gated DeltaNet layers; fp32 on a CPU, where bf16 has to be emulated."""
    from fla.models import GatedDeltaNetConfig, GatedDeltaNetForCausalLM

    torch.manual_seed(0)
    config = GatedDeltaNetConfig(
        hidden_size=64,
        head_dim=64,
        expand_v=1.0,
        num_heads=1,
        num_hidden_layers=2,
        vocab_size=VOCABULARY,
        fuse_norm=False,
        fuse_swiglu=False,
    )
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    return GatedDeltaNetForCausalLM(config).to(device, dtype).eval()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--document-tokens", type=int, default=1024)
    parser.add_argument("--questions", type=int, default=3)
    options = parser.parse_args()

    device = load_library()
    from spc_sglang.kernels.checkpointed.cache import CheckpointedCache

    model = make_model(device)
    length = options.document_tokens // 64 * 64
    document = torch.randint(3, VOCABULARY, (1, length), device=device)
    positions = sorted({length // 2 // 64 * 64 or 64, length})

    start = time.perf_counter()
    cache = CheckpointedCache(model, document, positions)
    seconds = time.perf_counter() - start
    print(f"document: {length} tokens in {seconds:.2f} s on {device}, checkpoints at {positions}")
    print(f"checkpoints: {cache.num_bytes / 1024:.0f} KiB")

    for number in range(options.questions):
        depth = positions[-1 - number % len(positions)]
        question = torch.randint(3, VOCABULARY, (1, QUESTION_TOKENS), device=device)
        start = time.perf_counter()
        with torch.inference_mode():
            answer = model(question, past_key_values=cache.at(depth), use_cache=True).logits
            seconds = time.perf_counter() - start
            whole = torch.cat([document[:, :depth], question], dim=1)
            reference = model(whole, use_cache=True).logits[:, depth:]
        difference = (answer - reference).abs().max().item()
        print(f"question {number} after {depth} tokens: {seconds:.2f} s, differs by {difference}")


if __name__ == "__main__":
    main()
