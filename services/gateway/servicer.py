"""GenerationService: public calls onto an engine's door."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TypeAlias

import grpc

from services.contract import limits, pb
from services.contract.checks import at_most, text, token_ids
from services.contract.errors import (
    DeadlineError,
    InvalidField,
    UnavailableError,
    UnsupportedError,
)
from services.contract.wire import refuse_unknown
from services.gateway import replies, status
from services.gateway.assemble import Assembler
from services.gateway.front import Door, ServedEngine
from services.gateway.info import ServerFacts
from services.gateway.peers import PeerStreams
from services.gateway.recorder import Recorder
from services.gateway.requests import Delta, Finished, Prefilled
from services.gateway.session import ChoiceEvent, Session
from services.gateway.trace import TraceHub
from services.gateway.translate import GenerateRequest, Translator

gen = pb.generation_pb2
Context: TypeAlias = grpc.aio.ServicerContext
_LARGE_BYTES = 1 << 16


class GenerationServicer(pb.generation_pb2_grpc.GenerationServiceServicer):
    """Answer the public service from one engine, whichever it is."""

    def __init__(
        self,
        engine: ServedEngine,
        clock: Door,
        facts: ServerFacts,
        recorder: Recorder | None = None,
        test_drafters: bool = False,
    ) -> None:
        self._engine = engine
        self._recorder = recorder
        self._peers = PeerStreams()
        self._clock = clock
        self._facts = facts
        self._hub = TraceHub()
        self._translator = Translator(
            facts.model,
            engine.codec,
            engine.template,
            engine.defaults,
            engine.group.vocab_size,
            engine.traits,
            has_mtp=engine.traits.drafting is not None or facts.description.num_mtp_parameters > 0,
            test_drafters=test_drafters,
        )

    @status.unary
    async def Generate(
        self, request: gen.GenerateRequest, context: Context
    ) -> gen.GenerateResponse:
        """Return a whole answer."""
        session, assembler = await self._open(request, context)
        try:
            async for item in self._live(session, assembler, context):
                if isinstance(item.event, Delta):
                    assembler.add(item.choice_index, item.event)
                elif isinstance(item.event, Finished):
                    assembler.finished[item.choice_index] = item.event
        finally:
            session.close()
        self._record(assembler)
        return assembler.response()

    @status.stream
    async def GenerateStream(
        self, request: gen.GenerateStreamRequest, context: Context
    ) -> AsyncGenerator[gen.GenerateStreamResponse, None]:
        """Yield Start at once, Progress while prefilling, Deltas, a Finish a choice, End."""
        session, assembler = await self._open(request, context)
        try:
            yield assembler.start()
            async for item in self._live(session, assembler, context):
                for message in self._messages(assembler, item):
                    yield message
        finally:
            session.close()
        self._record(assembler)

    @status.unary
    async def Abort(self, request: gen.AbortRequest, context: Context) -> gen.AbortResponse:
        """Stop requests; an unknown id is found=false, not an error."""
        refuse_unknown(request)
        at_most(request.request_ids, limits.MAX_ABORT_IDS, "request_ids")
        ids = list(request.request_ids)
        if request.all:
            ids.extend(self._clock.scheduler.live_ids())
        results = [gen.AbortResult(request_id=i, found=self._clock.cancel(i)) for i in ids]
        return gen.AbortResponse(results=results)

    @status.unary
    async def Tokenize(
        self, request: gen.TokenizeRequest, context: Context
    ) -> gen.TokenizeResponse:
        """Return a text's ids; offsets are in characters."""
        refuse_unknown(request)
        self._translator.check_model(request.model)
        content = text(request.text, limits.MAX_PROMPT_BYTES, "text")
        codec = self._engine.codec
        parse = request.parse_special or not request.HasField("parse_special")
        if not request.return_offsets:
            ids = codec.encode(content) if parse else codec.encode_plain(content)
            return gen.TokenizeResponse(token_ids=ids, count=len(ids))
        if not parse:
            message = "offsets are of parsed text; set parse_special or leave offsets out"
            raise InvalidField("OFFSETS", message, "return_offsets")
        encoding = codec.tokenizer.encode(content, add_special_tokens=False)
        offsets = [gen.TokenOffset(start=a, end=b) for a, b in encoding.offsets]
        return gen.TokenizeResponse(
            token_ids=encoding.ids, count=len(encoding.ids), offsets=offsets
        )

    @status.unary
    async def Detokenize(
        self, request: gen.DetokenizeRequest, context: Context
    ) -> gen.DetokenizeResponse:
        """Return the text of ids."""
        refuse_unknown(request)
        self._translator.check_model(request.model)
        vocab_size = self._engine.group.vocab_size
        ids = token_ids(request.token_ids, vocab_size, limits.MAX_TOKENIZE_IDS, "token_ids")
        skip = request.skip_special_tokens or not request.HasField("skip_special_tokens")
        return gen.DetokenizeResponse(text=self._engine.codec.decode(ids, skip))

    @status.unary
    async def RenderChat(
        self, request: gen.RenderChatRequest, context: Context
    ) -> gen.RenderChatResponse:
        """Return a chat prompt's text and ids without generating."""
        refuse_unknown(request)
        self._translator.check_model(request.model)
        rendered, ids = self._translator.render(request.chat)
        return gen.RenderChatResponse(text=rendered, token_ids=ids, count=len(ids))

    @status.unary
    async def ListModels(
        self, request: gen.ListModelsRequest, context: Context
    ) -> gen.ListModelsResponse:
        """Return the one served model."""
        refuse_unknown(request)
        return self._facts.models()

    @status.unary
    async def GetModelInfo(
        self, request: gen.GetModelInfoRequest, context: Context
    ) -> gen.GetModelInfoResponse:
        """Return what the served model is and supports."""
        refuse_unknown(request)
        self._translator.check_model(request.model)
        return self._facts.model_info()

    @status.unary
    async def GetServerInfo(
        self, request: gen.GetServerInfoRequest, context: Context
    ) -> gen.GetServerInfoResponse:
        """Return versions, transport mode, fingerprint and configuration."""
        refuse_unknown(request)
        return self._facts.server_info()

    @status.unary
    async def GetLoad(self, request: gen.GetLoadRequest, context: Context) -> gen.GetLoadResponse:
        """Return what runs and waits."""
        refuse_unknown(request)
        return self._facts.load(self._clock.scheduler)

    @status.stream
    async def WatchSpecTrace(
        self, request: gen.WatchSpecTraceRequest, context: Context
    ) -> AsyncGenerator[gen.WatchSpecTraceResponse, None]:
        """Yield verified steps of one request, or of all, as they happen."""
        refuse_unknown(request)
        if not self._engine.traits.has_trees:
            message = f"{self._engine.traits.name} has no trees to watch; serve with lumotree"
            raise UnsupportedError("NOT_BUILT", message)
        text(request.request_id, limits.MAX_REQUEST_ID, "request_id")
        self._peers.enter(context)
        level = request.trace_level or gen.TRACE_LEVEL_FULL_TREE
        watcher = self._hub.open(request.request_id)
        left = request.max_steps if request.HasField("max_steps") else -1
        try:
            while left != 0:
                traced = await watcher.queue.get()
                yield gen.WatchSpecTraceResponse(
                    request_id=traced.tag.request_id,
                    choice_index=traced.tag.choice_index,
                    step=replies.step(traced.delta, traced.tag, level),
                    num_lost=traced.num_lost,
                )
                left -= 1
        finally:
            self._hub.close(watcher)

    async def _open(self, request: GenerateRequest, context: Context) -> tuple[Session, Assembler]:
        """Resolve and submit a request; nothing is queued if anything is refused."""
        self._peers.enter(context)
        request_id = text(request.request_id, limits.MAX_REQUEST_ID, "request_id")
        request_id = request_id or f"req-{secrets.token_hex(8)}"
        tenant = self._tenant(context)
        if request.ByteSize() > _LARGE_BYTES:  # its tokens take long; others go on meanwhile
            resolved = await asyncio.to_thread(self._translator.resolve, request, tenant)
        else:
            resolved = self._translator.resolve(request, tenant)
        session = Session(self._clock, request_id, resolved)
        context.add_done_callback(lambda _: session.close())
        session.start(request)
        assembler = Assembler(
            request,
            request_id,
            self._facts.model,
            resolved,
            self._engine.defaults.eos_ids,
            self._engine.group.epoch,
        )
        return session, assembler

    def _record(self, assembler: Assembler) -> None:
        if self._recorder is not None:
            self._recorder.add(assembler)

    def _tenant(self, context: Context) -> str:
        identity = context.auth_context().get("x509_common_name") or [b""]
        name = bytes(identity[0]).decode(errors="replace")
        return name[: limits.MAX_TENANT // 3]

    async def _live(
        self, session: Session, assembler: Assembler, context: Context
    ) -> AsyncGenerator[ChoiceEvent, None]:
        """Yield a session's events under the caller's deadline; trace them on the way."""
        remaining = context.time_remaining()
        limit = limits.MAX_TIME_MS / 1e3 if remaining is None else remaining
        try:
            async with asyncio.timeout(limit), aclosing(session.events()) as events:
                async for item in events:
                    if isinstance(item.event, Delta):
                        self._hub.publish(assembler.tag(item.choice_index, item.event), item.event)
                    yield item
        except TimeoutError:
            message = f"the deadline passed after {assembler.total_tokens} tokens"
            raise DeadlineError("DEADLINE", message) from None
        except UnavailableError as error:
            message = f"{error.message}; {assembler.total_tokens} tokens were sent"
            raise UnavailableError(error.reason, message) from None

    def _messages(
        self, assembler: Assembler, item: ChoiceEvent
    ) -> list[gen.GenerateStreamResponse]:
        choice, event = item.choice_index, item.event
        if isinstance(event, Prefilled):
            return [assembler.progress(choice, event.done, event.total)]
        if isinstance(event, Delta):
            return [assembler.chunk(choice)] if assembler.add(choice, event) else []
        if isinstance(event, Finished):
            return list(assembler.end_of(choice, event))
        return []
