from services.contract._pb import path_pb2 as _path_pb2
from services.contract._pb import tree_pb2 as _tree_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class BufferRef(_message.Message):
    __slots__ = ("name", "offset_bytes", "shape", "dtype")
    NAME_FIELD_NUMBER: _ClassVar[int]
    OFFSET_BYTES_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    name: str
    offset_bytes: int
    shape: _containers.RepeatedScalarFieldContainer[int]
    dtype: str
    def __init__(self, name: _Optional[str] = ..., offset_bytes: _Optional[int] = ..., shape: _Optional[_Iterable[int]] = ..., dtype: _Optional[str] = ...) -> None: ...

class BufferMap(_message.Message):
    __slots__ = ("owner", "epoch", "mode", "size_bytes", "handle", "event_handles", "buffers")
    OWNER_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    HANDLE_FIELD_NUMBER: _ClassVar[int]
    EVENT_HANDLES_FIELD_NUMBER: _ClassVar[int]
    BUFFERS_FIELD_NUMBER: _ClassVar[int]
    owner: str
    epoch: int
    mode: str
    size_bytes: int
    handle: bytes
    event_handles: _containers.RepeatedScalarFieldContainer[bytes]
    buffers: _containers.RepeatedCompositeFieldContainer[BufferRef]
    def __init__(self, owner: _Optional[str] = ..., epoch: _Optional[int] = ..., mode: _Optional[str] = ..., size_bytes: _Optional[int] = ..., handle: _Optional[bytes] = ..., event_handles: _Optional[_Iterable[bytes]] = ..., buffers: _Optional[_Iterable[_Union[BufferRef, _Mapping]]] = ...) -> None: ...

class Sampling(_message.Message):
    __slots__ = ("temperature", "top_p", "top_k", "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty", "seed", "bias_ids", "bias_values", "allowed_ids", "banned_ids", "num_logprobs", "processed_logprobs")
    TEMPERATURE_FIELD_NUMBER: _ClassVar[int]
    TOP_P_FIELD_NUMBER: _ClassVar[int]
    TOP_K_FIELD_NUMBER: _ClassVar[int]
    MIN_P_FIELD_NUMBER: _ClassVar[int]
    PRESENCE_PENALTY_FIELD_NUMBER: _ClassVar[int]
    FREQUENCY_PENALTY_FIELD_NUMBER: _ClassVar[int]
    REPETITION_PENALTY_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    BIAS_IDS_FIELD_NUMBER: _ClassVar[int]
    BIAS_VALUES_FIELD_NUMBER: _ClassVar[int]
    ALLOWED_IDS_FIELD_NUMBER: _ClassVar[int]
    BANNED_IDS_FIELD_NUMBER: _ClassVar[int]
    NUM_LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    PROCESSED_LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    temperature: float
    top_p: float
    top_k: int
    min_p: float
    presence_penalty: float
    frequency_penalty: float
    repetition_penalty: float
    seed: int
    bias_ids: _containers.RepeatedScalarFieldContainer[int]
    bias_values: _containers.RepeatedScalarFieldContainer[float]
    allowed_ids: _containers.RepeatedScalarFieldContainer[int]
    banned_ids: _containers.RepeatedScalarFieldContainer[int]
    num_logprobs: int
    processed_logprobs: bool
    def __init__(self, temperature: _Optional[float] = ..., top_p: _Optional[float] = ..., top_k: _Optional[int] = ..., min_p: _Optional[float] = ..., presence_penalty: _Optional[float] = ..., frequency_penalty: _Optional[float] = ..., repetition_penalty: _Optional[float] = ..., seed: _Optional[int] = ..., bias_ids: _Optional[_Iterable[int]] = ..., bias_values: _Optional[_Iterable[float]] = ..., allowed_ids: _Optional[_Iterable[int]] = ..., banned_ids: _Optional[_Iterable[int]] = ..., num_logprobs: _Optional[int] = ..., processed_logprobs: _Optional[bool] = ...) -> None: ...

class Budget(_message.Message):
    __slots__ = ("max_tokens", "min_tokens", "eos_ids", "stop_ids", "context_length")
    MAX_TOKENS_FIELD_NUMBER: _ClassVar[int]
    MIN_TOKENS_FIELD_NUMBER: _ClassVar[int]
    EOS_IDS_FIELD_NUMBER: _ClassVar[int]
    STOP_IDS_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_LENGTH_FIELD_NUMBER: _ClassVar[int]
    max_tokens: int
    min_tokens: int
    eos_ids: _containers.RepeatedScalarFieldContainer[int]
    stop_ids: _containers.RepeatedScalarFieldContainer[int]
    context_length: int
    def __init__(self, max_tokens: _Optional[int] = ..., min_tokens: _Optional[int] = ..., eos_ids: _Optional[_Iterable[int]] = ..., stop_ids: _Optional[_Iterable[int]] = ..., context_length: _Optional[int] = ...) -> None: ...

class Drafting(_message.Message):
    __slots__ = ("shape", "drafter", "suffix", "tenant")
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    DRAFTER_FIELD_NUMBER: _ClassVar[int]
    SUFFIX_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    shape: str
    drafter: str
    suffix: bool
    tenant: str
    def __init__(self, shape: _Optional[str] = ..., drafter: _Optional[str] = ..., suffix: _Optional[bool] = ..., tenant: _Optional[str] = ...) -> None: ...

class Admit(_message.Message):
    __slots__ = ("request_id", "choice_index", "slot", "generation", "prompt_length", "sampling", "budget", "drafting", "wants_digest")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    CHOICE_INDEX_FIELD_NUMBER: _ClassVar[int]
    SLOT_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    PROMPT_LENGTH_FIELD_NUMBER: _ClassVar[int]
    SAMPLING_FIELD_NUMBER: _ClassVar[int]
    BUDGET_FIELD_NUMBER: _ClassVar[int]
    DRAFTING_FIELD_NUMBER: _ClassVar[int]
    WANTS_DIGEST_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    choice_index: int
    slot: int
    generation: int
    prompt_length: int
    sampling: Sampling
    budget: Budget
    drafting: Drafting
    wants_digest: bool
    def __init__(self, request_id: _Optional[str] = ..., choice_index: _Optional[int] = ..., slot: _Optional[int] = ..., generation: _Optional[int] = ..., prompt_length: _Optional[int] = ..., sampling: _Optional[_Union[Sampling, _Mapping]] = ..., budget: _Optional[_Union[Budget, _Mapping]] = ..., drafting: _Optional[_Union[Drafting, _Mapping]] = ..., wants_digest: _Optional[bool] = ...) -> None: ...

class PrefillChunk(_message.Message):
    __slots__ = ("slot", "generation", "start", "token_ids", "next_token_id", "is_last", "new_pages")
    SLOT_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    NEXT_TOKEN_ID_FIELD_NUMBER: _ClassVar[int]
    IS_LAST_FIELD_NUMBER: _ClassVar[int]
    NEW_PAGES_FIELD_NUMBER: _ClassVar[int]
    slot: int
    generation: int
    start: int
    token_ids: _containers.RepeatedScalarFieldContainer[int]
    next_token_id: int
    is_last: bool
    new_pages: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, slot: _Optional[int] = ..., generation: _Optional[int] = ..., start: _Optional[int] = ..., token_ids: _Optional[_Iterable[int]] = ..., next_token_id: _Optional[int] = ..., is_last: _Optional[bool] = ..., new_pages: _Optional[_Iterable[int]] = ...) -> None: ...

class CycleSequence(_message.Message):
    __slots__ = ("slot", "generation", "cycle", "committed_length", "root_id", "previous_emitted_ids", "new_pages", "forced_ids", "tree")
    SLOT_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    CYCLE_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_LENGTH_FIELD_NUMBER: _ClassVar[int]
    ROOT_ID_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_EMITTED_IDS_FIELD_NUMBER: _ClassVar[int]
    NEW_PAGES_FIELD_NUMBER: _ClassVar[int]
    FORCED_IDS_FIELD_NUMBER: _ClassVar[int]
    TREE_FIELD_NUMBER: _ClassVar[int]
    slot: int
    generation: int
    cycle: int
    committed_length: int
    root_id: int
    previous_emitted_ids: _containers.RepeatedScalarFieldContainer[int]
    new_pages: _containers.RepeatedScalarFieldContainer[int]
    forced_ids: _containers.RepeatedScalarFieldContainer[int]
    tree: _tree_pb2.TreeDescriptor
    def __init__(self, slot: _Optional[int] = ..., generation: _Optional[int] = ..., cycle: _Optional[int] = ..., committed_length: _Optional[int] = ..., root_id: _Optional[int] = ..., previous_emitted_ids: _Optional[_Iterable[int]] = ..., new_pages: _Optional[_Iterable[int]] = ..., forced_ids: _Optional[_Iterable[int]] = ..., tree: _Optional[_Union[_tree_pb2.TreeDescriptor, _Mapping]] = ...) -> None: ...

class Cycle(_message.Message):
    __slots__ = ("sequences",)
    SEQUENCES_FIELD_NUMBER: _ClassVar[int]
    sequences: _containers.RepeatedCompositeFieldContainer[CycleSequence]
    def __init__(self, sequences: _Optional[_Iterable[_Union[CycleSequence, _Mapping]]] = ...) -> None: ...

class SequenceResult(_message.Message):
    __slots__ = ("path", "tree")
    PATH_FIELD_NUMBER: _ClassVar[int]
    TREE_FIELD_NUMBER: _ClassVar[int]
    path: _path_pb2.AcceptedPath
    tree: _tree_pb2.TreeDescriptor
    def __init__(self, path: _Optional[_Union[_path_pb2.AcceptedPath, _Mapping]] = ..., tree: _Optional[_Union[_tree_pb2.TreeDescriptor, _Mapping]] = ...) -> None: ...

class Result(_message.Message):
    __slots__ = ("sequences",)
    SEQUENCES_FIELD_NUMBER: _ClassVar[int]
    sequences: _containers.RepeatedCompositeFieldContainer[SequenceResult]
    def __init__(self, sequences: _Optional[_Iterable[_Union[SequenceResult, _Mapping]]] = ...) -> None: ...

class Release(_message.Message):
    __slots__ = ("slot", "generation", "keep_suffix")
    SLOT_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    KEEP_SUFFIX_FIELD_NUMBER: _ClassVar[int]
    slot: int
    generation: int
    keep_suffix: bool
    def __init__(self, slot: _Optional[int] = ..., generation: _Optional[int] = ..., keep_suffix: _Optional[bool] = ...) -> None: ...

class Spans(_message.Message):
    __slots__ = ("stage", "step_us", "wait_us")
    STAGE_FIELD_NUMBER: _ClassVar[int]
    STEP_US_FIELD_NUMBER: _ClassVar[int]
    WAIT_US_FIELD_NUMBER: _ClassVar[int]
    stage: str
    step_us: int
    wait_us: int
    def __init__(self, stage: _Optional[str] = ..., step_us: _Optional[int] = ..., wait_us: _Optional[int] = ...) -> None: ...

class Failure(_message.Message):
    __slots__ = ("stage", "reason", "message")
    STAGE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    stage: str
    reason: str
    message: str
    def __init__(self, stage: _Optional[str] = ..., reason: _Optional[str] = ..., message: _Optional[str] = ...) -> None: ...

class StageMessage(_message.Message):
    __slots__ = ("epoch", "sequence_number", "spans", "admit", "prefill", "cycle", "result", "release", "failure")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_NUMBER_FIELD_NUMBER: _ClassVar[int]
    SPANS_FIELD_NUMBER: _ClassVar[int]
    ADMIT_FIELD_NUMBER: _ClassVar[int]
    PREFILL_FIELD_NUMBER: _ClassVar[int]
    CYCLE_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    RELEASE_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    sequence_number: int
    spans: _containers.RepeatedCompositeFieldContainer[Spans]
    admit: Admit
    prefill: PrefillChunk
    cycle: Cycle
    result: Result
    release: Release
    failure: Failure
    def __init__(self, epoch: _Optional[int] = ..., sequence_number: _Optional[int] = ..., spans: _Optional[_Iterable[_Union[Spans, _Mapping]]] = ..., admit: _Optional[_Union[Admit, _Mapping]] = ..., prefill: _Optional[_Union[PrefillChunk, _Mapping]] = ..., cycle: _Optional[_Union[Cycle, _Mapping]] = ..., result: _Optional[_Union[Result, _Mapping]] = ..., release: _Optional[_Union[Release, _Mapping]] = ..., failure: _Optional[_Union[Failure, _Mapping]] = ...) -> None: ...
