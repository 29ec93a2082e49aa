"""Every example once, on the small CPU model: the demo, and the three programs of a user."""

from __future__ import annotations

import itertools
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from examples.demo.settings import QUICK_MODEL, ROOT, DemoSettings
from spc_sglang.adapter.cpu.server import ServerHandle, running_server
from tests.limits import HANG_LIMIT_S

pytestmark = pytest.mark.sglang
SUMS = ("requests", "prompt_tokens", "matched_tokens")
RESUMED = re.compile(r"resumed (\d+) of (\d+) prompt tokens")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerHandle]:
    """Our server with the tiny model, as `python -m examples.demo --serve` starts it."""
    settings = DemoSettings(model=QUICK_MODEL)
    config = settings.server(settings.build_model(), backend="spc")
    with running_server(config, tmp_path_factory.mktemp("server") / "server.log") as handle:
        yield handle


def test_demo_ends_with_the_comparison(tmp_path: Path) -> None:
    """Same answers, less recomputed, consistent sums, a picture, and it needs no data set."""
    folder = str(tmp_path)
    output = _run("-m", "examples.demo", "--quick", "--data", folder, "--output", folder)
    lines = output.splitlines()
    result = json.loads(lines[-1])
    stock, ours = result["stock"], result["spc"]
    assert result["outputs_identical"] is True
    assert all(stock[name] == ours[name] for name in SUMS)
    assert ours["captures"] > 0
    assert 2 * ours["recomputed_tokens"] <= stock["recomputed_tokens"]
    for side in (stock, ours):
        assert side["recomputed_tokens"] == side["matched_tokens"] - side["resumed_tokens"]
        assert side["prefilled_tokens"] == side["prompt_tokens"] - side["resumed_tokens"]
        for name in (*SUMS, "resumed_tokens", "captures"):
            assert side[name] == sum(group[name] for group in side["groups"].values())
    assert (tmp_path / "checkpoints.png").stat().st_size > 10_000
    assert not any(line.startswith("note:") for line in lines)


def test_offline_batch_resumes_inside_the_document() -> None:
    """The questions after the first resume close to the document's end."""
    first, *others = _resumed(_run("examples/offline_engine.py", "--cpu"))
    assert first[0] == 0
    assert len(others) == 3
    for resumed, prompt in others:
        assert prompt - 640 < resumed < prompt


def test_frontend_forks_resume_inside_the_document(server: ServerHandle) -> None:
    """The document is read once: each fork resumes close to its end."""
    output = _run("-m", "examples.frontend_fork", "--base-url", server.base_url)
    assert len(_resumed(output)) == 4
    for resumed, prompt in _resumed(output):
        assert prompt - 256 < resumed < prompt


def test_openai_chat_resumes_the_conversation(server: ServerHandle) -> None:
    """Every turn but the first resumes within a chunk of the previous turn's end."""
    turns = _resumed(_run("-m", "examples.openai_chat", "--base-url", server.base_url))
    assert len(turns) == 4
    for (_, previous), (resumed, _) in itertools.pairwise(turns):
        assert resumed > previous - 64


def _resumed(output: str) -> list[tuple[int, int]]:
    """(resumed, prompt) tokens of each request that a program printed."""
    return [(int(resumed), int(prompt)) for resumed, prompt in RESUMED.findall(output)]


def _run(*arguments: str) -> str:
    """Standard output of a program run with this Python; fails with what it wrote.

    The variable lets `import sglang` work without a GPU, as the examples' docstrings say.
    """
    # `make` keeps the working directory off sys.path, where a user's shell has it
    environment = dict(os.environ, PYTHONPATH=str(ROOT))
    if "examples.frontend_fork" in arguments:
        environment["SGLANG_USE_CPU_ENGINE"] = "1"
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=HANG_LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, f"{arguments}\n{done.stdout}\n{done.stderr}"
    return done.stdout
