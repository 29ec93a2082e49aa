"""The live planner's segments are the entries of the tree's split: star and comb in a server.

A server plans one request at a time: from its restore point to the branch point, which gets a
checkpoint of its own, and on into its new text. That is optimal for the whole tree if the tree
splits there, and then it must cost what the joint solution of all branches costs.
"""

from __future__ import annotations

import random

import numpy as np
import pytest

from spc_sglang.placement import replay
from spc_sglang.planning import PrefixTree, allocate, split_branches
from spc_sglang.planning.capture_policy import Extend
from spc_sglang.planning.interior import Segment, place_between
from spc_sglang.planning.learned import Learned, _new_text, _seen_text
from spc_sglang.planning.observation import Admission, Observations

BRANCH = 6400
MOST = 64


def observed(rng: random.Random) -> Observations:
    observations = Observations()
    for _ in range(30):
        owner = rng.randint(2000, 9000)
        overlap = rng.randint(1, owner)
        observations.add(Admission(10_000, overlap, 0, owner_prompt=owner))
    return observations


def request(rng: random.Random, observations: Observations) -> tuple[Segment, Segment]:
    """Seen and new text of one request that leaves the shared prefix at the branch point."""
    left_at = sorted(rng.sample(range(64, BRANCH, 64), 5))
    prompt = BRANCH + rng.randint(1000, 8000)
    overlaps = tuple((depth, rng.random()) for depth in left_at)
    extend = Extend(0, prompt, prompt, 64, overlap_depth=BRANCH, overlaps=overlaps)
    return _seen_text(extend), _new_text(observations, BRANCH, prompt - 1)


def tree_of(seen: Segment, texts: list[Segment]) -> tuple[PrefixTree, int]:
    """The prefix with its overlaps, the branch node, and one chain a request below it."""
    parents, depths, weights = [-1], [0], [0.0]

    def chain(above: int, segment: Segment) -> int:
        for depth, weight in zip(*segment[1:], strict=True):
            parents.append(above)
            depths.append(int(depth))
            weights.append(float(weight))
            above = len(parents) - 1
        return above

    branch = chain(chain(0, seen), (0, np.array([BRANCH]), np.array([0.0])))
    for text in texts:
        chain(branch, text)
    return PrefixTree(parents, depths, weights), branch


@pytest.mark.parametrize("branches", [2, 5])
@pytest.mark.parametrize("price", [0.5, 20.0, 100.0])
def test_planning_request_by_request_is_the_joint_optimum(branches: int, price: float) -> None:
    rng = random.Random(branches)
    observations = observed(rng)
    requests = [request(rng, observations) for _ in range(branches)]
    seen = requests[0][0]
    tree, branch = tree_of(seen, [new for _, new in requests])
    split = split_branches(tree, checkpointed=[branch])
    assert (split.exact, split.case) == (True, "checkpointed")
    segments = [seen, *(new for _, new in requests)]
    assert [entry.origin_depth for entry in split.entries] == [s[0] for s in segments]
    for entry, (anchor, depths, _) in zip(split.entries, segments, strict=True):
        assert (entry.weights.depths + anchor).tolist() == depths

    first = place_between([seen, requests[0][1]], MOST, price)
    others = [place_between([new], MOST, price) for _, new in requests[1:]]
    by_request = [tuple(d for d in first if d <= BRANCH), tuple(d for d in first if d > BRANCH)]
    chosen = [*by_request, *others]
    joint = allocate([entry.weights for entry in split.entries], sum(map(len, chosen)))
    alone = sum(
        replay(entry.weights, [depth - entry.origin_depth for depth in depths])
        for entry, depths in zip(split.entries, chosen, strict=True)
    )
    assert alone == pytest.approx(joint.replay, rel=1e-9)
    assert sum(map(len, chosen)) > 0


@pytest.mark.parametrize("price", [0.5, 20.0, 100.0])
def test_new_text_is_left_out_only_where_nothing_in_it_pays(price: float) -> None:
    """The short cut for short texts changes no answer."""
    rng = random.Random(9)
    skipped = planned = 0
    for _ in range(60):
        observations = observed(rng)
        prompt = BRANCH + rng.randint(2, 400)
        extend = Extend(0, prompt, prompt, 64, overlap_depth=BRANCH)
        new = _new_text(observations, BRANCH, prompt - 1)
        expected = place_between([new], 2, price)
        assert Learned(observations, 2, price).depths(extend) == expected
        skipped += observations.overlap_rate * (prompt - 1 - BRANCH) <= price
        planned += bool(expected)
    assert skipped or planned
    assert price > 0.5 or planned > 5
    assert price < 100.0 or skipped > 5
