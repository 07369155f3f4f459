from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ProgressPoint(_message.Message):
    __slots__ = ("version", "loss", "held_out", "answers")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    LOSS_FIELD_NUMBER: _ClassVar[int]
    HELD_OUT_FIELD_NUMBER: _ClassVar[int]
    ANSWERS_FIELD_NUMBER: _ClassVar[int]
    version: int
    loss: float
    held_out: float
    answers: int
    def __init__(self, version: _Optional[int] = ..., loss: _Optional[float] = ..., held_out: _Optional[float] = ..., answers: _Optional[int] = ...) -> None: ...

class ReportProgressRequest(_message.Message):
    __slots__ = ("label", "points", "refused", "failed", "stragglers", "ended")
    LABEL_FIELD_NUMBER: _ClassVar[int]
    POINTS_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    STRAGGLERS_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    label: str
    points: _containers.RepeatedCompositeFieldContainer[ProgressPoint]
    refused: int
    failed: int
    stragglers: int
    ended: bool
    def __init__(self, label: _Optional[str] = ..., points: _Optional[_Iterable[_Union[ProgressPoint, _Mapping]]] = ..., refused: _Optional[int] = ..., failed: _Optional[int] = ..., stragglers: _Optional[int] = ..., ended: _Optional[bool] = ...) -> None: ...

class ReportProgressResponse(_message.Message):
    __slots__ = ("points",)
    POINTS_FIELD_NUMBER: _ClassVar[int]
    points: int
    def __init__(self, points: _Optional[int] = ...) -> None: ...
