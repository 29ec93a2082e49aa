"""The Pareto clock against its formula by hand and against a twin that recomputes everything."""

from __future__ import annotations

import random
from math import log

import pytest

from spc_sglang.planning.class_rates import ClassRates, class_of, clock_offset
from spc_sglang.planning.node import Kind, Node
from spc_sglang.planning.queue_hits import expected_hits
from spc_sglang.planning.retention import Retention
from tests.planning.by_handle import ByHandle
from tests.planning.pareto_twin import BLOCK, Prefix, Twin


def chain(*depths: int) -> list[tuple[str, int]]:
    return [(f"n{depth}", depth) for depth in depths]


def test_classes_follow_the_definition() -> None:
    """(guess?, below?, tail ? 0 : min(7, ceil log2 passes)) numbers 32 classes; turns have two."""
    assert [
        class_of(Kind.BRANCH, checkpoint_below=False, passes=p)
        for p in (1, 2, 3, 4, 5, 64, 65, 128, 129, 10_000)
    ] == [0, 1, 2, 2, 3, 6, 7, 7, 7, 7]
    assert class_of(Kind.GUESS, checkpoint_below=True, passes=2) == 25
    assert class_of(Kind.TAIL, checkpoint_below=True, passes=99) == 8
    turns = [class_of(Kind.TURN, checkpoint_below=below, passes=9) for below in (False, True)]
    assert turns == [32, 33]


def test_the_clock_follows_the_pool() -> None:
    """b is a quarter of the pool, between 4 and 30 requests."""
    assert [clock_offset(slots) for slots in (1, 16, 64, 120, 5000)] == [4, 4, 16, 30, 30]


def test_a_request_that_goes_on_from_a_tail_continues() -> None:
    """So does the next one; resuming from a branch or a guess is no conversation."""
    tree = ByHandle(Retention(slots=9))
    tree.admitted([], None)
    for handle, kind in (("tail", Kind.TAIL), ("turn", Kind.TURN), ("guess", Kind.GUESS)):
        tree.grown([(handle, 64)])
        tree.inserted(handle, kind)
    told = [tree.admitted([(h, 64)], h).continues for h in ("tail", "turn", "guess")]
    assert told == [True, True, False]
    assert not tree.admitted([], None).continues


def test_a_conversation_goes_on_although_its_state_is_gone() -> None:
    """Else starved chats count as one-off prompts, whose rate is low, and starve for ever."""
    tree = ByHandle(Retention(slots=9))
    tree.grown(chain(640))
    tree.inserted("n640", Kind.TAIL)
    tree.evicted("n640", watch=False)
    assert tree.admitted(chain(640), None).continues


def test_what_lru_would_have_kept_is_kept_after_a_loss() -> None:
    """A short chat among long prompts, evicted once by value: then its state outlives theirs."""
    tree = ByHandle(Retention(slots=2))
    tree.grown([("chat", 128)])
    tree.inserted("chat", Kind.TAIL)
    for name in ("a", "b"):
        tree.admitted([], None)
        tree.grown([(name, 6400)])
        tree.inserted(name, Kind.TAIL)
    assert tree.choose_victim(exclude=["b"]) == "chat"
    assert tree.retention.guard.share == 0.0
    tree.evicted("chat")
    for _ in range(5):  # the LRU pool of two places would hold it each time
        tree.retention.guard.touch(tree.nodes["chat"])
        tree.admitted([("chat", 128)], None)
    assert tree.retention.guard.share == pytest.approx(0.2 * sum(0.998**k for k in range(5)))
    tree.inserted("chat", Kind.TAIL)
    tree.evicted("a")
    assert tree.value("chat") < tree.value("b")
    assert tree.choose_victim() == "b"


def test_a_new_state_outbids_only_what_is_worth_less() -> None:
    """Fresh and unlearnt, values are gap / b: a guess of 640 tokens against a live gap of 1,280."""
    tree = ByHandle(Retention(slots=1))
    assert not tree.outbids(Kind.GUESS, 640)  # nothing could go
    tree.grown(chain(1280))
    tree.inserted("n1280", Kind.BRANCH)
    assert not tree.outbids(Kind.GUESS, 1280)
    assert tree.outbids(Kind.GUESS, 1281)
    assert not tree.outbids(Kind.GUESS, 1281, locked=lambda handle: True)
    assert not tree.outbids(Kind.GUESS, 1281, queue_hits={"n1280": 1.0})


def test_under_lru_a_new_state_outbids_any_old_one() -> None:
    """Times of last use are no tokens: a guess must not be refused because the server is old."""
    tree = ByHandle(Retention(slots=1, eviction="lru"))
    assert not tree.outbids(Kind.GUESS, 64)
    for _ in range(5000):
        tree.admitted([], None)
    tree.grown(chain(1280))
    tree.inserted("n1280", Kind.BRANCH)
    assert tree.outbids(Kind.GUESS, 64)


def test_a_few_equal_tokens_more_are_no_new_place() -> None:
    """Visits count by the 64-token grid: past a popular prefix two prompts agree by chance."""
    tree = ByHandle(Retention(slots=9))
    tree.grown(chain(640, 645, 710))
    told = [tree.admitted(chain(*depths), None) for depths in ([640], [640], [640, 645])]
    assert [admitted.earlier_visits for admitted in told] == [0, 1, 2]
    assert tree.admitted(chain(640, 645, 710), None).earlier_visits == 0


def test_rates_are_hits_over_exposure() -> None:
    """alpha = (H + 1) / (X + 1); watching from age 0 to 30 is an exposure of ln 2."""
    rates = ClassRates()
    rates.watched(3, 0, 30)
    assert rates.rates[3] == pytest.approx(1 / (log(2) + 1))
    rates.hit(3)
    assert rates.rates[3] == pytest.approx(2 / (log(2) + 1))
    rates.halve()
    assert rates.rates[3] == pytest.approx(1.5 / (log(2) / 2 + 1))


def test_value_by_hand() -> None:
    """Two states on a path: gaps 600 and 400, ages 2 and 0 after one resume from the deeper."""
    tree = ByHandle(Retention(slots=120))
    tree.admitted([], None)
    tree.grown(chain(600, 1000))
    tree.inserted("n600", Kind.BRANCH)
    tree.inserted("n1000", Kind.TAIL)
    tree.admitted([], None)
    tree.admitted(chain(600, 1000), "n1000")
    x = log(32 / 30)
    # the tail: one hit, watched from age 0 to 2; the branch: not asked for, not booked since
    # its first child came at age 0
    assert tree.value("n1000") == pytest.approx(400 * (2 / (1 + x)) / 30)
    assert tree.value("n600") == pytest.approx(600 * 1.0 / 32)
    tree.evicted("n600")
    assert tree.value("n1000") == pytest.approx(1000 * (2 / (1 + x)) / 30)


def test_inserting_between_splits_the_gap() -> None:
    """A state between two others takes part of the deeper one's gap and gives it back."""
    tree = ByHandle(Retention(slots=120, eviction="value"))
    tree.admitted([], None)
    tree.grown(chain(1000))
    tree.inserted("n1000", Kind.TAIL)
    tree.split("n700", 700, "n1000")
    tree.inserted("n700", Kind.GUESS)
    assert tree.value("n700") == pytest.approx(700 / 30)
    assert tree.value("n1000") == pytest.approx(300 / 30)
    tree.evicted("n700")
    assert tree.value("n1000") == pytest.approx(1000 / 30)


def test_a_split_passes_on_who_passed() -> None:
    """The upper half takes over passes and heat, and leads to what is live below."""
    tree = ByHandle(Retention(slots=4))
    tree.admitted([], None)
    tree.grown(chain(1000))
    tree.inserted("n1000", Kind.TAIL)
    tree.admitted(chain(1000), "n1000")
    tree.split("n400", 400, "n1000")
    upper, lower = tree.nodes["n400"], tree.nodes["n1000"]
    assert (upper.depth, upper.passes, upper.heat) == (400, 2, lower.heat)
    assert list(upper.live_fringe()) == [lower]
    tree.evicted("n1000")
    assert not upper.leads_to_live


def test_ghosts_count_as_hits_once_asked_for() -> None:
    """The deepest evicted state between restore and match is a hit for its class."""
    tree = ByHandle(Retention(slots=1))
    tree.admitted([], None)
    tree.grown(chain(100, 200))
    tree.inserted("n100", Kind.GUESS)
    tree.evicted("n100")
    assert tree.admitted(chain(100, 200), None).ghost_depth == 100
    assert tree.retention.rates.hits[class_of(Kind.GUESS, checkpoint_below=False, passes=1)]
    assert tree.admitted([], None).ghost_depth is None


def test_locked_and_excluded_are_never_chosen() -> None:
    """The victim is the least valuable of the others; None if there are none."""
    tree = ByHandle(Retention(slots=4))
    tree.admitted([], None)
    for depth in (64, 128, 192):
        tree.grown([(depth, depth)])
        tree.inserted(depth, Kind.BRANCH)
    assert tree.choose_victim() == 64
    assert tree.choose_victim(exclude=(64,)) == 128
    assert tree.choose_victim(exclude=(64,), locked=lambda h: h == 128) == 192
    assert tree.choose_victim(locked=lambda h: True) is None


def test_the_queue_makes_a_state_precious() -> None:
    """gap * (alpha / (b + age) + hits), hits 1 / (position + 1)."""
    a, b = Node(), Node()
    assert expected_hits([None, a, b, a]) == {a: 1 / 2 + 1 / 4, b: 1 / 3}
    tree = ByHandle(Retention(slots=4))
    tree.admitted([], None)
    for depth in (64, 128):
        tree.grown([(depth, depth)])
        tree.inserted(depth, Kind.BRANCH)
    assert tree.choose_victim(queue_hits={64: 0.5}) == 128


def test_forgetting_a_leaf_takes_state_and_ghost_along() -> None:
    """KV eviction leaves nothing behind."""
    tree = ByHandle(Retention(slots=2))
    tree.admitted([], None)
    tree.grown(chain(100, 200))
    tree.inserted("n200", Kind.TAIL)
    tree.forgotten("n200")
    assert (len(tree.retention), tree.retention.num_ghosts) == (0, 0)
    assert not tree.nodes["n100"].leads_to_live
    tree.inserted("n100", Kind.BRANCH)
    tree.evicted("n100")
    assert tree.retention.num_ghosts == 1
    tree.forgotten("n100")
    assert (len(tree.retention), tree.retention.num_ghosts) == (0, 0)


def test_a_flush_keeps_what_was_learnt() -> None:
    """The tree is empty afterwards, the rates are not."""
    tree = ByHandle(Retention(slots=2))
    tree.admitted([], None)
    tree.grown(chain(100))
    tree.inserted("n100", Kind.TAIL)
    tree.admitted(chain(100), "n100")
    tree.retention.flushed()
    assert len(tree.retention) == tree.retention.num_ghosts == 0
    assert sum(tree.retention.rates.hits) == 1.0


def test_lru_evicts_the_least_recently_used() -> None:
    """Ties of one request go to the one inserted first; a resume refreshes."""
    tree = ByHandle(Retention(slots=4, eviction="lru"))
    tree.admitted([], None)
    tree.grown(chain(100, 200))
    tree.inserted("n100", Kind.BRANCH)
    tree.inserted("n200", Kind.TAIL)
    assert tree.choose_victim() == "n100"
    tree.admitted(chain(100), "n100")
    assert tree.choose_victim() == "n200"


@pytest.mark.parametrize("bad", [0, -3])
def test_bad_pool_sizes_are_named(bad: int) -> None:
    with pytest.raises(ValueError, match=str(bad)):
        Retention(slots=bad)
    with pytest.raises(ValueError, match="fifo"):
        Retention(slots=1, eviction="fifo")


class Radix:
    """Marked prefixes, so that `Retention` sees radix nodes and splits like a server's."""

    def __init__(self, tree: ByHandle) -> None:
        self.tree, self.marked = tree, set[Prefix]()

    def path(self, prompt: Prefix, depth: int) -> list[tuple[Prefix, int]]:
        prefixes = [prompt[:d] for d in range(1, depth + 1)]
        return [(p, len(p) * BLOCK) for p in prefixes if p in self.marked]

    def mark(self, prefix: Prefix) -> None:
        if prefix in self.marked:
            return
        under = [m for m in self.marked if m[: len(prefix)] == prefix]
        self.marked.add(prefix)
        if under:
            self.tree.split(prefix, len(prefix) * BLOCK, min(under, key=len))


def random_prompt(rng: random.Random, old: list[Prefix]) -> Prefix:
    base: Prefix = rng.choice(old[-40:]) if old and rng.random() < 0.85 else ()
    kept = base[: rng.randint(0, len(base))]
    if base and rng.random() < 0.3:
        kept = base
    return (*kept, *(rng.randrange(10**6) for _ in range(rng.randint(1, 6))))


def one_request(
    rng: random.Random, tree: ByHandle, radix: Radix, twin: Twin, old: list[Prefix]
) -> None:
    prompt = random_prompt(rng, old)
    matched = max((d for d in range(len(prompt) + 1) if prompt[:d] in twin.passes), default=0)
    if matched:
        radix.mark(prompt[:matched])
    live = [d for d in range(1, matched + 1) if prompt[:d] in twin.live]
    restored = live[-1] if live else 0
    told = tree.admitted(radix.path(prompt, matched), prompt[:restored] or None)
    assert told.continues == twin.continues(prompt, matched, restored)
    assert (told.ghost_depth is not None) == twin.admit(prompt, matched, restored)
    radix.mark(prompt)
    tree.grown(radix.path(prompt, len(prompt)))
    depths = rng.sample(range(1, len(prompt) + 1), min(len(prompt), rng.randint(1, 3)))
    for depth in depths:
        prefix, kind = prompt[:depth], rng.choice(list(Kind))
        if prefix in twin.live:
            continue
        radix.mark(prefix)
        tree.inserted(prefix, kind)
        twin.insert(prefix, kind.value)
        waited_for = rng.sample(sorted(twin.live), min(len(twin.live), rng.randint(0, 2)))
        queued = dict.fromkeys(waited_for, 0.01)
        exclude = {prefix, prompt[:restored]}
        while len(twin.live) > twin.slots:
            victim = tree.choose_victim(exclude, queue_hits=queued)
            assert victim == twin.victim(exclude, queued)
            assert isinstance(victim, tuple)
            tree.evicted(victim)
            twin.evict(victim)
    old.append(prompt)


@pytest.mark.parametrize("slots", [3, 12, 40])
def test_two_thousand_requests_agree_with_the_twin(slots: int) -> None:
    """Every ghost hit, victim and value is the one that the definition gives."""
    rng = random.Random(slots)
    tree, twin = ByHandle(Retention(slots)), Twin(slots)
    radix, old = Radix(tree), list[Prefix]()
    guarded = 0
    for _ in range(2000):
        one_request(rng, tree, radix, twin, old)
        assert tree.retention.guard.share == pytest.approx(twin.share, abs=1e-12)
        guarded += twin.share > 0
    assert 100 < guarded < 1900  # both ways of choosing a victim were at work
    assert twin.live.keys() == {p for p in twin.live if tree.is_live(p)}
    for prefix in twin.live:
        assert tree.value(prefix) == pytest.approx(twin.value(prefix), rel=1e-9)
