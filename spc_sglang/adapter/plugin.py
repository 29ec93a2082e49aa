"""Entry point that SGLang calls in each of its processes."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from typing import Any

logger = logging.getLogger(__name__)

BACKEND = "spc"


def activate() -> None:
    """Register the backend's name; add launcher hooks only if the command line mentions us.

    Nothing else of the package is imported until the backend is asked for.

    `Engine` is patched through the class attribute it offers for that, and only in a process
    that has imported it.
    """
    from sglang.srt.mem_cache.registry import register_radix_cache_backend

    register_radix_cache_backend(BACKEND, build_cache)
    if mentions_backend(sys.argv[1:]):
        _hook_command_line(must_work=selects_backend(sys.argv[1:]))
    engine = sys.modules.get("sglang.srt.entrypoints.engine")
    if engine is not None:
        engine.Engine.server_args_class = staticmethod(_make_server_args)


def mentions_backend(argv: Sequence[str]) -> bool:
    """Whether a command line can select the backend or asks to see its flags.

    `--config` counts, since the file may hold the flags.
    """
    return any(
        argument in ("-h", "--help")
        or argument.split("=", 1)[0] in ("--radix-cache-backend", "--config")
        or argument.startswith("--spc-")
        for argument in argv
    )


def selects_backend(argv: Sequence[str]) -> bool:
    """Whether a command line names the backend or one of its flags itself."""
    return BACKEND in argv or any(
        argument == f"--radix-cache-backend={BACKEND}" or argument.startswith("--spc-")
        for argument in argv
    )


def _make_server_args(**keywords: Any) -> Any:
    """`Engine.server_args_class`: SGLang's own, unless our backend or keyword is given."""
    if keywords.get("radix_cache_backend") != BACKEND and not any(
        name.startswith("spc_") for name in keywords
    ):
        from sglang.srt.server_args import ServerArgs

        return ServerArgs(**keywords)
    from spc_sglang.adapter import command_line

    return command_line.make_server_args(**keywords)


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
    cache = radix_cache.create(context)
    if cache.capture_backend is not None:
        hooks.install([hooks.FORWARD[type(cache.capture_backend.backend).__name__]])
    elif cache.options.captures and cache.options.chunk_end == "on":
        hooks.install(hooks.CHUNK_END)
        logger.info("spc-sglang ends prefill chunks on planned depths; each costs a forward.")
    return cache
