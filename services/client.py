"""Python client of the public service: blocking and asyncio."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import grpc

from services.contract import pb
from services.contract.limits import PUBLIC_MESSAGE_BYTES

gen = pb.generation_pb2
Prompt = str | Sequence[int] | Sequence[Mapping[str, Any]]

_SAMPLING = {field.name for field in gen.SamplingOptions.DESCRIPTOR.fields}
_STOP = {field.name for field in gen.StopOptions.DESCRIPTOR.fields}
_OUTPUT = {field.name for field in gen.OutputOptions.DESCRIPTOR.fields}
_SPECULATION = {field.name for field in gen.SpeculationOptions.DESCRIPTOR.fields}
_TOP = {"request_id", "model", "metadata"}
_OPTIONS = (("grpc.max_receive_message_length", 16 * PUBLIC_MESSAGE_BYTES),)
_ROLES = {"system": 1, "developer": 2, "user": 3, "assistant": 4, "tool": 5}


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts of an answer."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


@dataclass(frozen=True, slots=True)
class Completion:
    """A whole answer; `raw` is the message it came in."""

    text: str
    token_ids: tuple[int, ...]
    finish_reason: str
    usage: Usage
    seed: int
    raw: gen.GenerateResponse


@dataclass(frozen=True, slots=True)
class Chunk:
    """A part of a streamed answer; `finish_reason` is set on a choice's last one."""

    text: str
    token_ids: tuple[int, ...]
    choice_index: int
    finish_reason: str | None
    raw: gen.GenerateStreamResponse


class _Connection:
    """What both clients hold: a channel of their kind, the stub, the token's metadata."""

    _insecure: ClassVar[Callable[..., Any]]
    _secure: ClassVar[Callable[..., Any]]

    def __init__(
        self,
        target: str = "127.0.0.1:50051",
        *,
        token: str | None = None,
        root_cert: Path | None = None,
        cert: Path | None = None,
        key: Path | None = None,
    ) -> None:
        credentials = _credentials(root_cert, cert, key)
        self._channel = (
            self._insecure(target, _OPTIONS)
            if credentials is None
            else self._secure(target, credentials, _OPTIONS)
        )
        self._metadata = _metadata(token)
        self.stub = pb.generation_pb2_grpc.GenerationServiceStub(self._channel)


class Client(_Connection):
    """Blocking client.

    Args    target: host:port. token: bearer token. root_cert: PEM of the server's authority;
            with cert and key, mutual TLS. Options of `generate` and `stream` are the fields of
            SamplingOptions, StopOptions, OutputOptions and SpeculationOptions by name.
    """

    _insecure = staticmethod(grpc.insecure_channel)
    _secure = staticmethod(grpc.secure_channel)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the channel."""
        self._channel.close()

    def generate(
        self, prompt: Prompt, *, timeout: float | None = None, **options: Any
    ) -> Completion:
        """Return a whole answer.

        Raises  TypeError for an option that does not exist; grpc.RpcError from the server.
        """
        request = build_request(gen.GenerateRequest, prompt, options)
        return _completion(self.stub.Generate(request, timeout=timeout, metadata=self._metadata))

    def stream(
        self, prompt: Prompt, *, timeout: float | None = None, **options: Any
    ) -> Iterator[Chunk]:
        """Yield an answer's parts; closing the iterator cancels the request."""
        request = build_request(gen.GenerateStreamRequest, prompt, options)
        call = self.stub.GenerateStream(request, timeout=timeout, metadata=self._metadata)
        try:
            yield from filter(None, map(_chunk, call))
        finally:
            call.cancel()


class AsyncClient(_Connection):
    """The asyncio twin of `Client`."""

    _insecure = staticmethod(grpc.aio.insecure_channel)
    _secure = staticmethod(grpc.aio.secure_channel)

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the channel."""
        await self._channel.close()

    async def generate(
        self, prompt: Prompt, *, timeout: float | None = None, **options: Any
    ) -> Completion:
        """Return a whole answer."""
        request = build_request(gen.GenerateRequest, prompt, options)
        call = self.stub.Generate(request, timeout=timeout, metadata=self._metadata)
        return _completion(await call)

    async def stream(
        self, prompt: Prompt, *, timeout: float | None = None, **options: Any
    ) -> AsyncIterator[Chunk]:
        """Yield an answer's parts; leaving the loop cancels the request."""
        request = build_request(gen.GenerateStreamRequest, prompt, options)
        call = self.stub.GenerateStream(request, timeout=timeout, metadata=self._metadata)
        try:
            async for message in call:
                chunk = _chunk(message)
                if chunk is not None:
                    yield chunk
        finally:
            call.cancel()


def build_request(kind: Any, prompt: Prompt, options: Mapping[str, Any]) -> Any:
    """Return a generate request of `kind` from a text, ids or chat messages and options.

    Raises  TypeError naming an option that no message has.
    """
    request = kind()
    _set_prompt(request, prompt)
    for name, value in options.items():
        target = _owner(request, name)
        current = getattr(target, name)
        if hasattr(current, "extend"):
            current.extend([value] if isinstance(value, str) else value)
        elif hasattr(current, "update"):
            current.update(value)
        else:
            setattr(target, name, value)
    return request


def _owner(request: Any, name: str) -> Any:
    for fields, part in (
        (_TOP, ""),
        (_SAMPLING, "sampling"),
        (_STOP, "stop"),
        (_OUTPUT, "output"),
        (_SPECULATION, "speculation"),
    ):
        if name in fields:
            return getattr(request, part) if part else request
    raise TypeError(f"{name} is not an option; see the fields of generation.proto")


def _set_prompt(request: Any, prompt: Prompt) -> None:
    if isinstance(prompt, str):
        request.text.text = prompt
    elif all(isinstance(item, int) for item in prompt):
        request.token_ids.ids.extend(prompt)
    else:
        for message in prompt:
            if not isinstance(message, Mapping):
                raise TypeError("a prompt is text, token ids, or messages; not a mixture")
            added = request.chat.messages.add(content=message["content"])
            if message["role"] not in _ROLES:
                raise TypeError(f"role {message['role']!r} is none of {', '.join(_ROLES)}")
            added.role = _ROLES[message["role"]]


def _credentials(
    root_cert: Path | None, cert: Path | None, key: Path | None
) -> grpc.ChannelCredentials | None:
    if root_cert is None:
        return None
    return grpc.ssl_channel_credentials(
        root_cert.read_bytes(),
        key.read_bytes() if key else None,
        cert.read_bytes() if cert else None,
    )


def _metadata(token: str | None) -> tuple[tuple[str, str], ...]:
    return (("authorization", f"Bearer {token}"),) if token else ()


def _reason(value: int) -> str:
    return str(gen.FinishReason.Name(value)).removeprefix("FINISH_REASON_").lower()


def _completion(response: gen.GenerateResponse) -> Completion:
    choice, usage = response.choices[0], response.usage
    return Completion(
        text=choice.text,
        token_ids=tuple(choice.token_ids),
        finish_reason=_reason(choice.finish_reason),
        usage=Usage(usage.prompt_tokens, usage.completion_tokens, usage.total_tokens),
        seed=response.effective.sampling.seed,
        raw=response,
    )


def _chunk(message: gen.GenerateStreamResponse) -> Chunk | None:
    kind = message.WhichOneof("event")
    if kind == "delta":
        delta = message.delta
        return Chunk(delta.text, tuple(delta.token_ids), message.choice_index, None, message)
    if kind == "finish":
        return Chunk("", (), message.choice_index, _reason(message.finish.finish_reason), message)
    return None
