"""Sources to a tokenizer, and to xz shards of 16-bit tokens with transcripts mixed in.

python -m models.recipe.corpus.tokens SOURCES CHAT_TEMPLATE OUT
"""

import json
import lzma
import re
import sys
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final

import numpy as np

from models.recipe.corpus.filters import HELD_OUT, strip_license, strip_spaces
from models.recipe.corpus.sources import Source
from models.recipe.corpus.transcripts import TOOLS, load_template, make_session

VOCAB_SIZE: Final = 8192
SPECIAL: Final = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
ADDED: Final = (
    *("<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>"),
    *("</tool_response>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>", "<|fim_pad|>"),
    *("<|repo_name|>", "<|file_sep|>"),
)
SPLIT: Final = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}"
    r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
TEST_FILE: Final = re.compile(
    r"(^|/)(tests?|testing|functional|unit)(/|$)|/test_[^/]*\.py$|_test\.py$"
)
TEST_SHARE, LICENSE_SHARE, CHAT_SHARE, INFILL_SHARE = 0.40, 0.1, 0.5, 0.04
NUM_PARTS: Final = 16
TOKENIZER_CHARS: Final = 70_000_000
FILTERS: Final[list[dict[str, int]]] = [
    {"id": lzma.FILTER_LZMA2, "preset": 9, "dict_size": 1 << 26, "lc": 0, "lp": 1, "pb": 1}
]


def select(folder: Path) -> list[Source]:
    """Return the sources to train on: no copies, fewer tests, few license heads."""
    seen: set[str] = set()
    chosen = []
    for path in sorted(folder.glob("*.jsonl")):
        for line in path.open():
            source = Source(**json.loads(line))
            random = Random(source.digest)
            if source.digest in seen or _is_refused(source.text):
                continue
            if TEST_FILE.search(source.path) and random.random() > TEST_SHARE:
                continue
            seen.add(source.digest)
            keeps_license = random.random() >= 1 - LICENSE_SHARE
            text = strip_spaces(source.text if keeps_license else strip_license(source.text))
            if len(text) >= 300:
                chosen.append(Source(source.digest, source.package, source.path, text))
    return chosen


def train_tokenizer(sources: list[Source], target: Path) -> None:
    """Train a byte-level BPE on a sample of the sources and save it."""
    from tokenizers import (
        AddedToken,
        Regex,
        Tokenizer,
        decoders,
        models,
        normalizers,
        pre_tokenizers,
        trainers,
    )

    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    split = pre_tokenizers.Split(Regex(SPLIT), behavior="isolated", invert=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, byte_level])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE - len(SPECIAL) - len(ADDED),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        min_frequency=3,
        show_progress=False,
        max_token_length=24,
    )
    tokenizer.train_from_iterator(_sample(sources), trainer)
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in SPECIAL])
    tokenizer.add_tokens([AddedToken(t, special=False, normalized=False) for t in ADDED])
    if tokenizer.get_vocab_size() != VOCAB_SIZE:
        raise ValueError(f"vocabulary has {tokenizer.get_vocab_size()} tokens, not {VOCAB_SIZE}")
    tokenizer.save(str(target))


def documents(source: Source, template: Any) -> list[str]:
    """Return the training texts made of one source: the file, and perhaps a transcript."""
    random = Random(source.digest + "x")
    draw, text = random.random(), source.text
    if draw < INFILL_SHARE and len(text) < 12_000:
        start = random.randrange(len(text))
        end = min(len(text), start + random.randrange(20, 1200))
        parts = ("<|fim_prefix|>", text[:start], "<|fim_suffix|>", text[end:], "<|fim_middle|>")
        made = ["".join(parts) + text[start:end]]
    else:
        made = [(f"<|file_sep|>{source.path}\n" if draw > 0.7 else "") + text]
    is_code = source.path.endswith(".py") and "/test" not in source.path
    if random.random() < CHAT_SHARE and is_code:
        turns = random.choice([1, 1, 2, 2, 3, 4])
        messages = make_session(random, source.path, text, turns)
        if messages:
            tools = TOOLS if random.random() < 0.75 else None
            chat = template(messages=messages, tools=tools)
            made += [chat] if len(chat) < 40_000 else []
    return made


def encode(index: int, sources: list[Source], template_path: Path, out: Path) -> int:
    """Write one shard; return its number of tokens."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(out / "hf" / "tokenizer.json"))
    template = load_template(template_path)
    end = tokenizer.token_to_id("<|endoftext|>")
    texts = [text for source in sources for text in documents(source, template)]
    ids: list[int] = []
    for first in range(0, len(texts), 256):
        for encoding in tokenizer.encode_batch_fast(texts[first : first + 256]):
            ids += [*encoding.ids, end]
    write_shard(out / "data" / f"train_{index:03d}.xz", ids)
    return len(ids)


def write_shard(path: Path, ids: list[int]) -> None:
    """Write tokens as little-endian 16-bit words in an xz file."""
    raw = np.array(ids, dtype="<u2").tobytes()
    path.write_bytes(lzma.compress(raw, format=lzma.FORMAT_XZ, filters=FILTERS))


def split_parts(sources: list[Source]) -> list[list[Source]]:
    """Return the sources in order, in parts of about equal size."""
    total, done = sum(len(source.text) for source in sources), 0
    parts: list[list[Source]] = [[] for _ in range(NUM_PARTS)]
    for source in sources:
        parts[min(NUM_PARTS - 1, done * NUM_PARTS // total)].append(source)
        done += len(source.text)
    return parts


def main(folder: Path, template: Path, out: Path) -> None:
    """Select, train the tokenizer unless there is one, and write the shards."""
    for name in ("data", "hf"):
        (out / name).mkdir(parents=True, exist_ok=True)
    sources = select(folder)
    if not (out / "hf" / "tokenizer.json").exists():
        train_tokenizer(sources, out / "hf" / "tokenizer.json")
    work = partial(encode, template_path=template, out=out)
    with ProcessPoolExecutor(2) as pool:
        print(sum(pool.map(work, range(NUM_PARTS), split_parts(sources))), "tokens")


def _is_refused(text: str) -> bool:
    return "General Public License" in text or text.lower().count(HELD_OUT) > 3


def _sample(sources: list[Source]) -> list[str]:
    order, total = list(sources), 0
    Random(0).shuffle(order)
    texts = []
    for source in order:
        texts.append(source.text)
        total += len(source.text)
        if total > TOKENIZER_CHARS:
            break
    return texts


if __name__ == "__main__":
    main(*(Path(argument) for argument in sys.argv[1:4]))
