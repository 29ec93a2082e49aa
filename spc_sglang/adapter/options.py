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

from spc_sglang.planning.presets import PLACEMENTS, PolicyOptions
from spc_sglang.planning.presets import PRESETS as POLICIES
from spc_sglang.planning.retention import EVICTIONS

_ATTRIBUTE = "_spc_options"
_PREFIX = "SPC_SGLANG_"
_READ_BY: dict[str, tuple[str, ...]] = {
    "block_tokens": ("block",),
    "checkpoints": ("learned", "dp", "balanced", "log"),
    "gamma": ("learned", "dp"),
}


_OURS, _PAPER = POLICIES["spc"], POLICIES["paper"]


@dataclass(frozen=True)
class SpcOptions:
    """Validated options; every field is one row of `OPTIONS`."""

    preset: str = "spc"
    placement: str = _OURS.placement
    eviction: str = _OURS.eviction
    checkpoints: int = _OURS.checkpoints
    block_tokens: int = _OURS.block_tokens
    gamma: float = _OURS.gamma
    state: str = ""
    state_pass: str = "off"
    chunk_end: str = "off"

    def __post_init__(self) -> None:
        for option in OPTIONS:
            option.check(getattr(self, option.name))

    @property
    def captures(self) -> bool:
        """Whether we capture checkpoints of our own."""
        return self.preset != "stock"

    def policy(self) -> PolicyOptions:
        """The same for the planning layer."""
        return PolicyOptions(
            placement=self.placement,
            eviction=self.eviction,
            checkpoints=self.checkpoints,
            gamma=self.gamma,
            block_tokens=self.block_tokens,
            ends=_PAPER.ends if self.preset == "paper" else _OURS.ends,
            slack=self.placement in ("learned", "ladder") and self.eviction == "value",
        )


PRESETS: dict[str, dict[str, Any]] = {
    "spc": {},
    "paper": {
        name: getattr(_PAPER, name) for name in ("placement", "eviction", "checkpoints", "gamma")
    },
    "stock": {"placement": "none", "eviction": "lru"},
}
"""What each preset fixes; a flag that says something else is refused."""


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
        return _PREFIX + self.name.upper()

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


def _between(least: int, most: int) -> Callable[[Any], None]:
    def check(value: Any) -> None:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise ValueError(f"must be an integer in {least}..{most}, got {value!r}")

    return check


def _is_text(value: Any) -> None:
    if not isinstance(value, str):
        raise ValueError(f"must be a path, got {value!r}")


def _integer(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"must be an integer, got {text!r}") from None


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"must be a number, got {text!r}") from None


def _unit_interval(value: Any) -> None:
    if not isinstance(value, float) or not 0.0 < value <= 1.0:
        raise ValueError(f"must lie in (0, 1], got {value!r}")


OPTIONS: tuple[Option, ...] = (
    Option(
        "preset",
        str,
        _choice(*PRESETS),
        "'spc' = our defaults; 'paper' = the published recipe (dp placement, 4 checkpoints, LRU); "
        "'stock' = SGLang's own tracking and LRU, only counted.",
        "{spc,paper,stock}",
    ),
    Option(
        "placement",
        str,
        _choice(*PLACEMENTS),
        "Where checkpoints are captured inside a prompt, beside its end and the branch point: "
        "'learned' = the exact dynamic program on the observed distances from the prompt end; "
        "'ladder' = one guess 1,024 tokens before it; 'dp' = the exact program on absolute "
        "depths; 'balanced', 'log' = M positions; 'sqrt', 'block' = fixed steps; 'none'.",
        "NAME",
    ),
    Option(
        "eviction",
        str,
        _choice(*EVICTIONS),
        "Which state goes when the pool is full: 'value' = the one expected to save least; 'lru'.",
        "{value,lru}",
    ),
    Option(
        "checkpoints",
        _integer,
        _between(1, 64),
        "M, checkpoints inside a prompt for placements learned, dp, balanced and log.",
        "M",
    ),
    Option(
        "block_tokens",
        _integer,
        _between(1, 1 << 20),
        "Step of placement 'block' in tokens; rounded down to the kernel's chunk grid (64).",
        "N",
    ),
    Option(
        "gamma",
        _number,
        _unit_interval,
        "Discount per request of the observed overlap depths, for 'learned' and 'dp'.",
        "G",
    ),
    Option(
        "state",
        str,
        _is_text,
        "File that keeps the learned statistics (never states) across restarts; empty = none.",
        "PATH",
    ),
    Option(
        "state_pass",
        str,
        _choice("off", "on"),
        "'on' = where SGLang's Triton prefill rounds the states inside a forward, run our own "
        "kernel in its place, which stores them as computed. Not yet run on a GPU.",
        "{off,on}",
    ),
    Option(
        "chunk_end",
        str,
        _choice("off", "on"),
        "'on' = where no state can be captured inside a forward, end prefill chunks on the planned "
        "depths instead; each costs one forward more.",
        "{off,on}",
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
            help=f"{option.help} Default: {option.default or 'none'}. "
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
    _refuse_unknown(environment)
    preset = values.get("preset", SpcOptions.preset)
    for name, fixed in PRESETS[preset].items():
        if values.setdefault(name, fixed) != fixed:
            raise ValueError(
                f"preset {preset} fixes {name} to {fixed}, got {values[name]}: drop one of the two"
            )
    chosen = SpcOptions(**values)
    _refuse_unused(values, chosen)
    return chosen


def _refuse_unknown(environment: Mapping[str, str]) -> None:
    known = {option.environment for option in OPTIONS}
    for name in environment:
        if name.startswith(_PREFIX) and name not in known:
            raise ValueError(f"{name} is not an option; known: {', '.join(sorted(known))}")


def _refuse_unused(given: Mapping[str, Any], chosen: SpcOptions) -> None:
    """An option that the chosen placement does not read was meant otherwise."""
    for name, placements in _READ_BY.items():
        if name in given and chosen.placement not in placements:
            raise ValueError(
                f"{name} has no effect with placement {chosen.placement}: drop it or use "
                f"placement {' or '.join(placements)}"
            )


def from_keywords(keywords: Mapping[str, Any], environment: Mapping[str, str]) -> SpcOptions:
    """Options from `Engine` keywords without their `spc_` prefix, then the environment."""
    known = {option.name for option in OPTIONS}
    unknown = sorted(set(keywords) - known)
    if unknown:
        raise ValueError(
            f"unknown option spc_{unknown[0]}; known: "
            + ", ".join(f"spc_{n}" for n in sorted(known))
        )
    given = {name: str(value) for name, value in keywords.items() if value is not None}
    return from_texts(given, environment)


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
