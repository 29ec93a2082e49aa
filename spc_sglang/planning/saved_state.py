"""What a policy learnt, in a file: class rates and observed laws, never states.

JSON with a version; written next to the target and moved over it, so that a reader sees the old
file or the new one. A damaged or foreign file is refused with a ValueError that says so; whether
to start fresh then is the caller's decision.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from spc_sglang.planning.presets import Policy

FORMAT = "spc-sglang learned statistics"
VERSION = 2


def save(path: Path, policy: Policy) -> None:
    """Write the statistics of `policy`, atomically."""
    rates = policy.retention.rates
    state = {
        "format": FORMAT,
        "version": VERSION,
        "hits": rates.hits,
        "exposure": rates.exposure,
        "observations": policy.observations.state(),
    }
    beside = path.with_name(f"{path.name}.{os.getpid()}.new")
    try:
        with open(beside, "w", encoding="utf-8") as stream:
            json.dump(state, stream)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)


def load(path: Path, policy: Policy) -> None:
    """Let `policy` continue from a file; on ValueError it is unchanged."""
    state = _read(path)
    fresh = type(policy.observations)(policy.observations.from_end.gamma)
    try:
        fresh.load(state["observations"])
        policy.retention.rates.load(state["hits"], state["exposure"])
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise ValueError(
            f"{path}: damaged statistics ({error}); remove it to start fresh"
        ) from None
    policy.observations.load(state["observations"])


def _read(path: Path) -> dict[str, Any]:
    try:
        state = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(
            f"{path}: damaged statistics ({error}); remove it to start fresh"
        ) from None
    if not isinstance(state, dict) or state.get("format") != FORMAT:
        raise ValueError(f"{path}: not a file of learned statistics; remove it to start fresh")
    if state.get("version") != VERSION:
        raise ValueError(
            f"{path}: version {state.get('version')!r} of learned statistics, this is {VERSION}"
        )
    return state
