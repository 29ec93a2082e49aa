"""Options of the backend: command-line flags, `Engine` keywords and environment variables.

One table, `OPTIONS`, is the single home of names, types, defaults and help. A flag wins over
its environment variable, which wins over the default. The validated result travels to every
scheduler process as a private attribute of `ServerArgs` (it survives pickling).
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

BACKEND = "spc"
_ATTRIBUTE = "_spc_options"


@dataclass(frozen=True, slots=True)
class SpcOptions:
    """Validated options; every field is one row of `OPTIONS`."""

    placement: str = "block"
    block_tokens: int = 512
    capture: bool = True

    def __post_init__(self) -> None:
        for option in OPTIONS:
            option.check(getattr(self, option.name))


@dataclass(frozen=True, slots=True)
class Option:
    """One option: `--spc-<name>` on the command line, `spc_<name>=` for `Engine`."""

    name: str
    parse: Callable[[str], Any]
    check: Callable[[Any], None]
    help: str
    metavar: str | None = None

    @property
    def flag(self) -> str:
        return "--spc-" + self.name.replace("_", "-")

    @property
    def environment(self) -> str:
        return "SPC_SGLANG_" + self.name.upper()

    @property
    def default(self) -> Any:
        return next(f.default for f in fields(SpcOptions) if f.name == self.name)

    def read(self, text: str, source: str) -> Any:
        """Parse and check one value; ValueError names the source and the value."""
        try:
            value = self.parse(text)
            self.check(value)
        except ValueError as error:
            raise ValueError(f"{source}: {error}") from None
        return value


def _choice(*allowed: str) -> Callable[[Any], None]:
    def check(value: Any) -> None:
        if value not in allowed:
            raise ValueError(f"must be one of {', '.join(allowed)}, got {value!r}")

    return check


def _at_least(minimum: int) -> Callable[[Any], None]:
    def check(value: Any) -> None:
        if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
            raise ValueError(f"must be an integer of at least {minimum}, got {value!r}")

    return check


def _integer(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"must be an integer, got {text!r}") from None


def _boolean(text: str) -> bool:
    words = {"1": True, "true": True, "on": True, "0": False, "false": False, "off": False}
    if text.lower() not in words:
        raise ValueError(f"must be on or off, got {text!r}")
    return words[text.lower()]


def _is_boolean(value: Any) -> None:
    if not isinstance(value, bool):
        raise ValueError(f"must be on or off, got {value!r}")


OPTIONS: tuple[Option, ...] = (
    Option(
        "placement",
        str,
        _choice("block", "none"),
        "Where checkpoints are captured during a prefill: 'block' = at the branch point, the "
        "prompt end and every --spc-block-tokens tokens; 'none' = branch point and prompt end.",
        "{block,none}",
    ),
    Option(
        "block_tokens",
        _integer,
        _at_least(1),
        "Distance between captured checkpoints in tokens of absolute depth; rounded down to the "
        "kernel's chunk grid (64).",
        "N",
    ),
    Option(
        "capture",
        _boolean,
        _is_boolean,
        "Capture checkpoints of our own; 'off' leaves SGLang's tracking as it is and only counts.",
        "{on,off}",
    ),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add one flag per option, unset by default so that the environment can speak."""
    group = parser.add_argument_group(
        "Sparse prefix checkpoints (spc-sglang)",
        "Used with --radix-cache-backend spc. Each flag can also be set by the environment.",
    )
    for option in OPTIONS:
        group.add_argument(
            option.flag,
            dest="spc_" + option.name,
            metavar=option.metavar,
            default=None,
            help=f"{option.help} Default: {_spell(option.default)}. "
            f"Environment: {option.environment}.",
        )


def from_texts(texts: Mapping[str, str | None], environment: Mapping[str, str]) -> SpcOptions:
    """Options from flag texts by option name (None = not given), then the environment."""
    values = {}
    for option in OPTIONS:
        text, source = texts.get(option.name), option.flag
        if text is None:
            text, source = environment.get(option.environment), option.environment
        if text is not None:
            values[option.name] = option.read(text, source)
    return SpcOptions(**values)


def from_keywords(keywords: Mapping[str, Any], environment: Mapping[str, str]) -> SpcOptions:
    """Options from `Engine` keywords without their `spc_` prefix, then the environment."""
    known = {option.name for option in OPTIONS}
    unknown = sorted(set(keywords) - known)
    if unknown:
        raise ValueError(
            f"unknown option spc_{unknown[0]}; known: "
            + ", ".join(f"spc_{n}" for n in sorted(known))
        )
    return from_texts({name: _spell(value) for name, value in keywords.items()}, environment)


def given_flags(namespace: argparse.Namespace) -> dict[str, str]:
    """Flag texts that the command line holds, by option name."""
    texts = {option.name: getattr(namespace, "spc_" + option.name, None) for option in OPTIONS}
    return {name: text for name, text in texts.items() if text is not None}


def attach(server_args: Any, options: SpcOptions) -> None:
    """Put the options on a `ServerArgs`; only underscore names are open on that record."""
    setattr(server_args, _ATTRIBUTE, asdict(options))


def attached(server_args: Any) -> SpcOptions:
    """The options of a `ServerArgs`; from the environment alone if none were attached."""
    values = getattr(server_args, _ATTRIBUTE, None)
    return from_texts({}, os.environ) if values is None else SpcOptions(**values)


def _spell(value: Any) -> str:
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else str(value)
