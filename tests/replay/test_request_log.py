"""SGLang's request logs, recorded from a CPU server of sglang 0.5.23 on a tiny Qwen3.5.

Each recording: (the warm-up,) two texts that share 193 tokens, one prompt of 140 ids, one chat,
one streamed completion, a batch of two, a batch of one, one text sampled twice, a health check and
one request given up by its client. One token a byte, ids from 4 on.
"""

from __future__ import annotations

import gzip
import json
import logging
from pathlib import Path
from typing import Any

import pytest

from spc_sglang.replay.contenders import CONTENDERS
from spc_sglang.replay.loaders import FORMATS, Source
from spc_sglang.replay.simulator import Simulator
from spc_sglang.replay.trace import Request, Trace

DATA = Path(__file__).parent / "data"
JSON, TEXT, EXPORTER = (DATA / f"sglang_{n}.log.gz" for n in ("json", "text", "exporter"))
# what the server answered in `cached_tokens`, request by request, on an empty cache
CACHED = [0, 0, 192, 0, 0, 0, 192, 192, 192, 192, 192, 192]


def read(*paths: Path, tokenizer: Path | None = None) -> list[Request]:
    return list(FORMATS["sglang"](Source(paths, tokenizer)))


def recorded(event: str = "request.finished") -> list[dict[str, Any]]:
    lines = gzip.decompress(JSON.read_bytes()).decode().split("\n")
    events = (json.loads(line.split("] ", 1)[1]) for line in lines if line)
    return [record for record in events if record["event"] == event]


def write(path: Path, *records: dict[str, Any]) -> Path:
    text = "".join(f"[2026-11-29 18:47:16] {json.dumps(record)}\n" for record in records)
    path.write_text("[2026-11-29 18:47:15] Prefill batch, #new-seq: 1\n" + text)
    return path


@pytest.fixture
def byte_tokenizer(tmp_path: Path) -> Path:
    """The tiny model's: four special tokens, then one token a byte."""
    tokenizers = pytest.importorskip("tokenizers", reason="reads a tokenizer.json")
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    names = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<unk>", *alphabet)
    model = tokenizers.models.BPE(vocab={name: i for i, name in enumerate(names)}, merges=[])
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    return tmp_path


def test_the_replay_resumes_what_the_server_did(byte_tokenizer: Path) -> None:
    """Stock SGLang's `cached_tokens`, by our model of stock SGLang, request by request."""
    found = [
        record["out"]["meta_info"]["cached_tokens"]
        for record in recorded()
        if "HEALTH_CHECK" not in record["rid"]
    ]
    assert found == CACHED
    trace = Trace.of(read(JSON, tokenizer=byte_tokenizer))
    outcome = Simulator(trace, CONTENDERS["sglang-8k"](64, trace)).run()
    assert outcome.resumed_tokens == CACHED


def test_all_three_forms_say_the_same(byte_tokenizer: Path) -> None:
    """The text log has no warm-up; sampled outputs differ from run to run, prompts do not."""
    by_json, by_text, exported = (
        [request.prompt for request in read(path, tokenizer=byte_tokenizer)]
        for path in (JSON, TEXT, EXPORTER)
    )
    assert len(by_json) == 12 and by_json[0] == []
    assert by_json == exported
    assert by_json[1:] == by_text


def test_what_is_left_out_is_told(byte_tokenizer: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The given-up request and the two parents of the samples have no answer of their own."""
    with caplog.at_level(logging.WARNING):
        read(JSON, tokenizer=byte_tokenizer)
        read(EXPORTER, tokenizer=byte_tokenizer)
    assert caplog.messages == [
        "3 request ids received but not finished left out",
        "12 outputs not logged in full, taken as empty",
    ]


def test_requests_come_by_arrival_whatever_the_files(tmp_path: Path) -> None:
    """Finished in the other order, in another file, between lines of the server's own."""
    first, second = recorded()[2:4]
    begun = [r for r in recorded("request.received") if r["rid"] in (first["rid"], second["rid"])]
    ends = write(tmp_path / "b.log", second, first)
    starts = write(tmp_path / "a.log", *begun)
    assert read(starts, ends) == read(write(tmp_path / "c.log", first, second))


def test_outputs_follow_and_namespaces_part(tmp_path: Path) -> None:
    """60 tokens of output end the third block; another `extra_key` shares nothing."""
    record = recorded()[4]
    answer = list(range(60))
    record["out"] |= {"output_ids": answer}
    record["out"]["meta_info"] |= {"completion_tokens": 60}
    salted = json.loads(json.dumps(record))
    salted["rid"] = salted["obj"]["rid"] = "other"
    salted["obj"]["extra_key"] = "tenant"
    one, two = read(write(tmp_path / "a.log", record, salted))
    assert (len(one.prompt), len(one.output)) == (2, 1)
    trace = Trace.of([one, two])
    assert trace.num_nodes == 6


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"text": None}, r"a\.log:2: neither text nor input_ids"),
        ({"text": "a" * 1024 + "..." + "b" * 1024}, r"a\.log:2: the prompt is cut"),
        ({"input_ids": [1] * 1024 + ["..."] + [2] * 1024}, r"a\.log:2: the prompt is cut"),
    ],
)
def test_logs_of_lower_levels_are_refused(
    tmp_path: Path, change: dict[str, Any], complaint: str
) -> None:
    record = recorded()[0]
    record["obj"] |= change
    with pytest.raises(ValueError, match=complaint + ".*level 3"):
        read(write(tmp_path / "a.log", record))


def test_cut_text_lines_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    line = "Finish: obj=GenerateReqInput(rid='r', text='a' ... 'b', input_ids=None), out={}"
    path.write_text(f"[2026-11-29 18:47:15] {line}\n")
    with pytest.raises(ValueError, match=r"a\.log:1: text cannot be read"):
        read(path)
    path.write_text(f"[2026-11-29 18:47:15] {line[:50]}\n")
    with pytest.raises(ValueError, match=r"a\.log:1: the line ends"):
        read(path)


def test_text_and_ids_need_a_tokenizer(tmp_path: Path) -> None:
    """One token a byte cannot be compared with ids."""
    with pytest.raises(ValueError, match="give --tokenizer"):
        read(JSON)


def test_broken_and_empty_logs_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_text('[2026-11-29 18:47:15] {"timestamp": "2026\n')
    with pytest.raises(ValueError, match=r"a\.log:1: not JSON"):
        read(path)
    path.write_text("[2026-11-29 18:47:15] The server is fired up and ready to roll!\n")
    with pytest.raises(ValueError, match=r"a\.log: no finished request"):
        read(path)
