"""Turn a session's events into public messages, chunk by chunk."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from services.contract import pb
from services.contract.tree import TreeTag
from services.gateway import replies
from services.gateway.requests import Delta, Event, Finished, Prefilled
from services.gateway.speculation import merge
from services.gateway.translate import GenerateRequest, Resolved

gen = pb.generation_pb2


@dataclass(slots=True)
class ChoiceBuffer:
    """What one choice produced and has not been sent."""

    text: list[str] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[pb.path_pb2.EmittedLogprobs] = field(default_factory=list)
    steps: list[gen.SpecStep] = field(default_factory=list)
    num_tokens: int = 0

    def add(self, delta: Delta, step: gen.SpecStep | None) -> None:
        """Take one cycle's part."""
        self.text.append(delta.text)
        self.token_ids.extend(delta.token_ids)
        self.logprobs.extend(replies.logprobs(delta))
        self.num_tokens += len(delta.token_ids)
        if step is not None:
            self.steps.append(step)


@dataclass(slots=True)
class Assembler:
    """Build the messages of one request from its events.

    Args    epoch: wiring generation for the trees of a trace.
    """

    request: GenerateRequest
    request_id: str
    model: str
    resolved: Resolved
    eos_ids: tuple[int, ...]
    epoch: int
    buffers: dict[int, ChoiceBuffer] = field(default_factory=dict)
    finished: dict[int, Finished] = field(default_factory=dict)
    seq: int = 0

    def __post_init__(self) -> None:
        echo = self.resolved.prompt_text if self.request.output.echo else ""
        for index in range(self.resolved.num_choices):
            self.buffers[index] = ChoiceBuffer(text=[echo] if echo else [])

    @property
    def total_tokens(self) -> int:
        """Tokens taken so far, all choices."""
        return sum(buffer.num_tokens for buffer in self.buffers.values())

    def add(self, choice: int, delta: Delta) -> bool:
        """Take a delta; say whether the choice has enough for a chunk."""
        self.buffers[choice].add(delta, self._step(choice, delta))
        pending = len(self.buffers[choice].token_ids)
        return pending >= max(1, self.request.output.stream_interval)

    def tag(self, choice: int, delta: Delta) -> TreeTag:
        """Return whose tree a delta's is."""
        length = max(delta.committed_length - len(delta.nodes), 0)
        return TreeTag(self.request_id, choice, self.epoch, delta.cycle, length, 0, 0)

    def messages(self, choice: int, event: Event) -> list[gen.GenerateStreamResponse]:
        """Return what a stream sends on an event of a choice."""
        if isinstance(event, Prefilled):
            return [self.progress(choice, event.done, event.total)]
        if isinstance(event, Delta):
            return [self.chunk(choice)] if self.add(choice, event) else []
        return list(self.end_of(choice, event)) if isinstance(event, Finished) else []

    def start(self) -> gen.GenerateStreamResponse:
        """Return the first message of a stream."""
        start = gen.Start(
            model=self.model,
            metadata=dict(self.request.metadata),
            prompt_tokens=len(self.resolved.prompt_ids),
            effective=replies.effective(self.resolved),
            warnings=self.resolved.warnings,
        )
        return self._message(0, start=start)

    def progress(self, choice: int, done: int, total: int) -> gen.GenerateStreamResponse:
        """Return how far the prompt is."""
        return self._message(choice, progress=gen.Progress(done=done, total=total))

    def chunk(self, choice: int) -> gen.GenerateStreamResponse:
        """Return what a choice has not sent yet, and empty its buffer."""
        buffer = self.buffers[choice]
        delta = gen.Delta(num_tokens=len(buffer.token_ids), steps=buffer.steps)
        self._fill(delta, buffer)
        if self.request.output.include_usage_each_chunk:
            delta.usage.CopyFrom(
                gen.Usage(
                    prompt_tokens=len(self.resolved.prompt_ids),
                    completion_tokens=buffer.num_tokens,
                    total_tokens=len(self.resolved.prompt_ids) + buffer.num_tokens,
                )
            )
        self.buffers[choice] = ChoiceBuffer(num_tokens=buffer.num_tokens)
        return self._message(choice, delta=delta)

    def end_of(self, choice: int, ended: Finished) -> Iterator[gen.GenerateStreamResponse]:
        """Yield a choice's rest and its end; after the last choice the request's end."""
        self.finished[choice] = ended
        buffer = self.buffers[choice]
        if buffer.token_ids or "".join(buffer.text):
            yield self.chunk(choice)
        finish = gen.Finish(
            finish_reason=replies.REASONS[ended.reason],
            matched_stop=replies.matched_stop(ended, self.eos_ids),
            num_tokens=len(ended.token_ids),
        )
        yield self._message(choice, finish=finish)
        if len(self.finished) == self.resolved.num_choices:
            end = gen.End(usage=self._usage(), timing=self._timing(), speculation=self._summary())
            yield self._message(0, end=end)

    def response(self) -> gen.GenerateResponse:
        """Return the whole answer of a unary call."""
        return gen.GenerateResponse(
            request_id=self.request_id,
            model=self.model,
            metadata=dict(self.request.metadata),
            choices=[self._choice(index) for index in sorted(self.finished)],
            usage=self._usage(),
            timing=self._timing(),
            speculation=self._summary(),
            effective=replies.effective(self.resolved),
            warnings=self.resolved.warnings,
        )

    def _choice(self, index: int) -> gen.Choice:
        buffer, ended = self.buffers[index], self.finished[index]
        choice = gen.Choice(
            index=index,
            finish_reason=replies.REASONS[ended.reason],
            matched_stop=replies.matched_stop(ended, self.eos_ids),
            steps=buffer.steps,
        )
        self._fill(choice, buffer)
        return choice

    def _fill(self, message: gen.Delta | gen.Choice, buffer: ChoiceBuffer) -> None:
        output = self.request.output
        if output.return_text or not output.HasField("return_text"):
            message.text = "".join(buffer.text)
        if output.return_token_ids or not output.HasField("return_token_ids"):
            message.token_ids.extend(buffer.token_ids)
        message.logprobs.extend(buffer.logprobs)

    def _step(self, choice: int, delta: Delta) -> gen.SpecStep | None:
        level = self.request.speculation.trace_level
        if level < gen.TRACE_LEVEL_STEPS and not self.request.speculation.digests:
            return None
        return replies.step(delta, self.tag(choice, delta), level)

    def _usage(self) -> gen.Usage:
        return replies.usage(self.finished.values())

    def _timing(self) -> gen.Timing:
        ended = list(self.finished.values())
        slowest = max(ended, key=lambda f: f.timing.decode_ms)
        return replies.timing(slowest.timing, len(slowest.token_ids))

    def _summary(self) -> gen.SpecSummary | None:
        if self.request.speculation.trace_level == gen.TRACE_LEVEL_NONE:
            return None
        return replies.summary(merge([f.speculation for f in self.finished.values()]))

    def _message(self, choice: int, **event: Any) -> gen.GenerateStreamResponse:
        message = gen.GenerateStreamResponse(
            request_id=self.request_id,
            choice_index=choice,
            seq=self.seq,
            **event,
        )
        self.seq += 1
        return message
