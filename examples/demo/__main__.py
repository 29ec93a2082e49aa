"""Serve a hybrid model twice over the same requests, stock and with our backend, and compare.

    python -m examples.demo
    python -m examples.demo --quick
    python -m examples.demo --serve --port 30000      # keep our server running for the examples

Prints the table, writes a picture, and ends with one JSON object. Exit status 1 if an answer
differs between the two servers.
"""

from __future__ import annotations

import argparse
import json
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from examples.demo.header import format_header
from examples.demo.measure import Encode, Run, run_workload
from examples.demo.picture import draw
from examples.demo.settings import (
    CHUNK_GRID,
    DEFAULT_MODEL,
    KV_POOL_TOKENS,
    QUICK_MODEL,
    DemoSettings,
)
from examples.demo.summary import as_json, compare, format_table, summarize
from examples.demo.texts import load_texts
from examples.demo.workload import Request, build_workload
from spc_sglang.adapter.cpu.models import FAMILIES
from spc_sglang.adapter.cpu.server import running_server


def run_demo(settings: DemoSettings) -> int:
    """The whole comparison; returns the exit status."""
    print(format_header())
    model_path = settings.build_model()
    texts = load_texts(settings.data)
    requests = build_workload(texts, quick=settings.quick)
    print(
        f"model: {settings.model}, random weights, fp32; pools of both servers: "
        f"{settings.pool_slots} states, {KV_POOL_TOKENS} tokens; "
        f"spc: {settings.placement}\n"
        f"load: {len(requests)} requests, one client, one pass; text: {texts.source}",
        flush=True,
    )
    encode = _load_encoder(model_path)
    stock = _serve_and_run(settings, model_path, None, requests, encode)
    ours = _serve_and_run(settings, model_path, "spc", requests, encode)
    return _report(settings, stock, ours)


def _serve_and_run(
    settings: DemoSettings,
    model_path: Path,
    backend: str | None,
    requests: Sequence[Request],
    encode: Encode,
) -> Run:
    name = backend or "stock"
    print(f"\n{name}: starting the server (about half a minute)", flush=True)
    log_path = settings.output / f"server_{name}.log"
    with running_server(settings.server(model_path, backend=backend), log_path) as server:
        return run_workload(
            server.base_url,
            requests,
            encode,
            max_new_tokens=settings.max_new_tokens,
            report=lambda line: print(line, flush=True),
        )


def _report(settings: DemoSettings, stock: Run, ours: Run) -> int:
    agreement = compare(stock, ours)
    print(
        f"\noutputs identical: {'yes' if agreement.identical else 'NO'} "
        f"(token ids of {len(ours.measurements)} answers; "
        f"largest logprob difference {agreement.max_logprob_difference:.1e})"
    )
    for name in agreement.differing:
        print(f"  differs: {name}")
    if agreement.identical:
        print(f"\n{format_table(stock, ours)}\n")
        _print_checks(settings, stock, ours)
    print(json.dumps(as_json(stock, ours, agreement)))
    return 0 if agreement.identical else 1


def _print_checks(settings: DemoSettings, stock: Run, ours: Run) -> None:
    """The saving, how the figures were checked, and the picture."""
    chunk_size = int(ours.server_info["chunked_prefill_size"])
    stock_lost = summarize(stock.measurements).recomputed_tokens
    own_lost = summarize(ours.measurements).recomputed_tokens
    print(
        f"recomputed matched tokens: {stock_lost:,} stock, {own_lost:,} spc: "
        f"{stock_lost / max(own_lost, 1):.1f} times fewer (prefill chunks of {chunk_size})"
    )
    assert ours.distinct_tokens < KV_POOL_TOKENS, "the KV pool is too small for this workload"
    print(_matched_check(ours))
    path = settings.output / "checkpoints.png"
    draw(stock, ours, path)
    print(f"picture: {path}")


def _matched_check(ours: Run) -> str:
    """The client's matched tokens beside the server's, and why they may differ."""
    gaps = [m.matched_tokens - (m.own_matched_tokens or 0) for m in ours.measurements]
    matched = sum(m.matched_tokens for m in ours.measurements)
    text = (
        f"matched KV tokens: {matched:,} by the client's record of all tokens, "
        f"{matched - sum(gaps):,} by the spc server's counters; "
        f"KV pool {ours.distinct_tokens / KV_POOL_TOKENS:.0%} used\n"
    )
    if any(not 0 <= gap < CHUNK_GRID for gap in gaps):
        return text + (
            "note: these differ by more than the tail of a request: evicting the state of a "
            "prompt's end gives up its KV too (more --pool-slots or --block-tokens)"
        )
    return text + (
        f"  ({sum(map(bool, gaps))} requests follow an earlier one to its end, where SGLang keeps "
        f"the KV only up to the last state, up to {CHUNK_GRID - 1} tokens before that end)"
    )


def serve(settings: DemoSettings, port: int) -> None:
    """Keep our server running until Ctrl-C."""
    config = settings.server(settings.build_model(), backend="spc", port=port)
    print("starting the server (about half a minute)", flush=True)
    log_path = settings.output / "server_spc.log"
    with running_server(config, log_path) as server, suppress(KeyboardInterrupt):
        print(f"ready: {server.base_url} (Ctrl-C ends it; log: {log_path})", flush=True)
        threading.Event().wait()


def _load_encoder(model_path: Path) -> Encode:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(model_path / "tokenizer.json"))
    return lambda text: tokenizer.encode(text).ids


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    defaults = DemoSettings()
    parser = argparse.ArgumentParser(
        prog="python -m examples.demo", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--model", help=f"{' or '.join(FAMILIES)}; default: {defaults.model}")
    parser.add_argument("--pool-slots", type=int, default=defaults.pool_slots, metavar="N")
    parser.add_argument(
        "--block-tokens",
        type=int,
        default=defaults.block_tokens,
        metavar="N",
        help="a checkpoint every N tokens instead of the backend's default placement",
    )
    parser.add_argument("--output", type=Path, default=defaults.output, metavar="DIR")
    parser.add_argument("--data", type=Path, default=defaults.data, metavar="DIR")
    parser.add_argument("--quick", action="store_true", help="fewer requests, a tiny model")
    parser.add_argument("--serve", action="store_true", help="only keep an spc server running")
    parser.add_argument("--port", type=int, default=30000, help="with --serve; 0: a free one")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; returns the exit status."""
    given = _parse(arguments)
    try:
        settings = DemoSettings(
            model=given.model or (QUICK_MODEL if given.quick else DEFAULT_MODEL),
            pool_slots=given.pool_slots,
            block_tokens=given.block_tokens,
            output=given.output,
            data=given.data,
            quick=given.quick,
        )
    except ValueError as error:
        raise SystemExit(f"examples.demo: {error}") from None
    if given.serve:
        serve(settings, given.port)
        return 0
    return run_demo(settings)


if __name__ == "__main__":
    raise SystemExit(main())
