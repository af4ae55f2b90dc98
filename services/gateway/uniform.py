"""Uniform streams: deltas of one size at one cadence, whatever the drafts gained.

An observer of the traffic sees how long an answer takes, not how many tokens a cycle accepted.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import deque
from collections.abc import AsyncGenerator
from typing import Final

from services.contract import pb
from services.contract.errors import InternalError, InvalidField, UnsupportedError

gen = pb.generation_pb2
PERIOD_SECONDS: Final = 0.05
TOKENS: Final = 4
MAX_TOKENS: Final = 64
# With as much padding, lengths take two bytes whatever they are, so every size can be hit.
_LEAST_PADDING: Final = 160
_PADDING_HEAD: Final = 8
_ID_BYTES: Final = 5
_TEXT_BYTES: Final = 16
_FRAME_BYTES: Final = 40


def check_uniform(request: gen.GenerateRequest | gen.GenerateStreamRequest) -> None:
    """Refuse, by name, what has no fixed size beside uniform_stream.

    Raises  UnsupportedError for a unary call; InvalidField naming the other field.
    """
    if not request.output.uniform_stream:
        return
    if isinstance(request, gen.GenerateRequest):
        text = "a unary answer is one message; leave it out, or call GenerateStream"
        raise UnsupportedError("UNARY", text, "output.uniform_stream")
    refused = {
        "sampling.n": request.sampling.n > 1,
        "output.echo": request.output.echo,
        "output.logprobs": request.output.HasField("logprobs"),
        "output.include_usage_each_chunk": request.output.include_usage_each_chunk,
        "output.stream_interval": request.output.stream_interval > MAX_TOKENS,
        "speculation.digests": request.speculation.digests,
        "speculation.trace_level": request.speculation.trace_level > gen.TRACE_LEVEL_SUMMARY,
    }
    for field, is_set in refused.items():
        if is_set:
            text = f"has no fixed size in a uniform stream (at most {MAX_TOKENS} tokens a delta)"
            raise InvalidField("UNIFORM_STREAM", f"{text}; leave one of both out", field)


class UniformBuffer:
    """Tokens and text that wait for their delta.

    Args    request_id: of the stream. tokens: ids in a delta. Text beyond what fits one waits.
    """

    def __init__(self, request_id: str, tokens: int) -> None:
        self._request_id = request_id
        self._tokens = tokens
        self._text_bytes = _TEXT_BYTES * tokens
        frame = len(request_id.encode()) + _FRAME_BYTES
        self._size = frame + _ID_BYTES * tokens + self._text_bytes + _LEAST_PADDING
        self._ids: deque[int] = deque()
        self._text = ""
        self._num_left = 0

    @property
    def is_empty(self) -> bool:
        """Whether everything was sent."""
        return not self._num_left and not self._text

    def add(self, delta: gen.Delta) -> None:
        """Take what the engine gave."""
        self._ids.extend(delta.token_ids)
        self._num_left += delta.num_tokens
        self._text += delta.text

    def next(self, seq: int, is_last: bool) -> gen.GenerateStreamResponse:
        """Return the next message: full, or empty while there is too little and more to come."""
        message = gen.GenerateStreamResponse(request_id=self._request_id, choice_index=0, seq=seq)
        count = min(self._tokens, self._num_left)
        if count < self._tokens and not is_last:
            count, shown = 0, ""
        else:
            shown = _head(self._text, self._text_bytes)
        self._num_left -= count
        self._text = self._text[len(shown) :]
        ids = [self._ids.popleft() for _ in range(min(count, len(self._ids)))]
        message.delta.CopyFrom(gen.Delta(text=shown, token_ids=ids, num_tokens=count))
        return _padded(message, self._size)


async def uniform(
    messages: AsyncGenerator[gen.GenerateStreamResponse, None], buffer: UniformBuffer
) -> AsyncGenerator[gen.GenerateStreamResponse, None]:
    """Yield a stream's messages behind Start, its deltas made uniform, one each PERIOD_SECONDS.

    Raises  what the stream raises, at the next beat.
    """
    count, ends = itertools.count(1), list[gen.GenerateStreamResponse]()
    async for message in messages:
        if not _take(message, buffer, ends):
            yield message
            next(count)
            continue
        break
    reading = asyncio.create_task(_read(messages, buffer, ends))
    try:
        due = time.monotonic()
        while not (reading.done() and buffer.is_empty):
            if reading.done():
                reading.result()
            yield buffer.next(next(count), reading.done())
            due = max(due + PERIOD_SECONDS, time.monotonic())
            await asyncio.sleep(due - time.monotonic())
        reading.result()
    finally:
        reading.cancel()
    for message in ends:
        message.seq = next(count)
        yield message


async def _read(
    messages: AsyncGenerator[gen.GenerateStreamResponse, None],
    buffer: UniformBuffer,
    ends: list[gen.GenerateStreamResponse],
) -> None:
    async for message in messages:
        _take(message, buffer, ends)


def _take(
    message: gen.GenerateStreamResponse,
    buffer: UniformBuffer,
    ends: list[gen.GenerateStreamResponse],
) -> bool:
    """Put a delta or an end where it waits; say whether it was one."""
    kind = message.WhichOneof("event")
    if kind == "delta":
        buffer.add(message.delta)
    elif kind in ("finish", "end"):
        ends.append(message)
    return kind in ("delta", "finish", "end")


def _head(text: str, limit: int) -> str:
    """Return the longest beginning of at most `limit` bytes."""
    return text[:limit].encode()[:limit].decode(errors="ignore")


def _padded(message: gen.GenerateStreamResponse, size: int) -> gen.GenerateStreamResponse:
    """Return a message filled up to a size; its padding's and its delta's lengths count too."""
    missing = size - message.ByteSize()
    for length in range(missing, missing - _PADDING_HEAD, -1):
        message.delta.padding = bytes(length)
        if message.ByteSize() == size:
            return message
    raise InternalError("UNIFORM_SIZE", f"{missing} bytes cannot be filled to {size}")
