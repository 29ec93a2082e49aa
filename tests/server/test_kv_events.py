"""A router that listens to SGLang's KV events knows what the cache holds, block by block."""

from __future__ import annotations

import json
import random
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zmq

from spc_sglang.adapter.cpu.models import build_model
from spc_sglang.adapter.cpu.server import CpuServerConfig, running_server
from tests.server.client import Client, tokens
from tests.server.scenarios import accounts_are_balanced
from tests.server.test_configurations import MODELS

pytestmark = pytest.mark.sglang

PAGE = 64
EVENT_LIMIT_S = 300.0
"""Events follow the answer within milliseconds: an event that has not come by then was not sent."""


@dataclass
class Router:
    """The blocks that events say are there: hash by the block above and its tokens."""

    socket: zmq.Socket[bytes]
    blocks: dict[tuple[int | None, tuple[int, ...]], int] = field(default_factory=dict)
    removed: int = 0

    def listen(self) -> None:
        """Take in one batch of events."""
        assert self.socket.poll(1000 * EVENT_LIMIT_S), "no event"
        _, _, payload = self.socket.recv_multipart()
        for event in msgspec.msgpack.decode(payload)[1]:
            getattr(self, event["type"])(event)

    def BlockStored(self, event: dict[str, Any]) -> None:
        above, ids = event["parent_block_hash"], event["token_ids"]
        for number, block in enumerate(event["block_hashes"]):
            text = tuple(ids[number * PAGE : (number + 1) * PAGE])
            assert len(text) == PAGE and (above is None or above in self.blocks.values())
            self.blocks[above, text] = above = block

    def BlockRemoved(self, event: dict[str, Any]) -> None:
        gone = set(event["block_hashes"])
        assert gone <= set(self.blocks.values()), "removed what was never stored"
        self.blocks = {key: block for key, block in self.blocks.items() if block not in gone}
        self.removed += len(gone)

    def AllBlocksCleared(self, event: dict[str, Any]) -> None:
        self.blocks.clear()

    def matched(self, prompt: list[int]) -> int:
        """Tokens of the prompt that the cache holds."""
        above, depth = None, 0
        while (block := self.blocks.get((above, tuple(prompt[depth : depth + PAGE])))) is not None:
            above, depth = block, depth + PAGE
        return depth


def test_a_router_predicts_every_match(tmp_path: Path) -> None:
    """Forks split nodes and KV is evicted; the blocks announced are the tokens matched."""
    endpoint = f"ipc://{tmp_path}/events"  # SGLang binds it
    config = CpuServerConfig(
        build_model("qwen3_5", MODELS / "qwen3_5-float32"),
        fork=True,
        page_size=PAGE,
        max_total_tokens=6144,
        max_mamba_cache_size=24,
        radix_cache_backend="spc",
        extra_arguments=(
            "--kv-events-config",
            json.dumps({"publisher": "zmq", "endpoint": endpoint}),
        ),
    )
    rng, earlier = random.Random(3), [tokens(700, seed=700)]
    with (
        running_server(config, tmp_path / "server.log") as handle,
        zmq.Context() as context,
        context.socket(zmq.SUB) as socket,
    ):
        socket.subscribe("")
        socket.connect(endpoint)
        client, router = Client(handle.base_url), Router(socket)
        first = time.monotonic()
        while not socket.poll(200):  # events before the subscription are lost
            assert time.monotonic() - first < EVENT_LIMIT_S, "no event"
            client.flush()
        foreseen, found = [], []
        for number in range(30):
            head = rng.choice(earlier[-6:])
            fork = PAGE * rng.randrange(len(head) // PAGE + 1)
            prompt = head[:fork] + tokens(rng.randrange(100, 400), seed=800 + number)
            earlier.append(prompt)
            foreseen.append(router.matched(prompt))
            before = client.report()["matched_tokens"]
            client.generate(prompt)
            found.append(client.report()["matched_tokens"] - before)
            listen_until(router, prompt)
        accounts_are_balanced(client)
        client.flush()
        while router.blocks:
            router.listen()
    assert found == foreseen
    assert sum(tokens > 0 for tokens in found) > 10 and router.removed > 10


def listen_until(router: Router, prompt: list[int]) -> None:
    """Events follow the answer; the last of a request stores the end of its text."""
    deadline = time.monotonic() + EVENT_LIMIT_S
    while router.matched(prompt) < len(prompt) // PAGE * PAGE:
        assert time.monotonic() < deadline
        router.listen()
