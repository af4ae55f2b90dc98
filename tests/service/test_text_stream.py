"""Fault kind 14: text in chunks, whatever bytes the tokens stand for."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from services.client import Client
from services.contract import pb
from services.gateway.text import Detokenizer
from tests.service.front import RunningServer
from tests.service.small import EOS

gen = pb.generation_pb2
CJK, EMOJI = tuple("日".encode()), tuple("😀".encode())
ANY = {"temperature": 100.0, "top_p": 1.0, "top_k": 0, "ignore_eos": True}
FORCED = {"temperature": 1.0, "ignore_eos": True}


@pytest.fixture
def client(small_server: RunningServer) -> Iterator[Client]:
    with Client(small_server.target) as connected:
        yield connected


@pytest.mark.parametrize(("alphabet", "seed"), [(CJK, 8), (EMOJI, 14)], ids=["cjk", "emoji"])
def test_chunks_of_any_size_join_to_the_whole_text(
    small_server: RunningServer, client: Client, alphabet: tuple[int, ...], seed: int
) -> None:
    options = dict(ANY, allowed_token_ids=alphabet, max_tokens=72, seed=seed)
    whole = client.generate("split", **options)
    assert whole.text == small_server.engine.codec.decode(whole.token_ids)
    assert bytes(alphabet).decode() in whole.text, "a character is made of split tokens"
    for interval in range(1, 9):
        parts = list(client.stream("split", stream_interval=interval, **options))
        assert "".join(part.text for part in parts) == whole.text
        assert sum((part.token_ids for part in parts), ()) == whole.token_ids
        chunks = [len(part.token_ids) for part in parts if part.token_ids]
        assert all(size >= interval for size in chunks[:-1])


@pytest.mark.parametrize("cut", [1, 2, 3])
def test_a_prompt_cut_inside_a_character_does_not_leak_into_the_answer(
    small_server: RunningServer, client: Client, cut: int
) -> None:
    prompt = [*b"secret prompt ", *EMOJI[:cut]]
    rest = {"allowed_token_ids": EMOJI[cut:], "max_tokens": 12, "seed": 1}
    parts = list(client.stream(prompt, **{**ANY, **rest}))
    text = "".join(part.text for part in parts)
    ids = sum((part.token_ids for part in parts), ())
    assert text == small_server.engine.codec.decode(ids)
    assert "secret" not in text and "😀" not in text


def test_the_prompt_is_part_of_the_text_only_when_echoed(client: Client) -> None:
    """The control: the leak that the test above looks for, asked for."""
    echoed = client.generate("secret prompt ", max_tokens=4, echo=True, seed=1)
    assert echoed.text.startswith("secret prompt ")


def test_lone_bytes_come_out_as_they_are_drawn(client: Client) -> None:
    sent = shown = 0
    for part in client.stream("lone", logit_bias={0xF0: 100.0}, max_tokens=900, **FORCED):
        sent, shown = sent + len(part.token_ids), shown + len(part.text)
        assert sent - shown <= 1, "one incomplete character may be held back, not more"
    assert sent == 900 and shown == 900


def test_lone_bytes_take_time_in_proportion(small_server: RunningServer) -> None:
    def seconds(count: int) -> float:
        detokenizer, begun = Detokenizer(small_server.engine.codec, False), time.process_time()
        for _ in range(count):
            detokenizer.push(0xF0)
        return time.process_time() - begun

    seconds(4000)
    short = min(seconds(4000) for _ in range(3))
    assert min(seconds(32_000) for _ in range(3)) < 3 * 8 * short


@pytest.mark.parametrize("interval", [1, 3, 8])
def test_special_tokens_are_text_only_where_asked(client: Client, interval: int) -> None:
    options = {"logit_bias": {EOS: 100.0}, "max_tokens": 5, "stream_interval": interval}
    hidden = client.stream("special", **FORCED, **options)
    assert "".join(part.text for part in hidden) == ""
    shown = client.stream("special", skip_special_tokens=False, **FORCED, **options)
    assert "".join(part.text for part in shown) == "<|end|>" * 5
