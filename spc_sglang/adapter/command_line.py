"""Launcher side: our flags on SGLang's parser and our keywords on `sglang.Engine`."""

from __future__ import annotations

import argparse
import os
from typing import Any

from spc_sglang.adapter import compatibility, options
from spc_sglang.adapter.plugin import BACKEND


def after_add_cli_args(result: Any, parser: argparse.ArgumentParser) -> None:
    """AFTER `ServerArgs.add_cli_args(parser)`."""
    options.add_arguments(parser)


def after_from_cli_args(result: Any, cls: type, args: argparse.Namespace) -> None:
    """AFTER `ServerArgs.from_cli_args(args)`: one sentence and exit status 2 on a bad value."""
    given = options.given_flags(args)
    try:
        if result.radix_cache_backend == BACKEND:
            compatibility.before_load(result)
            chosen = options.from_texts(given, os.environ)
            compatibility.check_state_file(result, chosen.state)
            options.attach(result, chosen)
        elif given:
            flag = next(option.flag for option in options.OPTIONS if option.name in given)
            raise ValueError(f"{flag} needs --radix-cache-backend spc: add it or drop the flag.")
    except ValueError as error:
        raise SystemExit(f"spc-sglang: {error}") from None


def make_server_args(**keywords: Any) -> Any:
    """`Engine.server_args_class`: takes our `spc_*` keywords beside SGLang's own.

    Raises ValueError for an unknown or bad `spc_*` keyword, or one without the backend.
    """
    from sglang.srt.server_args import ServerArgs

    own = {name: keywords.pop(name) for name in list(keywords) if name.startswith("spc_")}
    server_args = ServerArgs(**keywords)
    if server_args.radix_cache_backend != BACKEND:
        if own:
            raise ValueError(f"{next(iter(own))} needs radix_cache_backend='spc'")
        return server_args
    compatibility.before_load(server_args)
    chosen = options.from_keywords(
        {name.removeprefix("spc_"): value for name, value in own.items()}, os.environ
    )
    compatibility.check_state_file(server_args, chosen.state)
    options.attach(server_args, chosen)
    return server_args
