from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class CutReason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    CUT_REASON_UNSPECIFIED: _ClassVar[CutReason]
    CUT_REASON_NONE: _ClassVar[CutReason]
    CUT_REASON_EOS: _ClassVar[CutReason]
    CUT_REASON_STOP_ID: _ClassVar[CutReason]
    CUT_REASON_BUDGET: _ClassVar[CutReason]
    CUT_REASON_CONTEXT: _ClassVar[CutReason]
CUT_REASON_UNSPECIFIED: CutReason
CUT_REASON_NONE: CutReason
CUT_REASON_EOS: CutReason
CUT_REASON_STOP_ID: CutReason
CUT_REASON_BUDGET: CutReason
CUT_REASON_CONTEXT: CutReason

class TokenLogprob(_message.Message):
    __slots__ = ("token_id", "logprob")
    TOKEN_ID_FIELD_NUMBER: _ClassVar[int]
    LOGPROB_FIELD_NUMBER: _ClassVar[int]
    token_id: int
    logprob: float
    def __init__(self, token_id: _Optional[int] = ..., logprob: _Optional[float] = ...) -> None: ...

class EmittedLogprobs(_message.Message):
    __slots__ = ("chosen", "top")
    CHOSEN_FIELD_NUMBER: _ClassVar[int]
    TOP_FIELD_NUMBER: _ClassVar[int]
    chosen: TokenLogprob
    top: _containers.RepeatedCompositeFieldContainer[TokenLogprob]
    def __init__(self, chosen: _Optional[_Union[TokenLogprob, _Mapping]] = ..., top: _Optional[_Iterable[_Union[TokenLogprob, _Mapping]]] = ...) -> None: ...

class AcceptedPath(_message.Message):
    __slots__ = ("request_id", "choice_index", "epoch", "cycle", "slot", "generation", "nodes", "emitted_ids", "pending_id", "committed_length", "cut_reason", "cut_index", "digest", "logprobs")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    CHOICE_INDEX_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    CYCLE_FIELD_NUMBER: _ClassVar[int]
    SLOT_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    EMITTED_IDS_FIELD_NUMBER: _ClassVar[int]
    PENDING_ID_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_LENGTH_FIELD_NUMBER: _ClassVar[int]
    CUT_REASON_FIELD_NUMBER: _ClassVar[int]
    CUT_INDEX_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    choice_index: int
    epoch: int
    cycle: int
    slot: int
    generation: int
    nodes: _containers.RepeatedScalarFieldContainer[int]
    emitted_ids: _containers.RepeatedScalarFieldContainer[int]
    pending_id: int
    committed_length: int
    cut_reason: CutReason
    cut_index: int
    digest: bytes
    logprobs: _containers.RepeatedCompositeFieldContainer[EmittedLogprobs]
    def __init__(self, request_id: _Optional[str] = ..., choice_index: _Optional[int] = ..., epoch: _Optional[int] = ..., cycle: _Optional[int] = ..., slot: _Optional[int] = ..., generation: _Optional[int] = ..., nodes: _Optional[_Iterable[int]] = ..., emitted_ids: _Optional[_Iterable[int]] = ..., pending_id: _Optional[int] = ..., committed_length: _Optional[int] = ..., cut_reason: _Optional[_Union[CutReason, str]] = ..., cut_index: _Optional[int] = ..., digest: _Optional[bytes] = ..., logprobs: _Optional[_Iterable[_Union[EmittedLogprobs, _Mapping]]] = ...) -> None: ...
