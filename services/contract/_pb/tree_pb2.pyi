from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class NodeSource(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    NODE_SOURCE_UNSPECIFIED: _ClassVar[NodeSource]
    NODE_SOURCE_ROOT: _ClassVar[NodeSource]
    NODE_SOURCE_MTP_SPINE: _ClassVar[NodeSource]
    NODE_SOURCE_MTP_RUNNER_UP: _ClassVar[NodeSource]
    NODE_SOURCE_SUFFIX_TAIL: _ClassVar[NodeSource]
    NODE_SOURCE_SUFFIX_RESCUE: _ClassVar[NodeSource]
    NODE_SOURCE_TEST: _ClassVar[NodeSource]
    NODE_SOURCE_FORCED: _ClassVar[NodeSource]
    NODE_SOURCE_PADDING: _ClassVar[NodeSource]
NODE_SOURCE_UNSPECIFIED: NodeSource
NODE_SOURCE_ROOT: NodeSource
NODE_SOURCE_MTP_SPINE: NodeSource
NODE_SOURCE_MTP_RUNNER_UP: NodeSource
NODE_SOURCE_SUFFIX_TAIL: NodeSource
NODE_SOURCE_SUFFIX_RESCUE: NodeSource
NODE_SOURCE_TEST: NodeSource
NODE_SOURCE_FORCED: NodeSource
NODE_SOURCE_PADDING: NodeSource

class TreeDescriptor(_message.Message):
    __slots__ = ("version", "request_id", "choice_index", "epoch", "cycle", "committed_length", "slot", "generation", "row_capacity", "active_count", "token_ids", "parents", "depths", "positions", "sources", "draft_logprobs", "is_padding", "node_to_slot", "slot_to_node", "checksum")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    CHOICE_INDEX_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    CYCLE_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_LENGTH_FIELD_NUMBER: _ClassVar[int]
    SLOT_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    ROW_CAPACITY_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_COUNT_FIELD_NUMBER: _ClassVar[int]
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    PARENTS_FIELD_NUMBER: _ClassVar[int]
    DEPTHS_FIELD_NUMBER: _ClassVar[int]
    POSITIONS_FIELD_NUMBER: _ClassVar[int]
    SOURCES_FIELD_NUMBER: _ClassVar[int]
    DRAFT_LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    IS_PADDING_FIELD_NUMBER: _ClassVar[int]
    NODE_TO_SLOT_FIELD_NUMBER: _ClassVar[int]
    SLOT_TO_NODE_FIELD_NUMBER: _ClassVar[int]
    CHECKSUM_FIELD_NUMBER: _ClassVar[int]
    version: int
    request_id: str
    choice_index: int
    epoch: int
    cycle: int
    committed_length: int
    slot: int
    generation: int
    row_capacity: int
    active_count: int
    token_ids: _containers.RepeatedScalarFieldContainer[int]
    parents: _containers.RepeatedScalarFieldContainer[int]
    depths: _containers.RepeatedScalarFieldContainer[int]
    positions: _containers.RepeatedScalarFieldContainer[int]
    sources: _containers.RepeatedScalarFieldContainer[NodeSource]
    draft_logprobs: _containers.RepeatedScalarFieldContainer[float]
    is_padding: _containers.RepeatedScalarFieldContainer[bool]
    node_to_slot: _containers.RepeatedScalarFieldContainer[int]
    slot_to_node: _containers.RepeatedScalarFieldContainer[int]
    checksum: int
    def __init__(self, version: _Optional[int] = ..., request_id: _Optional[str] = ..., choice_index: _Optional[int] = ..., epoch: _Optional[int] = ..., cycle: _Optional[int] = ..., committed_length: _Optional[int] = ..., slot: _Optional[int] = ..., generation: _Optional[int] = ..., row_capacity: _Optional[int] = ..., active_count: _Optional[int] = ..., token_ids: _Optional[_Iterable[int]] = ..., parents: _Optional[_Iterable[int]] = ..., depths: _Optional[_Iterable[int]] = ..., positions: _Optional[_Iterable[int]] = ..., sources: _Optional[_Iterable[_Union[NodeSource, str]]] = ..., draft_logprobs: _Optional[_Iterable[float]] = ..., is_padding: _Optional[_Iterable[bool]] = ..., node_to_slot: _Optional[_Iterable[int]] = ..., slot_to_node: _Optional[_Iterable[int]] = ..., checksum: _Optional[int] = ...) -> None: ...
