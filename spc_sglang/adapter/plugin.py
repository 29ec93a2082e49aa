"""Entry point that SGLang calls in each of its processes."""

from __future__ import annotations

import logging
import sys
from typing import Any

from spc_sglang.adapter.options import BACKEND

logger = logging.getLogger(__name__)


def activate() -> None:
    """Register the backend's name; add launcher hooks only if the command line mentions us.

    `Engine` is patched through the class attribute it offers for that, and only in a process
    that has imported it.
    """
    from sglang.srt.mem_cache.registry import register_radix_cache_backend

    register_radix_cache_backend(BACKEND, build_cache)
    from spc_sglang.adapter import command_line

    if command_line.mentions_backend(sys.argv[1:]):
        _hook_command_line(must_work=command_line.selects_backend(sys.argv[1:]))
    engine = sys.modules.get("sglang.srt.entrypoints.engine")
    if engine is not None:
        engine.Engine.server_args_class = staticmethod(command_line.make_server_args)


def _hook_command_line(*, must_work: bool) -> None:
    from spc_sglang.adapter import compatibility, hooks

    try:
        compatibility.check_version()
        hooks.install(hooks.COMMAND_LINE)
    except compatibility.Unsupported as error:
        if must_work:  # SGLang logs and ignores an Exception of a plugin, but not this one
            raise SystemExit(f"spc-sglang: {error}") from None
        logger.warning("spc-sglang is inactive: %s", error)


def build_cache(context: Any) -> Any:
    """Radix-cache factory: check, hook the scheduler, build the cache.

    `context` is SGLang's `TreeCacheBuildContext`. Raises `Unsupported` with one sentence.
    """
    from spc_sglang.adapter import compatibility, hooks, radix_cache

    compatibility.before_load(context.server_args)
    compatibility.after_load(context)
    hooks.install(hooks.SCHEDULER)
    return radix_cache.create(context)
