from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class RedundancyOptions(_message.Message):
    __slots__ = ("min_quorum", "target_results", "max_error", "max_total", "max_success", "delay_bound_s")
    MIN_QUORUM_FIELD_NUMBER: _ClassVar[int]
    TARGET_RESULTS_FIELD_NUMBER: _ClassVar[int]
    MAX_ERROR_FIELD_NUMBER: _ClassVar[int]
    MAX_TOTAL_FIELD_NUMBER: _ClassVar[int]
    MAX_SUCCESS_FIELD_NUMBER: _ClassVar[int]
    DELAY_BOUND_S_FIELD_NUMBER: _ClassVar[int]
    min_quorum: int
    target_results: int
    max_error: int
    max_total: int
    max_success: int
    delay_bound_s: int
    def __init__(self, min_quorum: _Optional[int] = ..., target_results: _Optional[int] = ..., max_error: _Optional[int] = ..., max_total: _Optional[int] = ..., max_success: _Optional[int] = ..., delay_bound_s: _Optional[int] = ...) -> None: ...

class RunLimits(_message.Message):
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

class CreateTaskRequest(_message.Message):
    __slots__ = ("idempotency_key", "task_module", "entry", "validator_module", "init_entry", "compare_entry", "arguments", "blobs", "level", "flavor", "redundancy", "limits", "label", "publish_source", "topics", "map_items")
    IDEMPOTENCY_KEY_FIELD_NUMBER: _ClassVar[int]
    TASK_MODULE_FIELD_NUMBER: _ClassVar[int]
    ENTRY_FIELD_NUMBER: _ClassVar[int]
    VALIDATOR_MODULE_FIELD_NUMBER: _ClassVar[int]
    INIT_ENTRY_FIELD_NUMBER: _ClassVar[int]
    COMPARE_ENTRY_FIELD_NUMBER: _ClassVar[int]
    ARGUMENTS_FIELD_NUMBER: _ClassVar[int]
    BLOBS_FIELD_NUMBER: _ClassVar[int]
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    FLAVOR_FIELD_NUMBER: _ClassVar[int]
    REDUNDANCY_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    LABEL_FIELD_NUMBER: _ClassVar[int]
    PUBLISH_SOURCE_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    MAP_ITEMS_FIELD_NUMBER: _ClassVar[int]
    idempotency_key: str
    task_module: bytes
    entry: str
    validator_module: bytes
    init_entry: str
    compare_entry: str
    arguments: bytes
    blobs: _containers.RepeatedScalarFieldContainer[str]
    level: str
    flavor: str
    redundancy: RedundancyOptions
    limits: RunLimits
    label: str
    publish_source: bool
    topics: _containers.RepeatedScalarFieldContainer[str]
    map_items: int
    def __init__(self, idempotency_key: _Optional[str] = ..., task_module: _Optional[bytes] = ..., entry: _Optional[str] = ..., validator_module: _Optional[bytes] = ..., init_entry: _Optional[str] = ..., compare_entry: _Optional[str] = ..., arguments: _Optional[bytes] = ..., blobs: _Optional[_Iterable[str]] = ..., level: _Optional[str] = ..., flavor: _Optional[str] = ..., redundancy: _Optional[_Union[RedundancyOptions, _Mapping]] = ..., limits: _Optional[_Union[RunLimits, _Mapping]] = ..., label: _Optional[str] = ..., publish_source: _Optional[bool] = ..., topics: _Optional[_Iterable[str]] = ..., map_items: _Optional[int] = ...) -> None: ...

class Finding(_message.Message):
    __slots__ = ("code", "severity", "line", "column", "end_line", "end_column", "message", "hint")
    CODE_FIELD_NUMBER: _ClassVar[int]
    SEVERITY_FIELD_NUMBER: _ClassVar[int]
    LINE_FIELD_NUMBER: _ClassVar[int]
    COLUMN_FIELD_NUMBER: _ClassVar[int]
    END_LINE_FIELD_NUMBER: _ClassVar[int]
    END_COLUMN_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    HINT_FIELD_NUMBER: _ClassVar[int]
    code: str
    severity: str
    line: int
    column: int
    end_line: int
    end_column: int
    message: str
    hint: str
    def __init__(self, code: _Optional[str] = ..., severity: _Optional[str] = ..., line: _Optional[int] = ..., column: _Optional[int] = ..., end_line: _Optional[int] = ..., end_column: _Optional[int] = ..., message: _Optional[str] = ..., hint: _Optional[str] = ...) -> None: ...

class CreateTaskResponse(_message.Message):
    __slots__ = ("task_id", "level")
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    task_id: str
    level: str
    def __init__(self, task_id: _Optional[str] = ..., level: _Optional[str] = ...) -> None: ...

class CreateTasksRequest(_message.Message):
    __slots__ = ("tasks",)
    TASKS_FIELD_NUMBER: _ClassVar[int]
    tasks: _containers.RepeatedCompositeFieldContainer[CreateTaskRequest]
    def __init__(self, tasks: _Optional[_Iterable[_Union[CreateTaskRequest, _Mapping]]] = ...) -> None: ...

class CreatedTask(_message.Message):
    __slots__ = ("task", "error")
    TASK_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    task: CreateTaskResponse
    error: ErrorDetail
    def __init__(self, task: _Optional[_Union[CreateTaskResponse, _Mapping]] = ..., error: _Optional[_Union[ErrorDetail, _Mapping]] = ...) -> None: ...

class CreateTasksResponse(_message.Message):
    __slots__ = ("tasks",)
    TASKS_FIELD_NUMBER: _ClassVar[int]
    tasks: _containers.RepeatedCompositeFieldContainer[CreatedTask]
    def __init__(self, tasks: _Optional[_Iterable[_Union[CreatedTask, _Mapping]]] = ...) -> None: ...

class WaitTasksRequest(_message.Message):
    __slots__ = ("task_ids",)
    TASK_IDS_FIELD_NUMBER: _ClassVar[int]
    task_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, task_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class PollTaskRequest(_message.Message):
    __slots__ = ("task_id",)
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    task_id: str
    def __init__(self, task_id: _Optional[str] = ...) -> None: ...

class ItemOutcome(_message.Message):
    __slots__ = ("state", "value", "error_type", "error_text", "code", "value_blob")
    STATE_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    ERROR_TYPE_FIELD_NUMBER: _ClassVar[int]
    ERROR_TEXT_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    VALUE_BLOB_FIELD_NUMBER: _ClassVar[int]
    state: str
    value: bytes
    error_type: str
    error_text: str
    code: str
    value_blob: str
    def __init__(self, state: _Optional[str] = ..., value: _Optional[bytes] = ..., error_type: _Optional[str] = ..., error_text: _Optional[str] = ..., code: _Optional[str] = ..., value_blob: _Optional[str] = ...) -> None: ...

class CopyStatus(_message.Message):
    __slots__ = ("name", "state", "outcome", "code", "sent_at", "received_at", "cpu_s", "fraction_done")
    NAME_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    SENT_AT_FIELD_NUMBER: _ClassVar[int]
    RECEIVED_AT_FIELD_NUMBER: _ClassVar[int]
    CPU_S_FIELD_NUMBER: _ClassVar[int]
    FRACTION_DONE_FIELD_NUMBER: _ClassVar[int]
    name: str
    state: str
    outcome: str
    code: str
    sent_at: int
    received_at: int
    cpu_s: float
    fraction_done: float
    def __init__(self, name: _Optional[str] = ..., state: _Optional[str] = ..., outcome: _Optional[str] = ..., code: _Optional[str] = ..., sent_at: _Optional[int] = ..., received_at: _Optional[int] = ..., cpu_s: _Optional[float] = ..., fraction_done: _Optional[float] = ...) -> None: ...

class PollTaskResponse(_message.Message):
    __slots__ = ("task_id", "state", "value", "value_blob", "error_type", "error_text", "code", "output", "explanation", "copies", "items", "level", "created_at", "log_index", "logged", "attempt", "retry_after_ms")
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    VALUE_BLOB_FIELD_NUMBER: _ClassVar[int]
    ERROR_TYPE_FIELD_NUMBER: _ClassVar[int]
    ERROR_TEXT_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    EXPLANATION_FIELD_NUMBER: _ClassVar[int]
    COPIES_FIELD_NUMBER: _ClassVar[int]
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    LOG_INDEX_FIELD_NUMBER: _ClassVar[int]
    LOGGED_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    RETRY_AFTER_MS_FIELD_NUMBER: _ClassVar[int]
    task_id: str
    state: str
    value: bytes
    value_blob: str
    error_type: str
    error_text: str
    code: str
    output: str
    explanation: str
    copies: _containers.RepeatedCompositeFieldContainer[CopyStatus]
    items: _containers.RepeatedCompositeFieldContainer[ItemOutcome]
    level: str
    created_at: int
    log_index: int
    logged: bool
    attempt: int
    retry_after_ms: int
    def __init__(self, task_id: _Optional[str] = ..., state: _Optional[str] = ..., value: _Optional[bytes] = ..., value_blob: _Optional[str] = ..., error_type: _Optional[str] = ..., error_text: _Optional[str] = ..., code: _Optional[str] = ..., output: _Optional[str] = ..., explanation: _Optional[str] = ..., copies: _Optional[_Iterable[_Union[CopyStatus, _Mapping]]] = ..., items: _Optional[_Iterable[_Union[ItemOutcome, _Mapping]]] = ..., level: _Optional[str] = ..., created_at: _Optional[int] = ..., log_index: _Optional[int] = ..., logged: _Optional[bool] = ..., attempt: _Optional[int] = ..., retry_after_ms: _Optional[int] = ...) -> None: ...

class ListTasksRequest(_message.Message):
    __slots__ = ("states", "label", "limit")
    STATES_FIELD_NUMBER: _ClassVar[int]
    LABEL_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    states: _containers.RepeatedScalarFieldContainer[str]
    label: str
    limit: int
    def __init__(self, states: _Optional[_Iterable[str]] = ..., label: _Optional[str] = ..., limit: _Optional[int] = ...) -> None: ...

class ListedTask(_message.Message):
    __slots__ = ("task_id", "state", "level", "label", "map_items", "created_at", "finished_at")
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    LABEL_FIELD_NUMBER: _ClassVar[int]
    MAP_ITEMS_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    FINISHED_AT_FIELD_NUMBER: _ClassVar[int]
    task_id: str
    state: str
    level: str
    label: str
    map_items: int
    created_at: int
    finished_at: int
    def __init__(self, task_id: _Optional[str] = ..., state: _Optional[str] = ..., level: _Optional[str] = ..., label: _Optional[str] = ..., map_items: _Optional[int] = ..., created_at: _Optional[int] = ..., finished_at: _Optional[int] = ...) -> None: ...

class ListTasksResponse(_message.Message):
    __slots__ = ("tasks",)
    TASKS_FIELD_NUMBER: _ClassVar[int]
    tasks: _containers.RepeatedCompositeFieldContainer[ListedTask]
    def __init__(self, tasks: _Optional[_Iterable[_Union[ListedTask, _Mapping]]] = ...) -> None: ...

class CancelTaskRequest(_message.Message):
    __slots__ = ("task_id",)
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    task_id: str
    def __init__(self, task_id: _Optional[str] = ...) -> None: ...

class CancelTaskResponse(_message.Message):
    __slots__ = ("state",)
    STATE_FIELD_NUMBER: _ClassVar[int]
    state: str
    def __init__(self, state: _Optional[str] = ...) -> None: ...

class RejectResultRequest(_message.Message):
    __slots__ = ("task_id", "reason")
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    task_id: str
    reason: str
    def __init__(self, task_id: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class RejectResultResponse(_message.Message):
    __slots__ = ("copies",)
    COPIES_FIELD_NUMBER: _ClassVar[int]
    copies: int
    def __init__(self, copies: _Optional[int] = ...) -> None: ...

class UploadBlobRequest(_message.Message):
    __slots__ = ("digest", "size", "data")
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    digest: str
    size: int
    data: bytes
    def __init__(self, digest: _Optional[str] = ..., size: _Optional[int] = ..., data: _Optional[bytes] = ...) -> None: ...

class UploadBlobResponse(_message.Message):
    __slots__ = ("digest",)
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    digest: str
    def __init__(self, digest: _Optional[str] = ...) -> None: ...

class DownloadBlobRequest(_message.Message):
    __slots__ = ("digest",)
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    digest: str
    def __init__(self, digest: _Optional[str] = ...) -> None: ...

class DownloadBlobResponse(_message.Message):
    __slots__ = ("data",)
    DATA_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    def __init__(self, data: _Optional[bytes] = ...) -> None: ...

class ErrorDetail(_message.Message):
    __slots__ = ("code", "message", "hint", "family", "findings")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    HINT_FIELD_NUMBER: _ClassVar[int]
    FAMILY_FIELD_NUMBER: _ClassVar[int]
    FINDINGS_FIELD_NUMBER: _ClassVar[int]
    code: str
    message: str
    hint: str
    family: str
    findings: _containers.RepeatedCompositeFieldContainer[Finding]
    def __init__(self, code: _Optional[str] = ..., message: _Optional[str] = ..., hint: _Optional[str] = ..., family: _Optional[str] = ..., findings: _Optional[_Iterable[_Union[Finding, _Mapping]]] = ...) -> None: ...
