"""`serve --record`: off by default, only its owner's, and a replay can read it."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.replay.corpus import load_corpus
from services.client import Client
from tests.service.front import running
from tests.service.small import small_engine


def test_recorded_requests_are_what_a_replay_reads(byte_model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "record"
    with (
        running(small_engine(byte_model), record=folder) as server,
        Client(server.target) as client,
    ):
        asked = {"max_tokens": 6, "seed": 3, "ignore_eos": True}
        unary = client.generate("first", **asked)
        list(client.stream([104, 105], **asked))
        cut = client.stream("cancelled", max_tokens=900, ignore_eos=True)
        next(cut)
        cut.close()
    (file,) = folder.iterdir()
    assert (folder.stat().st_mode & 0o777, file.stat().st_mode & 0o777) == (0o700, 0o600)
    lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    assert [line["request"]["prompt"] for line in lines] == ["first", "hi"]
    assert lines[0]["choices"][0]["token_ids"] == list(unary.token_ids)
    assert lines[0]["choices"][0]["text"] == unary.text
    read = load_corpus(file, byte_model, 0)
    assert [request.token_ids for request in read] == [tuple(b"first"), (104, 105)]


def test_nothing_is_recorded_unasked(byte_model: Path, tmp_path: Path) -> None:
    with running(small_engine(byte_model)) as server, Client(server.target) as client:
        client.generate("private", max_tokens=2)
        assert server.server.options.record is None
    assert list(tmp_path.iterdir()) == []
