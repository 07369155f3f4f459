"""SHA-256 in two forms: plain for content names, domain-separated for anything structured.

Files (modules, arguments, blobs, flavors) are named by plain SHA-256 so that anybody can
check them with ``sha256sum`` and in-toto subjects match. Every other digest is computed
over ``"stoilo/" domain NUL data`` so that no digest of one kind can stand for another.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Any, NewType

from stoilo.core.errors import TrustError

try:  # CPython's own form: OpenSSL's would cost every cold start of a jail 3 ms
    import _sha256 as _own  # type: ignore[import-not-found, unused-ignore]
except ImportError:
    import hashlib as _own


Buffer = bytes | bytearray | memoryview
Digest = NewType("Digest", str)  # 64 lower-case hexadecimal digits

_HEX64 = re.compile(r"[0-9a-f]{64}")


class Domain(StrEnum):
    """What a domain-separated digest is of; the value is part of the hash input."""

    LEVEL = "level/v1"
    LIBRARY = "library/v1"
    LANGUAGE = "language/v1"
    POLICY = "policy/v1"
    VERDICT = "verdict/v1"
    COMMITMENT = "commitment/v1"
    STATEMENT = "statement/v1"
    REFUSALS = "refusals/v1"
    SEED = "seed/v1"
    TOKEN = "token/v1"  # noqa: S105 - a domain name, not a secret
    RESULT = "result/v1"

    __hash__ = str.__hash__  # asked for every digest; `Enum`'s own is in Python


def content_digest(data: Buffer) -> Digest:
    """Return the plain SHA-256 of `data`, the name of a file or blob."""
    import hashlib  # noqa: PLC0415 - files may be large, and OpenSSL is faster at them

    return Digest(hashlib.sha256(data).hexdigest())


def domain_digest(domain: Domain, *parts: bytes) -> Digest:
    """Return SHA-256 over the domain and length-prefixed `parts`."""
    pieces = [_PREFIXES[domain]]
    for part in parts:
        pieces += (len(part).to_bytes(8, "big"), part)
    state: Any = _own.sha256(b"".join(pieces))
    return Digest(state.hexdigest())


_PREFIXES = {domain: b"stoilo/" + domain.value.encode() + b"\0" for domain in Domain}


def check_digest(text: str) -> Digest:
    """Return `text` as a digest or raise ``STO-D002``; `text` is untrusted."""
    if not _HEX64.fullmatch(text):
        raise TrustError(
            "STO-D002", "a SHA-256 digest must be 64 lower-case hex digits"
        )
    return Digest(text)
