"""Passwords of accounts made over the web: as BOINC sends them, and as they are stored."""

from __future__ import annotations

import hashlib
import re
import threading
from typing import Final

from stoilo.core.errors import DeniedError, UsageError

# A BOINC client sends the MD5 of password and address and never the password, so its length
# cannot be seen here; the client enforces `MIN_CHARS` (``get_project_config``). What can be
# tried is tried: the passwords that everybody tries first.
MIN_CHARS: Final = 10
# Passwords hashed at the same time: each takes 16 MiB and tens of ms of a processor
AT_ONCE: Final = 2
# Calls that may wait for their turn; the next one is told to come again
MOST_WAITING: Final = 8
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
    """Refuse a password's (untrusted) digest that cannot be kept; ``STO-E015``."""
    if not _HEX32.fullmatch(digest):
        raise UsageError("STO-E015", "passwd_hash must be 32 hex digits")
    known = ("", address, address.partition("@")[0], *_COMMON.split())
    if digest in {password_digest(word, address) for word in known}:
        raise UsageError(
            "STO-E015",
            "this password is too easy to guess",
            hint=f"choose at least {MIN_CHARS} characters that nobody would try",
        )


class Turns:
    """Lets `at_once` callers work at a time and `waiting` more wait; refuses the rest.

    However many addresses ask, no more memory, processor and threads go into passwords.
    """

    def __init__(self, at_once: int, waiting: int) -> None:
        self._admitted = threading.BoundedSemaphore(at_once + waiting)
        self._working = threading.BoundedSemaphore(at_once)

    def __enter__(self) -> None:
        """Wait for a turn; raises ``STO-E068`` when too many wait."""
        if not self._admitted.acquire(blocking=False):
            raise DeniedError(
                "STO-E068",
                "too many passwords are being checked",
                hint="try again in a few seconds",
            )
        self._working.acquire()

    def __exit__(self, *exc_info: object) -> None:
        """Let the next one work."""
        self._working.release()
        self._admitted.release()


_TURNS: Final = Turns(AT_ONCE, MOST_WAITING)


def hash_password(digest: str, salt: str, turns: Turns = _TURNS) -> str:
    """Return what is stored of a password's digest; raises ``STO-E068``."""
    with turns:
        return hashlib.scrypt(
            digest.encode(), salt=salt.encode(), n=_SCRYPT_N, r=8, p=1, dklen=32
        ).hex()
