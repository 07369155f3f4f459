from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ListReviewsRequest(_message.Message):
    __slots__ = ("limit",)
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    limit: int
    def __init__(self, limit: _Optional[int] = ...) -> None: ...

class WaitingTask(_message.Message):
    __slots__ = ("task_id", "level", "task_module", "source_bytes", "submitter", "waiting_since", "expires_at", "own")
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    TASK_MODULE_FIELD_NUMBER: _ClassVar[int]
    SOURCE_BYTES_FIELD_NUMBER: _ClassVar[int]
    SUBMITTER_FIELD_NUMBER: _ClassVar[int]
    WAITING_SINCE_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_AT_FIELD_NUMBER: _ClassVar[int]
    OWN_FIELD_NUMBER: _ClassVar[int]
    task_id: str
    level: str
    task_module: str
    source_bytes: int
    submitter: str
    waiting_since: int
    expires_at: int
    own: bool
    def __init__(self, task_id: _Optional[str] = ..., level: _Optional[str] = ..., task_module: _Optional[str] = ..., source_bytes: _Optional[int] = ..., submitter: _Optional[str] = ..., waiting_since: _Optional[int] = ..., expires_at: _Optional[int] = ..., own: _Optional[bool] = ...) -> None: ...

class ListReviewsResponse(_message.Message):
    __slots__ = ("tasks", "waiting")
    TASKS_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    tasks: _containers.RepeatedCompositeFieldContainer[WaitingTask]
    waiting: int
    def __init__(self, tasks: _Optional[_Iterable[_Union[WaitingTask, _Mapping]]] = ..., waiting: _Optional[int] = ...) -> None: ...

class GetReviewRequest(_message.Message):
    __slots__ = ("task_id",)
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    task_id: str
    def __init__(self, task_id: _Optional[str] = ...) -> None: ...

class ReviewLimits(_message.Message):
    __slots__ = ("cpu_s", "wall_s", "memory_bytes", "result_bytes", "output_bytes", "threads")
    CPU_S_FIELD_NUMBER: _ClassVar[int]
    WALL_S_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    RESULT_BYTES_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_BYTES_FIELD_NUMBER: _ClassVar[int]
    THREADS_FIELD_NUMBER: _ClassVar[int]
    cpu_s: int
    wall_s: int
    memory_bytes: int
    result_bytes: int
    output_bytes: int
    threads: int
    def __init__(self, cpu_s: _Optional[int] = ..., wall_s: _Optional[int] = ..., memory_bytes: _Optional[int] = ..., result_bytes: _Optional[int] = ..., output_bytes: _Optional[int] = ..., threads: _Optional[int] = ...) -> None: ...

class GetReviewResponse(_message.Message):
    __slots__ = ("task_id", "task_module", "entry", "validator_module", "init_entry", "compare_entry", "arguments", "blobs", "level", "flavor", "limits", "submitter", "map_items", "publish_source")
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    TASK_MODULE_FIELD_NUMBER: _ClassVar[int]
    ENTRY_FIELD_NUMBER: _ClassVar[int]
    VALIDATOR_MODULE_FIELD_NUMBER: _ClassVar[int]
    INIT_ENTRY_FIELD_NUMBER: _ClassVar[int]
    COMPARE_ENTRY_FIELD_NUMBER: _ClassVar[int]
    ARGUMENTS_FIELD_NUMBER: _ClassVar[int]
    BLOBS_FIELD_NUMBER: _ClassVar[int]
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    FLAVOR_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    SUBMITTER_FIELD_NUMBER: _ClassVar[int]
    MAP_ITEMS_FIELD_NUMBER: _ClassVar[int]
    PUBLISH_SOURCE_FIELD_NUMBER: _ClassVar[int]
    task_id: str
    task_module: bytes
    entry: str
    validator_module: bytes
    init_entry: str
    compare_entry: str
    arguments: bytes
    blobs: _containers.RepeatedScalarFieldContainer[str]
    level: str
    flavor: str
    limits: ReviewLimits
    submitter: str
    map_items: int
    publish_source: bool
    def __init__(self, task_id: _Optional[str] = ..., task_module: _Optional[bytes] = ..., entry: _Optional[str] = ..., validator_module: _Optional[bytes] = ..., init_entry: _Optional[str] = ..., compare_entry: _Optional[str] = ..., arguments: _Optional[bytes] = ..., blobs: _Optional[_Iterable[str]] = ..., level: _Optional[str] = ..., flavor: _Optional[str] = ..., limits: _Optional[_Union[ReviewLimits, _Mapping]] = ..., submitter: _Optional[str] = ..., map_items: _Optional[int] = ..., publish_source: _Optional[bool] = ...) -> None: ...

class SubmitReviewRequest(_message.Message):
    __slots__ = ("task_id", "envelope")
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    ENVELOPE_FIELD_NUMBER: _ClassVar[int]
    task_id: str
    envelope: bytes
    def __init__(self, task_id: _Optional[str] = ..., envelope: _Optional[bytes] = ...) -> None: ...

class SubmitReviewResponse(_message.Message):
    __slots__ = ("released",)
    RELEASED_FIELD_NUMBER: _ClassVar[int]
    released: int
    def __init__(self, released: _Optional[int] = ...) -> None: ...

class RefuseTaskRequest(_message.Message):
    __slots__ = ("task_id", "reason")
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    task_id: str
    reason: str
    def __init__(self, task_id: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class RefuseTaskResponse(_message.Message):
    __slots__ = ("state",)
    STATE_FIELD_NUMBER: _ClassVar[int]
    state: str
    def __init__(self, state: _Optional[str] = ...) -> None: ...
