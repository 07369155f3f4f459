from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ShowAccountRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class AccountUse(_message.Message):
    __slots__ = ("whose", "what", "used", "most")
    WHOSE_FIELD_NUMBER: _ClassVar[int]
    WHAT_FIELD_NUMBER: _ClassVar[int]
    USED_FIELD_NUMBER: _ClassVar[int]
    MOST_FIELD_NUMBER: _ClassVar[int]
    whose: str
    what: str
    used: int
    most: int
    def __init__(self, whose: _Optional[str] = ..., what: _Optional[str] = ..., used: _Optional[int] = ..., most: _Optional[int] = ...) -> None: ...

class AccountToken(_message.Message):
    __slots__ = ("token", "name", "role", "scope", "created_at", "expires_at", "revoked_at")
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_AT_FIELD_NUMBER: _ClassVar[int]
    REVOKED_AT_FIELD_NUMBER: _ClassVar[int]
    token: str
    name: str
    role: str
    scope: str
    created_at: int
    expires_at: int
    revoked_at: int
    def __init__(self, token: _Optional[str] = ..., name: _Optional[str] = ..., role: _Optional[str] = ..., scope: _Optional[str] = ..., created_at: _Optional[int] = ..., expires_at: _Optional[int] = ..., revoked_at: _Optional[int] = ...) -> None: ...

class ShowAccountResponse(_message.Message):
    __slots__ = ("name", "group", "share", "suspended_at", "uses", "tokens")
    NAME_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    SHARE_FIELD_NUMBER: _ClassVar[int]
    SUSPENDED_AT_FIELD_NUMBER: _ClassVar[int]
    USES_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    name: str
    group: str
    share: int
    suspended_at: int
    uses: _containers.RepeatedCompositeFieldContainer[AccountUse]
    tokens: _containers.RepeatedCompositeFieldContainer[AccountToken]
    def __init__(self, name: _Optional[str] = ..., group: _Optional[str] = ..., share: _Optional[int] = ..., suspended_at: _Optional[int] = ..., uses: _Optional[_Iterable[_Union[AccountUse, _Mapping]]] = ..., tokens: _Optional[_Iterable[_Union[AccountToken, _Mapping]]] = ...) -> None: ...

class IssueTokenRequest(_message.Message):
    __slots__ = ("name", "days")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DAYS_FIELD_NUMBER: _ClassVar[int]
    name: str
    days: int
    def __init__(self, name: _Optional[str] = ..., days: _Optional[int] = ...) -> None: ...

class IssueTokenResponse(_message.Message):
    __slots__ = ("token",)
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    token: str
    def __init__(self, token: _Optional[str] = ...) -> None: ...

class RevokeTokenRequest(_message.Message):
    __slots__ = ("token",)
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    token: str
    def __init__(self, token: _Optional[str] = ...) -> None: ...

class RevokeTokenResponse(_message.Message):
    __slots__ = ("revoked",)
    REVOKED_FIELD_NUMBER: _ClassVar[int]
    revoked: bool
    def __init__(self, revoked: _Optional[bool] = ...) -> None: ...
