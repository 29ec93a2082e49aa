"""Command line, environment and life cycle of the server launcher, with a stand-in server."""

from __future__ import annotations

import os
import socket
import sys
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path

import pytest

from spc_sglang.adapter.cpu import server
from spc_sglang.adapter.cpu.server import (
    CpuServerConfig,
    ServerStartError,
    held_port,
    running_server,
)

ANSWERS = """
import http.server, subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print(child.pid, flush=True)
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


@dataclass(frozen=True)
class ScriptConfig(CpuServerConfig):
    """Starts a Python script instead of SGLang."""

    script: str = ANSWERS

    def command(self) -> list[str]:
        return [sys.executable, "-c", self.script, str(self.port)]


def test_command_spells_the_configuration() -> None:
    """Each field is one SGLang argument; flags carry no value; extras come last."""
    config = CpuServerConfig(
        Path("model"),
        port=31000,
        mamba_radix_cache_strategy="no_buffer",
        radix_cache_backend="spc",
        extra_arguments=("--spc-example", "1"),
    )
    text = " ".join(config.command())
    assert "-m sglang.launch_server --model-path model --device cpu" in text
    assert "--mamba-radix-cache-strategy no_buffer" in text
    assert "--disable-overlap-schedule --radix-cache-backend spc" in text
    assert text.endswith("--host 127.0.0.1 --port 31000 --spc-example 1")


def test_overlap_is_off_only_when_asked_or_impossible() -> None:
    """no_buffer cannot overlap; the other strategies do unless told not to."""
    assert "disable_overlap_schedule" not in CpuServerConfig(Path("m")).engine_kwargs()
    assert CpuServerConfig(Path("m"), overlap=False).engine_kwargs()["disable_overlap_schedule"]


def test_environment_follows_the_configuration() -> None:
    """The conv windows take the model's dtype; extras win over the defaults."""
    config = CpuServerConfig(
        Path("m"), dtype="bfloat16", num_threads=2, extra_environment={"HF_HUB_OFFLINE": "0"}
    )
    found = config.environment()
    assert found["SGLANG_USE_CPU_ENGINE"] == "1" and found["SGLANG_MAMBA_CONV_DTYPE"] == "bfloat16"
    assert found["OMP_NUM_THREADS"] == "2" and found["SGLANG_CPU_OMP_THREADS_BIND"] == "0-1"
    assert found["HF_HUB_OFFLINE"] == "0"
    assert found["SPC_CPU_FORK"] == "0"
    assert CpuServerConfig(Path("m"), fork=True).environment()["SPC_CPU_FORK"] == "1"


def test_wrong_values_are_refused() -> None:
    """An unknown strategy and a command line without a port name the value and the fix."""
    with pytest.raises(ValueError, match="'extra' is not one of no_buffer"):
        CpuServerConfig(Path("m"), mamba_radix_cache_strategy="extra")
    with pytest.raises(ValueError, match="held_port"):
        CpuServerConfig(Path("m")).command()


def test_a_held_port_is_the_servers() -> None:
    """Nobody else is given or can take the port, before the server listens there or after."""
    with held_port() as port, socket.socket() as other, socket.socket() as listening:
        with pytest.raises(OSError, match="in use"):
            other.bind(("127.0.0.1", port))
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(("127.0.0.1", port))
        listening.listen()
        with socket.create_connection(("127.0.0.1", port)) as client:
            accepted, _ = listening.accept()
            with accepted:
                accepted.sendall(b"here")
                assert client.recv(4) == b"here"


def test_the_whole_process_group_ends(tmp_path: Path) -> None:
    """A server is ready inside the block; after it neither it nor its children are left."""
    with running_server(ScriptConfig(Path("m")), tmp_path / "log") as handle:
        with urllib.request.urlopen(handle.base_url) as response:
            assert response.status == 200
        child = int(handle.log_path.read_text().split()[0])
        os.kill(child, 0)
    assert handle.process.poll() is not None
    deadline = time.monotonic() + 60
    while _is_running(child) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not _is_running(child)


def test_a_server_that_ends_is_reported_with_its_log(tmp_path: Path) -> None:
    """The error carries the exit code and what the server printed."""
    config = ScriptConfig(Path("m"), script="print('no model here'); raise SystemExit(3)")
    with (
        pytest.raises(ServerStartError, match=r"(?s)code 3.*no model here"),
        running_server(config, tmp_path / "log"),
    ):
        pass


def test_a_server_that_hangs_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Readiness has a limit."""
    monkeypatch.setattr(server, "READY_LIMIT_S", 0.5)
    config = ScriptConfig(Path("m"), script="import time; time.sleep(600)")
    with (
        pytest.raises(ServerStartError, match="not ready after"),
        running_server(config, tmp_path / "log"),
    ):
        pass


def _is_running(pid: int) -> bool:
    """Whether `pid` exists and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
