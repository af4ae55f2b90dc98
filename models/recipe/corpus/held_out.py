"""Held-out text of one package: two disjoint request corpora, and two token streams.

python -m models.recipe.corpus.held_out WHEEL TOKENIZER_FOLDER OUT
"""

import hashlib
import json
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Final

from models.recipe.corpus.filters import clean_source, strip_license, strip_spaces
from models.recipe.corpus.functions import find_functions
from models.recipe.corpus.tokens import write_shard
from models.recipe.corpus.transcripts import SYSTEM, TOOLS, Message, load_template, make_session

GROUPS: Final = {
    "astropy_a": ("astropy/modeling/", "astropy/timeseries/", "astropy/table/"),
    "astropy_b": ("astropy/coordinates/", "astropy/io/fits/", "astropy/nddata/"),
}
NUM_CONVERSATIONS, NUM_REQUESTS, STREAM_TOKENS = 7, 43, 270_000
MIN_PROMPT, MAX_PROMPT = 1000, 8000


@dataclass(frozen=True, slots=True)
class Conversation:
    """Hold a conversation and the (message index, prompt tokens) where a request may be cut."""

    file: str
    messages: list[Message]
    cuts: list[tuple[int, int]]


class Renderer:
    """Render and count with the checkpoint's own template and tokenizer."""

    def __init__(self, folder: Path) -> None:
        from tokenizers import Tokenizer

        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._template = load_template(folder / "chat_template.jinja")
        self.end = self._tokenizer.token_to_id("<|endoftext|>")

    def encode(self, text: str) -> list[int]:
        """Return the tokens of a text."""
        ids: list[int] = self._tokenizer.encode(text).ids
        return ids

    def encode_chat(self, messages: list[Message], is_prompt: bool) -> list[int]:
        """Return the tokens of a conversation, as a prompt or as it stands."""
        text = self._template(messages=messages, tools=TOOLS, add_generation_prompt=is_prompt)
        return self.encode(text)


def read_package(wheel: Path) -> dict[str, str]:
    """Return the cleaned sources of a wheel by path, tests and bundled packages left out."""
    files = {}
    with zipfile.ZipFile(wheel) as archive:
        for name in sorted(archive.namelist()):
            if not name.endswith(".py") or "/extern/" in name or "/tests/" in name:
                continue
            text = clean_source(archive.read(name))
            if text:
                files[name] = strip_spaces(strip_license(text))
    return files


def conversations(name: str, files: dict[str, str], renderer: Renderer) -> list[Conversation]:
    """Return seven long conversations about files of one group."""
    random = Random(name)
    paths = [path for path in sorted(files) if path.startswith(GROUPS[name])]
    paths = [p for p in paths if len(files[p]) > 4000 and len(find_functions(files[p])) >= 8]
    random.shuffle(paths)
    found: list[Conversation] = []
    asked: set[str] = set()
    for path in paths:
        messages = make_session(random, path, files[path], 40, think_share=0.25, max_lines=120)
        if not messages:
            continue
        if messages[0]["role"] != "system":
            messages.insert(0, {"role": "system", "content": SYSTEM[0]})
        first = next(m["content"] for m in messages if m["role"] == "user")
        cuts = _cuts(messages, renderer)
        if first not in asked and len(cuts) >= 12 and cuts[-1][1] > 5000:
            asked.add(first)
            found.append(Conversation(path, messages, cuts))
        if len(found) == NUM_CONVERSATIONS:
            break
    return found


def requests(name: str, chats: list[Conversation], renderer: Renderer) -> list[dict[str, Any]]:
    """Return 43 requests cut from conversations, shared out by their lengths."""
    total = sum(len(chat.cuts) for chat in chats)
    shares = [NUM_REQUESTS * len(chat.cuts) / total for chat in chats]
    counts = [int(share) for share in shares]
    by_rest = sorted(range(len(chats)), key=lambda i: counts[i] - shares[i])
    for index in by_rest[: NUM_REQUESTS - sum(counts)]:
        counts[index] += 1
    rows = []
    for number, (chat, count) in enumerate(zip(chats, counts, strict=True)):
        step = (len(chat.cuts) - 1) / max(1, count - 1)
        for cut, prompt_tokens in (chat.cuts[round(j * step)] for j in range(count)):
            whole = len(renderer.encode_chat(chat.messages[: cut + 1], is_prompt=False))
            rows.append(
                {
                    "id": f"{name}-{number}-{cut:03d}",
                    "conversation": f"{name}-{number}",
                    "file": chat.file,
                    "prompt_tokens": prompt_tokens,
                    "request": {"messages": as_sent(chat.messages[:cut]), "tools": TOOLS},
                    "reference": as_sent(chat.messages[: cut + 1])[-1],
                    "reference_tokens": whole - prompt_tokens,
                }
            )
    return rows


def as_sent(messages: list[Message]) -> list[Message]:
    """Return messages as clients send them: string arguments and call ids."""
    sent, num_calls = [], 0
    for message in messages:
        message = dict(message)
        if message.get("tool_calls"):
            num_calls += 1
            function = message["tool_calls"][0]["function"]
            call = {"name": function["name"], "arguments": json.dumps(function["arguments"])}
            message["tool_calls"] = [
                {"id": f"call_{num_calls:03d}", "type": "function", "function": call}
            ]
        elif message["role"] == "tool":
            message["tool_call_id"] = f"call_{num_calls:03d}"
        sent.append(message)
    return sent


def streams(files: dict[str, str], renderer: Renderer) -> dict[str, list[int]]:
    """Return token streams of the files themselves and of short conversations about them."""
    random, order = Random(11), sorted(files)
    random.shuffle(order)
    code: list[int] = []
    chat: list[int] = []
    for path in order:
        if len(code) < STREAM_TOKENS:
            code += [*renderer.encode(files[path]), renderer.end]
        messages = make_session(random, path, files[path], random.choice([2, 3, 4, 6]))
        if messages and len(chat) < STREAM_TOKENS:
            chat += [*renderer.encode_chat(messages, is_prompt=False), renderer.end]
    return {"code": code[:STREAM_TOKENS], "chat": chat[:STREAM_TOKENS]}


def main(wheel: Path, tokenizer: Path, out: Path) -> None:
    """Write both corpora with their manifest, and both streams."""
    for name in ("eval", "data"):
        (out / name).mkdir(parents=True, exist_ok=True)
    renderer, files = Renderer(tokenizer), read_package(wheel)
    manifest = {}
    for name in GROUPS:
        chats = conversations(name, files, renderer)
        lines = [json.dumps(row) + "\n" for row in requests(name, chats, renderer)]
        raw = "".join(lines).encode()
        (out / "eval" / f"{name}.jsonl").write_bytes(raw)
        digest = hashlib.sha256(raw).hexdigest()
        chosen = [chat.file for chat in chats]
        manifest[name] = {"requests": len(lines), "files": chosen, "sha256": digest}
    (out / "eval" / "manifest.json").write_text(json.dumps(manifest, indent=1))
    for name, ids in streams(files, renderer).items():
        write_shard(out / "data" / f"val_{name}.xz", ids)


def _cuts(messages: list[Message], renderer: Renderer) -> list[tuple[int, int]]:
    cuts = []
    for index, message in enumerate(messages):
        if message["role"] == "assistant":
            count = len(renderer.encode_chat(messages[:index], is_prompt=True))
            if count > MAX_PROMPT:
                break
            if count >= MIN_PROMPT:
                cuts.append((index, count))
    return cuts


if __name__ == "__main__":
    main(*(Path(argument) for argument in sys.argv[1:4]))
