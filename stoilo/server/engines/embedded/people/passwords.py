"""Passwords of volunteers: what BOINC sends of them, which are refused, how they are kept.

A BOINC client sends the MD5 of password and address and never the password, so its
length cannot be seen here; the client enforces `MIN_CHARS` (``get_project_config``). What
can be tried is tried: the passwords that everybody tries first.
"""

from __future__ import annotations

import hashlib
import re
from typing import Final

from stoilo.core.errors import UsageError

__all__ = ["MIN_CHARS", "check_password", "hash_password", "password_digest"]

MIN_CHARS: Final = 10
_HEX32: Final = re.compile(r"[0-9a-f]{32}")
_SCRYPT_N: Final = 2**14
_COMMON: Final = """
    123456 1234567 12345678 123456789 1234567890 0123456789 111111 000000 1111111111
    password password1 password12 password123 passw0rd qwerty qwerty123 qwertyuiop
    1q2w3e4r5t abc123 abcdef abcdefghij iloveyou letmein welcome admin administrator
    changeme secret boinc boincboinc stoilo stoilostoilo volunteer
"""


def password_digest(password: str, address: str) -> str:
    """Return what a BOINC client sends of a password; `address` in lower case."""
    text = f"{password}{address}".encode()
    return hashlib.md5(text, usedforsecurity=False).hexdigest()


def check_password(digest: str, address: str) -> None:
    """Refuse a password's (untrusted) digest that cannot be kept; ``STO-E063``."""
    if not _HEX32.fullmatch(digest):
        raise UsageError("STO-E063", "passwd_hash must be 32 hex digits")
    local = address.partition("@")[0]
    known = {
        password_digest(word, address)
        for word in ("", address, local, *_COMMON.split())
    }
    if digest in known:
        raise UsageError(
            "STO-E063",
            "this password is too easy to guess",
            hint=f"choose at least {MIN_CHARS} characters that nobody would try",
        )


def hash_password(digest: str, salt: str) -> str:
    """Return what is stored of a password's digest."""
    return hashlib.scrypt(
        digest.encode(), salt=salt.encode(), n=_SCRYPT_N, r=8, p=1, dklen=32
    ).hex()
