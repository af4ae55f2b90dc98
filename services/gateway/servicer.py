"""GenerationService: public calls onto an engine's door."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any, TypeAlias, TypeVar

import grpc

from services.contract import limits, pb
from services.contract.checks import at_most, text, whole
from services.contract.errors import (
    DeadlineError,
    InvalidField,
    UnavailableError,
    UnsupportedError,
)
from services.contract.wire import refuse_unknown
from services.gateway import replies, status, texts
from services.gateway.assemble import Assembler
from services.gateway.front import Door, ServedEngine
from services.gateway.info import ServerFacts
from services.gateway.live import LiveRequests
from services.gateway.meter import Meter
from services.gateway.peers import PeerStreams
from services.gateway.prompts import PromptReader
from services.gateway.recorder import Recorder
from services.gateway.requests import Delta, Finished
from services.gateway.session import ChoiceEvent, Session
from services.gateway.trace import TraceHub
from services.gateway.translate import GenerateRequest, Resolved, Translator
from services.gateway.uniform import TOKENS as UNIFORM_TOKENS
from services.gateway.uniform import UniformBuffer, uniform
from services.runtime.host_memory import check_running

gen = pb.generation_pb2
Context: TypeAlias = grpc.aio.ServicerContext
T = TypeVar("T")
_LARGE_BYTES = 1 << 12
# gRPC sends a passed deadline as one of up to a millisecond.
_TIMEOUT_UNIT_S = 1e-3


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
        self._meter = Meter(engine, clock.scheduler)
        self._requests = LiveRequests()
        vocab_size, context = engine.group.vocab_size, engine.defaults.context_length
        self._translator = Translator(
            facts.model,
            PromptReader(engine.codec, engine.template, vocab_size, context),
            engine.defaults,
            vocab_size,
            engine.traits,
            has_mtp=engine.traits.drafting is not None or facts.description.num_mtp_parameters > 0,
            test_drafters=test_drafters,
        )

    @property
    def num_live(self) -> int:
        """Generate calls whose answer was not wholly sent."""
        return len(self._requests)

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
            messages = self._messages(session, assembler, context)
            if request.output.uniform_stream:
                tokens = request.output.stream_interval or UNIFORM_TOKENS
                buffer = UniformBuffer(assembler.request_id, tokens)
                messages = uniform(messages, buffer)
            async with aclosing(messages):
                async for message in messages:
                    yield message
        finally:
            session.close()
        self._record(assembler)

    @status.unary
    async def Abort(self, request: gen.AbortRequest, context: Context) -> gen.AbortResponse:
        """Stop requests of the caller's tenant; an unknown id is found=false, not an error."""
        refuse_unknown(request)
        at_most(request.request_ids, limits.MAX_ABORT_IDS, "request_ids")
        if request.all and request.request_ids:
            raise InvalidField("ALL_AND_IDS", "set beside ids; send one of both", "all")
        tenant = tenant_of(context)
        ids = self._requests.of(tenant) if request.all else request.request_ids
        return gen.AbortResponse(results=[self._abort(tenant, name) for name in ids])

    def _abort(self, tenant: str, request_id: str) -> gen.AbortResult:
        ticket = self._requests.find(tenant, request_id)
        found = ticket is not None and self._clock.cancel(ticket.engine_id)
        return gen.AbortResult(request_id=request_id, found=found)

    @status.unary
    async def Tokenize(
        self, request: gen.TokenizeRequest, context: Context
    ) -> gen.TokenizeResponse:
        """Return a text's ids; offsets are in characters."""
        return await _apart(request, texts.tokenize, self._translator, request)

    @status.unary
    async def Detokenize(
        self, request: gen.DetokenizeRequest, context: Context
    ) -> gen.DetokenizeResponse:
        """Return the text of ids."""
        return await _apart(request, texts.detokenize, self._translator, request)

    @status.unary
    async def RenderChat(
        self, request: gen.RenderChatRequest, context: Context
    ) -> gen.RenderChatResponse:
        """Return a chat prompt's text and ids without generating."""
        return await _apart(request, texts.render_chat, self._translator, request)

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

    @status.unary
    async def GetMetrics(
        self, request: gen.GetMetricsRequest, context: Context
    ) -> gen.GetMetricsResponse:
        """Return counters and gauges as Prometheus text."""
        refuse_unknown(request)
        return gen.GetMetricsResponse(text=self._meter.text())

    @status.stream
    async def WatchSpecTrace(
        self, request: gen.WatchSpecTraceRequest, context: Context
    ) -> AsyncGenerator[gen.WatchSpecTraceResponse, None]:
        """Yield verified steps of one request, or of all, as they happen."""
        refuse_unknown(request)
        if not self._engine.traits.has_trees:
            message = f"{self._engine.traits.name} has no trees to watch; serve with lumotree"
            raise UnsupportedError("NOT_BUILT", message)
        name = text(request.request_id, limits.MAX_REQUEST_ID, "request_id")
        level = request.trace_level or gen.TRACE_LEVEL_STEPS
        if level < gen.TRACE_LEVEL_STEPS:
            raise InvalidField("TRACE_LEVEL", "use STEPS or FULL_TREE", "trace_level")
        left = whole(request.max_steps, 0, 2**31 - 1, "max_steps") or -1
        self._peers.enter(context)
        watcher = self._hub.open(tenant_of(context), name)
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
        tenant = tenant_of(context)
        resolved = await _apart(request, self._translator.resolve, request, tenant)
        remaining = context.time_remaining()
        if remaining is not None and remaining < _TIMEOUT_UNIT_S:
            raise DeadlineError("DEADLINE", "the deadline passed before any work")
        check_running()
        ticket = self._requests.enter(tenant, request_id)
        session = Session(self._clock, self._requests, ticket, resolved)
        context.add_done_callback(lambda _: session.close())
        session.start(request)
        return session, self._assembler(request, request_id, resolved)

    def _assembler(
        self, request: GenerateRequest, request_id: str, resolved: Resolved
    ) -> Assembler:
        eos_ids, epoch = self._engine.defaults.eos_ids, self._engine.group.epoch
        return Assembler(request, request_id, self._facts.model, resolved, eos_ids, epoch)

    async def _messages(
        self, session: Session, assembler: Assembler, context: Context
    ) -> AsyncGenerator[gen.GenerateStreamResponse, None]:
        async for item in self._live(session, assembler, context):
            for message in assembler.messages(item.choice_index, item.event):
                yield message

    def _record(self, assembler: Assembler) -> None:
        if self._recorder is not None:
            self._recorder.add(assembler)

    async def _live(
        self, session: Session, assembler: Assembler, context: Context
    ) -> AsyncGenerator[ChoiceEvent, None]:
        """Yield a session's events under the caller's deadline; trace them on the way."""
        remaining = context.time_remaining()
        limit = limits.MAX_TIME_MS / 1e3 if remaining is None else remaining
        try:
            async with asyncio.timeout(limit), aclosing(session.events()) as events:
                async for item in events:
                    self._meter.see(item.event)
                    if isinstance(item.event, Delta):
                        tag = assembler.tag(item.choice_index, item.event)
                        self._hub.publish(session.ticket.tenant, tag, item.event)
                    yield item
        except TimeoutError:
            message = f"the deadline passed after {assembler.total_tokens} tokens"
            raise DeadlineError("DEADLINE", message) from None
        except UnavailableError as error:
            message = f"{error.message}; {assembler.total_tokens} tokens were sent"
            raise UnavailableError(error.reason, message) from None


def tenant_of(context: Context) -> str:
    """Return whose call it is: its client certificate's name, or nobody's without one."""
    identity = context.auth_context().get("x509_common_name") or [b""]
    name = bytes(identity[0]).decode(errors="replace")
    return name[: limits.MAX_TENANT // 3]


async def _apart(request: Any, work: Callable[..., T], *arguments: Any) -> T:
    """Return what `work` does; on a thread for a large request, so that others go on meanwhile."""
    if request.ByteSize() > _LARGE_BYTES:
        return await asyncio.to_thread(work, *arguments)
    return work(*arguments)
