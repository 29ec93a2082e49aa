"""transformers' own implementation as the reference of a server's answers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from spc_sglang.adapter.cpu import stubs


def greedy_logprobs(
    model: Path, prompt: Sequence[int], answer: Sequence[int]
) -> tuple[list[int], list[float]]:
    """What transformers would choose after each token of `answer`, and how likely `answer` is.

    Returns its greedy tokens and its log-probabilities of the answer's tokens, both as long as
    the answer. fp32, the whole sequence in one pass without any cache.
    """
    import torch

    stubs.tolerate_cuda_torchvision()
    from transformers import AutoModelForCausalLM

    network = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).eval()
    with torch.no_grad():
        logits = network(torch.tensor([[*prompt, *answer]])).logits[0].float()
    table = torch.log_softmax(logits[len(prompt) - 1 : -1], dim=-1)
    return table.argmax(-1).tolist(), [table[row, token].item() for row, token in enumerate(answer)]
