"""How the demo starts its servers: the small model, the pools, and nothing that differs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from examples.demo.texts import DATA
from spc_sglang.adapter.cpu.models import FAMILIES, build_model
from spc_sglang.adapter.cpu.server import CpuServerConfig

ROOT = Path(__file__).resolve().parents[2]
MODELS = ROOT / ".cache" / "models"
DEFAULT_MODEL = "qwen3_5_medium"
QUICK_MODEL = "qwen3_5"
CHUNK_GRID = 64  # tokens between the states that the gated-delta kernels hand out
KV_POOL_TOKENS = 65536  # more than the whole workload: nothing is evicted for want of KV


@dataclass(frozen=True)
class DemoSettings:
    """One run of the demo; both servers get the same model and the same pools."""

    model: str = DEFAULT_MODEL
    pool_slots: int = 96  # recurrent states in the pool, of both servers
    block_tokens: int | None = None  # distance of our checkpoints; None: the default placement
    max_new_tokens: int = 8
    output: Path = ROOT / ".demo"  # logs and the picture
    data: Path = DATA  # public data sets, used as far as they are there
    quick: bool = False  # fewer requests, for the tests

    def __post_init__(self) -> None:
        if self.model not in FAMILIES:
            raise ValueError(f"model {self.model!r} is not one of {', '.join(FAMILIES)}")
        for name in ("pool_slots", "block_tokens", "max_new_tokens"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")

    @property
    def placement(self) -> str:
        """Where our server captures, in words."""
        if self.block_tokens is None:
            return "default placement and eviction"
        return f"a checkpoint every {self.block_tokens} tokens"

    def build_model(self) -> Path:
        """Make the model unless it is there; a second or two, up to a minute for the 0.8B."""
        return build_model(self.model, MODELS / self.model)

    def server(self, model_path: Path, *, backend: str | None, port: int = 0) -> CpuServerConfig:
        """A stock server for `backend` None, ours for "spc"; all else is equal."""
        own: tuple[str, ...] = ()
        if backend and self.block_tokens is not None:
            own = ("--spc-placement", "block", "--spc-block-tokens", str(self.block_tokens))
        return CpuServerConfig(
            model_path,
            port=port,
            max_total_tokens=KV_POOL_TOKENS,
            max_mamba_cache_size=self.pool_slots,
            max_running_requests=4,
            context_length=16384,
            radix_cache_backend=backend,
            extra_arguments=("--enable-cache-report", "--sleep-on-idle", *own),
        )
