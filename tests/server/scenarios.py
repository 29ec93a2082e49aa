"""What must hold on any configuration of the server; each function is one scenario.

Every resumed answer is compared with the answer of an empty cache, which looks at least two
64-token chunks and six decoded tokens past the point of resumption.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise

from tests.server.client import Answer, Client, tokens

GRID = 64
TAIL_TOKENS = 200  # more than three chunks past the branch


@dataclass(frozen=True)
class Bounds:
    """What "warm equals cold" means for one configuration, as a largest logprob difference.

    `alone` for requests sent one by one; `reshaped` where the matrix products get other shapes
    than in the cold run: in batches, and for tails of a few tokens. `batches_compare` is off
    for bf16, where another batch shape alone, without any hit, flips tokens of a random model.
    """

    alone: float = 0.0
    reshaped: float = 5e-5
    batches_compare: bool = True

    def check_batch(self, client: Client, prompt: list[int], answer: Answer) -> None:
        """Compare an answer that was computed in a batch with the answer of an empty cache."""
        if self.batches_compare:
            distance = answer.distance(client.cold(prompt))
            assert distance <= self.reshaped, (answer.cached, distance)


def warm_equals_cold(client: Client, bounds: Bounds, *, spacing: int) -> None:
    """Branches off one document at many depths resume from the checkpoint below each.

    All lengths are multiples of 8: a matrix product may round the rows of its last partial
    block differently, and KV that an earlier request left there would bring that along. This
    is so in stock SGLang as well, and has nothing to do with states.
    """
    client.flush()
    document = tokens(704, seed=1)
    cuts = (104, 136, 264, 296, 400, 512, 640, 696)
    prompts = [document[:cut] + tokens(TAIL_TOKENS, seed=cut) for cut in cuts]
    client.generate(document)
    warm = [client.generate(prompt) for prompt in prompts]
    for cut, answer in zip(cuts, warm, strict=True):
        assert answer.cached <= cut, (cut, answer.cached)
        assert answer.cached > cut - max(spacing, GRID) - GRID, (cut, answer.cached)
    for cut, prompt, answer in zip(cuts, prompts, warm, strict=True):
        distance = answer.distance(client.cold(prompt))
        assert distance <= bounds.alone, (cut, answer.cached, distance)


def second_branch_hits_the_first_time(client: Client, bounds: Bounds, *, spacing: int) -> None:
    """[A,B,C], then [A,B,D], then [A,B,E]: the second already resumes, the third at the branch."""
    client.flush()
    shared = tokens(1000, seed=2)
    prompts = [shared + tokens(TAIL_TOKENS, seed=30 + n) for n in range(3)]
    first, second, third = (client.generate(prompt) for prompt in prompts)
    assert first.cached == 0
    assert second.cached >= 1000 // spacing * spacing - GRID
    assert third.cached > 1000 - 2 * GRID
    assert second.distance(client.cold(prompts[1])) <= bounds.alone
    assert third.distance(client.cold(prompts[2])) <= bounds.alone


def same_prompt_again(client: Client, bounds: Bounds, *, lengths: tuple[int, ...]) -> None:
    """A repeat resumes from the deepest grid position below its last token, at any length."""
    for length in lengths:
        client.flush()
        prompt = tokens(length, seed=length)
        cold = client.generate(prompt)
        warm = client.generate(prompt)
        # off-grid chunk ends may shift the grid of later chunks, hence one grid step of slack
        assert length - 1 - 2 * GRID < warm.cached < length, (length, warm.cached)
        bound = bounds.alone if length - warm.cached > 16 else bounds.reshaped
        assert warm.distance(cold) <= bound, (length, warm.cached, warm.distance(cold))


def one_token_tail(client: Client, bounds: Bounds) -> None:
    """A hit that leaves exactly one token to compute."""
    client.flush()
    prompt = tokens(641, seed=4)
    client.generate(prompt[:640] + tokens(TAIL_TOKENS, seed=5))
    warm = client.generate(prompt)
    assert warm.cached > 640 - 2 * GRID, warm.cached
    assert warm.distance(client.cold(prompt)) <= bounds.reshaped


def group_in_flight(client: Client, bounds: Bounds) -> None:
    """Four requests of one group at once, then four more: exact, and the second wave resumes."""
    client.flush()
    shared = tokens(1024, seed=6)
    prompts = [shared + tokens(128, seed=60 + n) for n in range(8)]
    first = client.generate_together(prompts[:4])
    second = client.generate_together(prompts[4:])
    assert all(answer.cached > 1024 - 2 * GRID for answer in second), second
    for prompt, answer in zip(prompts, first + second, strict=True):
        bounds.check_batch(client, prompt, answer)


def growing_chat(client: Client, bounds: Bounds) -> None:
    """Append-only turns: every turn resumes at most one chunk before the previous end."""
    client.flush()
    history = tokens(300, seed=7)
    answers = []
    for turn in range(4):
        answers.append((len(history), list(history), client.generate(history)))
        history += [*answers[-1][2].tokens, *tokens(150, seed=70 + turn)]
    for (before, _, _), (length, prompt, answer) in pairwise(answers):
        assert answer.cached >= (before - 1) // GRID * GRID - GRID, (length, answer.cached)
        assert answer.distance(client.cold(prompt)) <= bounds.alone


def crowded_pool(client: Client, bounds: Bounds, *, prompts: int) -> None:
    """More distinct prompts than the pools hold, some abandoned: exact answers, no slot lost."""
    client.flush()
    documents = [tokens(500, seed=100 + n) for n in range(prompts)]
    jobs = [document + tokens(100, seed=200 + n) for n, document in enumerate(documents)]
    jobs += [document[:400] + tokens(150, seed=300 + n) for n, document in enumerate(documents)]
    with ThreadPoolExecutor(6) as pool:
        hang_ups = [
            pool.submit(client.abandon, tokens(600, seed=400 + n), after_s=0.05 + 0.04 * n)
            for n in range(6)
        ]
        answers = list(pool.map(client.generate, jobs))
        for hang_up in hang_ups:
            hang_up.result()
    for prompt, answer in list(zip(jobs, answers, strict=True))[:: max(1, len(jobs) // 6)]:
        bounds.check_batch(client, prompt, answer)


def accounts_are_balanced(client: Client) -> None:
    """Idle: free + cached slots are the whole pool, nothing is pending, and counters add up."""
    deadline = time.monotonic() + 120
    report = client.report()
    while report["pending"] or report["slots_protected"]:
        assert time.monotonic() < deadline, report
        time.sleep(0.2)
        report = client.report()
    assert report["slots_free"] + report["slots_evictable"] == report["slots_total"], report
    assert report["matched_tokens"] == report["resumed_tokens"] + report["lost_tokens"], report
    settled = ("published", "duplicate", "unwritten", "unowned", "revoked", "released")
    assert report["captured"] == sum(report[name] for name in settled), report
    assert report["unwritten"] == 0, report
    # SGLang sizes the pool so that everyone finds slots; our captures must not change that
    assert report["waits_for_slots"] == report["ends_not_stored"] == 0, report
