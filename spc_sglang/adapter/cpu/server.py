"""Start an SGLang server on the CPU, for tests, the demo and benchmarks.

with running_server(CpuServerConfig(model_path), Path("server.log")) as server:
    requests.post(server.base_url + "/generate", json=...)
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from spc_sglang.adapter.cpu.stubs import FORK_VARIABLE

READY_LIMIT_S = 900.0
"""For a server that hangs; a slow machine under load takes minutes to import everything."""
STOP_LIMIT_S = 2.0
LOG_TAIL_LINES = 40
_PR_SET_PDEATHSIG = 1  # linux/prctl.h
STRATEGIES = ("no_buffer", "extra_buffer", "extra_buffer_lazy")


@dataclass(frozen=True)
class CpuServerConfig:
    """How to start a server; the defaults suit the tiny models on two cores."""

    model_path: Path
    port: int = 0  # 0: a free one
    dtype: str = "float32"  # of weights, KV cache and conv windows; the SSM state is fp32
    max_total_tokens: int = 16384  # KV pool
    max_mamba_cache_size: int = 64  # recurrent state slots
    max_running_requests: int = 6
    context_length: int = 8192
    chunked_prefill_size: int | None = None  # None: SGLang's default
    page_size: int = 1
    mamba_radix_cache_strategy: str = "extra_buffer"
    mamba_track_interval: int = 64
    overlap: bool = True  # overlap schedule; no_buffer does not support it and gets none
    radix_cache_backend: str | None = None  # None: stock, "spc": ours
    fork: bool = False  # SGLang's processes inherit the imports: half the start-up time
    num_threads: int = 1  # OpenMP; more than one can slow decode twenty-fold on shared cores
    log_level: str = "info"
    extra_arguments: tuple[str, ...] = ()
    extra_environment: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.mamba_radix_cache_strategy not in STRATEGIES:
            raise ValueError(
                f"mamba_radix_cache_strategy {self.mamba_radix_cache_strategy!r} is not one of "
                f"{', '.join(STRATEGIES)}"
            )

    def engine_kwargs(self) -> dict[str, object]:
        """Keyword arguments of sglang.Engine; its process needs `environment()` from its start."""
        kwargs: dict[str, object] = {
            "model_path": str(self.model_path),
            "device": "cpu",
            "attention_backend": "torch_native",
            "dtype": self.dtype,
            "max_total_tokens": self.max_total_tokens,
            "max_mamba_cache_size": self.max_mamba_cache_size,
            "max_running_requests": self.max_running_requests,
            "context_length": self.context_length,
            "page_size": self.page_size,
            "mamba_radix_cache_strategy": self.mamba_radix_cache_strategy,
            "mamba_track_interval": self.mamba_track_interval,
            "log_level": self.log_level,
        }
        if self.chunked_prefill_size is not None:
            kwargs["chunked_prefill_size"] = self.chunked_prefill_size
        if not self.overlap or self.mamba_radix_cache_strategy == "no_buffer":
            kwargs["disable_overlap_schedule"] = True
        if self.radix_cache_backend is not None:
            kwargs["radix_cache_backend"] = self.radix_cache_backend
        return kwargs

    def command(self) -> list[str]:
        """The server's command line; `port` must not be 0 here."""
        if self.port == 0:
            raise ValueError("port 0 has no command line: hold one with held_port()")
        arguments = [sys.executable, "-m", "sglang.launch_server"]
        for name, value in self.engine_kwargs().items():
            arguments.append("--" + name.replace("_", "-"))
            if value is not True:
                arguments.append(str(value))
        arguments += ["--host", "127.0.0.1", "--port", str(self.port)]
        return [*arguments, *self.extra_arguments]

    def environment(self) -> dict[str, str]:
        """This process's environment plus what SGLang needs on a CPU."""
        return {
            **os.environ,
            "SGLANG_USE_CPU_ENGINE": "1",
            "SGLANG_MAMBA_CONV_DTYPE": self.dtype,
            "SGLANG_CPU_OMP_THREADS_BIND": f"0-{self.num_threads - 1}",
            "OMP_NUM_THREADS": str(self.num_threads),
            # large prefill tensors stay in the heap instead of being mapped anew every layer
            "MALLOC_MMAP_MAX_": "0",
            "MALLOC_TRIM_THRESHOLD_": "100000000000",
            "MALLOC_TOP_PAD_": "268435456",
            FORK_VARIABLE: str(int(self.fork)),
            "HF_HUB_OFFLINE": "1",
            "TRANSFORMERS_OFFLINE": "1",
            # the working directory must not shadow an installed package
            "PYTHONSAFEPATH": "1",
            **self.extra_environment,
        }


@dataclass(frozen=True)
class ServerHandle:
    """A running server."""

    base_url: str  # http://127.0.0.1:PORT
    process: subprocess.Popen[bytes]
    log_path: Path


class ServerStartError(RuntimeError):
    """The server ended or was not ready in time; the message ends with its last log lines."""


@contextmanager
def running_server(config: CpuServerConfig, log_path: Path) -> Iterator[ServerHandle]:
    """A ready server; its output goes to `log_path` and its whole process group ends on exit.

    Raises ServerStartError if it ends before it is ready, or is not ready within READY_LIMIT_S.
    """
    log_path.parent.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        if config.port == 0:
            config = replace(config, port=stack.enter_context(held_port()))
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        log = stack.enter_context(log_path.open("wb"))
        process = subprocess.Popen(
            config.command(),
            env=config.environment(),
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=_die_with_parent,
        )
        try:
            handle = ServerHandle(f"http://127.0.0.1:{config.port}", process, log_path)
            _wait_until_ready(handle)
            yield handle
        finally:
            _stop(process)


@contextmanager
def held_port() -> Iterator[int]:
    """A free port of the loopback interface that only a server told of it takes inside the block.

    Between a look for a free port and the server's own bind, minutes on a slow machine, the
    kernel may give the port to any other socket. A bound socket that never listens keeps it
    from that, while SO_REUSEADDR, which SGLang's server sets too, lets one server listen there.
    """
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", 0))
        port: int = holder.getsockname()[1]
        yield port


def _die_with_parent() -> None:
    """In the new process: end when this one does, even if it is killed and cannot clean up.

    SGLang's own processes do the same with their launcher, so the whole tree ends.
    """
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _wait_until_ready(handle: ServerHandle) -> None:
    deadline = time.monotonic() + READY_LIMIT_S
    while time.monotonic() < deadline:
        if handle.process.poll() is not None:
            raise _start_error(f"the server ended with code {handle.process.returncode}", handle)
        try:
            with urllib.request.urlopen(handle.base_url + "/health", timeout=10) as response:
                if response.status == 200:
                    return
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            pass
        time.sleep(0.25)
    raise _start_error(f"the server was not ready after {READY_LIMIT_S:.0f} s", handle)


def _start_error(what: str, handle: ServerHandle) -> ServerStartError:
    lines = handle.log_path.read_text(errors="replace").splitlines()[-LOG_TAIL_LINES:]
    return ServerStartError("\n".join([f"{what}; the end of {handle.log_path}:", *lines]))


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End the process group: schedulers and detokenizers outlive a server that is only killed."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            break
        try:
            process.wait(STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            continue
    process.wait()
