"""Token ids to text and back: tokenizer, incremental detokenisation, stop strings."""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tokenizers import Tokenizer

from services.contract.errors import CheckpointError


def _byte_of_char() -> dict[str, int]:
    """Map each character of the byte-level alphabet to the byte it stands for."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    table = {chr(byte): byte for byte in printable}
    rest = (byte for byte in range(256) if byte not in set(printable))
    table.update({chr(256 + index): byte for index, byte in enumerate(rest)})
    return table


_BYTE_OF_CHAR = _byte_of_char()


@dataclass(frozen=True)
class TextCodec:
    """A checkpoint's byte-level tokenizer.

    Args    tokenizer: as loaded from tokenizer.json; added: content by id of the added
            tokens; special: ids of the added tokens marked special.
    """

    tokenizer: Tokenizer
    added: dict[int, str]
    special: frozenset[int]

    @classmethod
    def load(cls, folder: Path) -> TextCodec:
        """Read tokenizer.json of a checkpoint folder.

        Raises  CheckpointError if it is missing or not byte-level.
        """
        path = folder / "tokenizer.json"
        if not path.is_file():
            raise CheckpointError("MISSING_TOKENIZER", f"{path.name} is missing from {folder.name}")
        raw = json.loads(path.read_text(encoding="utf-8"))
        if (raw.get("decoder") or {}).get("type") != "ByteLevel":
            raise CheckpointError(
                "TOKENIZER_KIND", f"{path.name}: the decoder is not ByteLevel; use such a tokenizer"
            )
        added = raw.get("added_tokens", [])
        return cls(
            tokenizer=Tokenizer.from_file(str(path)),
            added={int(token["id"]): str(token["content"]) for token in added},
            special=frozenset(int(token["id"]) for token in added if token["special"]),
        )

    @cached_property
    def vocab_size(self) -> int:
        """Number of ids that stand for text."""
        return int(self.tokenizer.get_vocab_size(with_added_tokens=True))

    @cached_property
    def longest_token_bytes(self) -> int:
        """Most bytes that one id stands for."""
        return max(len(self.bytes_of(token)) for token in range(self.vocab_size))

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text in which control-token literals are control tokens."""
        # A batch of one lets other threads run meanwhile; `encode` does not.
        return list(self.tokenizer.encode_batch_fast([text], add_special_tokens=False)[0].ids)

    def encode_plain(self, text: str) -> list[int]:
        """Return the ids of a text in which no literal becomes a control token."""
        return self.encode_marked(*mark_literals(text, self.added.values()))

    def encode_marked(self, text: str, marker: str) -> list[int]:
        """Return the ids of a text whose marked literals stay plain text."""
        pieces = text.split(marker) if marker else [text]
        return [token for piece in pieces if piece for token in self.encode(piece)]

    def bytes_of(self, token: int) -> bytes:
        """Return the bytes one id stands for; none for ids beyond the vocabulary."""
        if token in self.added:
            return self.added[token].encode()
        piece = self.tokenizer.id_to_token(token) or ""
        return bytes(_BYTE_OF_CHAR[char] for char in piece)

    def decode(self, tokens: Iterable[int], skip_special: bool = True) -> str:
        """Return the text of ids; invalid UTF-8 becomes U+FFFD."""
        kept = (t for t in tokens if not (skip_special and t in self.special))
        return b"".join(map(self.bytes_of, kept)).decode("utf-8", errors="replace")


def mark_literals(text: str, literals: Iterable[str], marker: str = "") -> tuple[str, str]:
    """Put a marker behind the first character of every literal that occurs in a text.

    Returns the marked text and the marker, a private-use character run that the text
    does not hold. Encoding the pieces between markers cannot form a literal.
    """
    while not marker or marker in text:
        marker += "\uf8f1"
    for literal in sorted(set(literals), key=len, reverse=True):
        text = text.replace(literal, literal[0] + marker + literal[1:])
    return text, marker


class Detokenizer:
    """Turns one sequence's ids into text, holding back incomplete UTF-8.

    Numbers linear time; the pieces joined equal `TextCodec.decode` of all ids.
    """

    def __init__(self, codec: TextCodec, skip_special: bool) -> None:
        self._codec = codec
        self._skip = codec.special if skip_special else frozenset()
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def push(self, token: int) -> str:
        """Return the text that one more id completes."""
        if token in self._skip:
            return ""
        return self._decoder.decode(self._codec.bytes_of(token))

    def flush(self) -> str:
        """Return what an incomplete end decodes to."""
        return self._decoder.decode(b"", final=True)


class StopMatcher:
    """Finds the first stop string in a growing text and holds back possible beginnings."""

    def __init__(self, stops: Sequence[str], include_stop: bool) -> None:
        self._stops = tuple(stops)
        self._include = include_stop
        self._held = ""
        self.matched: str | None = None

    def push(self, text: str) -> str:
        """Return the text that may be shown now; sets `matched` at a stop string.

        The stop string that ends first wins; of those, the one that begins first.
        """
        self._held += text
        found = [
            (at + len(stop), at, stop) for stop in self._stops if (at := self._held.find(stop)) >= 0
        ]
        if found:
            end, start, self.matched = min(found)
            shown, self._held = self._held[: end if self._include else start], ""
            return shown
        keep = self._tail_that_may_begin_a_stop()
        cut = len(self._held) - keep
        shown, self._held = self._held[:cut], self._held[cut:]
        return shown

    def flush(self) -> str:
        """Return the held-back text at the end of a sequence without a stop string."""
        shown, self._held = self._held, ""
        return shown

    def _tail_that_may_begin_a_stop(self) -> int:
        longest = max((len(stop) for stop in self._stops), default=1) - 1
        for size in range(min(longest, len(self._held)), 0, -1):
            if any(stop.startswith(self._held[-size:]) for stop in self._stops):
                return size
        return 0
