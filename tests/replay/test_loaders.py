"""Each format on a tiny file, and errors that name file and line."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from spc_sglang.replay.loaders import FORMATS, Source
from spc_sglang.replay.loaders.tokens import encoder
from spc_sglang.replay.loaders.weka import load as load_weka
from spc_sglang.replay.trace import Request, Trace


def read(form: str, *paths: Path, seed: int = 0) -> list[Request]:
    return list(FORMATS[form](Source(paths, seed=seed)))


def shared_blocks(first: Request, second: Request) -> int:
    both = zip(first.prompt, second.prompt, strict=False)
    return next(
        (i for i, (a, b) in enumerate(both) if a != b), min(len(first.prompt), len(second.prompt))
    )


def write_lines(path: Path, records: list[object], *, zipped: bool = False) -> Path:
    text = "".join(json.dumps(record) + "\n" for record in records)
    path.write_bytes(gzip.compress(text.encode()) if zipped else text.encode())
    return path


@pytest.mark.parametrize("zipped", [False, True])
def test_mooncake_blocks_of_512(tmp_path: Path, zipped: bool) -> None:
    """1,000 tokens are 15 whole blocks of 64; a shared id is eight of them."""
    records: list[object] = [
        {"timestamp": 0, "input_length": 1000, "output_length": 5, "hash_ids": [0, 1]},
        {"timestamp": 0, "input_length": 1025, "output_length": 5, "hash_ids": [0, 2, 3]},
    ]
    first, second = read("mooncake", write_lines(tmp_path / "m.jsonl", records, zipped=zipped))
    assert (len(first.prompt), len(second.prompt)) == (15, 16)
    assert shared_blocks(first, second) == 8


def test_mooncake_errors_name_the_line(tmp_path: Path) -> None:
    good = {"input_length": 10, "hash_ids": [0]}
    path = write_lines(tmp_path / "m.jsonl", [good, {"input_length": -1, "hash_ids": []}])
    with pytest.raises(ValueError, match=r"m\.jsonl:2: input_length is -1"):
        read("mooncake", path)
    path.write_text('{"input_length": 10, "hash_ids": [0]}\n{broken\n')
    with pytest.raises(ValueError, match=r"m\.jsonl:2: not JSON"):
        read("mooncake", path)


def session(*entries: object) -> dict[str, object]:
    return {"id": "s", "block_size": 64, "hash_id_scope": "local", "requests": list(entries)}


def turn(time: float, *hashes: int) -> dict[str, object]:
    return {"t": time, "type": "n", "in": 64 * len(hashes) + 1, "out": 9, "hash_ids": hashes}


def test_weka_sub_agents_and_namespaces(tmp_path: Path) -> None:
    """A sub-agent's turns come in by time and share ids with their session, not with others."""
    nested = {"type": "subagent", "t": 1.0, "requests": [turn(1.5, 1, 7), turn(5.0, 1, 8)]}
    one, two = tmp_path / "a.json", tmp_path / "b.json"
    one.write_text(json.dumps(session(turn(0.0, 1, 2), nested, turn(3.0, 1, 2, 3))))
    two.write_text(json.dumps(session(turn(2.0, 1, 2))))
    trace = Trace.of(read("weka", one, two))
    assert [path.tolist() for path in trace.paths] == [[0, 1], [0, 2], [3, 4], [0, 1, 5], [0, 6]]
    in_turn = Trace.of(load_weka([one, two], sessions_at_once=1))
    assert in_turn.paths[-1].tolist() == [5, 6]


def test_weka_errors_name_the_entry(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps(session(turn(0.0, 1), {"t": "soon", "in": 1, "hash_ids": []})))
    with pytest.raises(ValueError, match=r"a\.json: requests\[1\]: t is 'soon'"):
        read("weka", path)


def test_text_by_time_with_outputs(tmp_path: Path) -> None:
    """One token a byte; the output goes on where the prompt ends; records come by timestamp."""
    later = {"timestamp": 2, "input": "x" * 150 + "y" * 100, "output": "", "session_id": "s"}
    first = {"timestamp": 1, "input": "x" * 150, "output": "z" * 60, "session_id": "s"}
    one, two = read("text", write_lines(tmp_path / "t.jsonl", [later, first]))
    assert (len(one.prompt), len(one.output), len(two.prompt)) == (2, 1, 3)
    assert shared_blocks(one, two) == 2


def test_chat_messages(tmp_path: Path) -> None:
    """The next turn repeats the earlier prompt and answer."""
    history = [{"role": "user", "content": "a" * 200}, {"role": "assistant", "content": "b" * 200}]
    again = [*history, {"role": "user", "content": "c" * 100}]
    path = write_lines(tmp_path / "c.jsonl", [{"messages": history}, {"messages": again}])
    trace = Trace.of(read("text", path))
    matched = (trace.paths[1][: trace.prompt_blocks[1]] < len(trace.paths[0])).sum()
    assert matched * 64 > 380
    with pytest.raises(ValueError, match=r"c\.jsonl:1: message 5"):
        read("text", write_lines(tmp_path / "c.jsonl", [{"messages": [5]}]))


def test_quality_both_forms(tmp_path: Path) -> None:
    """Questions share their article; order depends on the seed alone."""
    new = {"article": "a" * 640, "questions": [{"question": "q" * 70}, {"question": "r" * 70}]}
    old = {"article": ["b" * 300, "b" * 340], "question1": "s" * 70, "question1option1": "t"}
    path = write_lines(tmp_path / "q.jsonl", [new, old])
    found = read("quality", path)
    assert len(found) == 3
    assert found == read("quality", path)
    trace = Trace.of(found)
    assert trace.num_nodes == 10 + 1 + 1 + 10 + 1
    with pytest.raises(ValueError, match=r"q\.jsonl:1: no `questions`"):
        read("quality", write_lines(tmp_path / "q.jsonl", [{"article": "a"}]))


def test_narrativeqa(tmp_path: Path) -> None:
    (tmp_path / "tmp").mkdir()
    (tmp_path / "tmp" / "d1.content").write_text("story " * 100)
    (tmp_path / "qaps.csv").write_text("document_id,set,question\nd1,test,who?\nd1,test,why?\n")
    first, second = read("narrativeqa", tmp_path)
    assert shared_blocks(first, second) == 9
    (tmp_path / "qaps.csv").write_text("document_id,set,question\nd2,test,who?\n")
    with pytest.raises(ValueError, match=r"qaps\.csv:2: no text"):
        read("narrativeqa", tmp_path)


def test_prompts_and_queries(tmp_path: Path) -> None:
    """Eight requests a text; revisions of one prompt in order; queries from a ShareGPT file."""
    texts: list[object] = [
        {"prompt": "p", "revision": n, "text": "start " * 20 + f"v{n}"} for n in (0, 1)
    ]
    path = write_lines(tmp_path / "r.jsonl", texts)
    queries = tmp_path / "sharegpt.json"
    turns = [{"from": "human", "value": "hello"}, {"from": "gpt", "value": "hi"}]
    queries.write_text(json.dumps([{"conversations": turns}]))
    requests = read("prompts", path, queries)
    assert len(requests) == 16
    assert len(Trace.of(requests).paths[0]) == 2
    assert len(Trace.of(read("prompts", path)).paths[0]) > 10


def test_tokenizer_directory(tmp_path: Path) -> None:
    """A Hugging Face `tokenizer.json`; a folder without one is refused."""
    with pytest.raises(ValueError, match=r"no tokenizer\.json"):
        encoder(tmp_path)
    tokenizers = pytest.importorskip("tokenizers", reason="reads a tokenizer.json")
    model = tokenizers.models.WordLevel({"a": 0, "b": 1, "?": 2}, unk_token="?")
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    assert encoder(tmp_path)("a b c") == [0, 1, 2]
