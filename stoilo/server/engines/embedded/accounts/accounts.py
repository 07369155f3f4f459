"""Volunteers' accounts: keys derived from a secret file, only hashes in the database.

A key (BOINC: authenticator) is an HMAC over the account's e-mail, so it can be shown
again without being stored; a thief of the database alone can neither use nor recompute
it. New keys are the HMAC over one number more: the old ones stop at once.
The weak key reports and fetches work and opens nothing else (reference/boinc.md §0.4).

Nobody verifies addresses. An account that was made over the web has a password, and
whoever knows that made it: such an account is *unverified*. One that the operator made,
or gave new keys, has none: only whom the operator told its keys can use it.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import secrets
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from sqlalchemy import delete, insert, select, update

from stoilo.core.digests import Domain, domain_digest
from stoilo.core.errors import DeniedError, InternalError, UsageError
from stoilo.core.limits import BOUNDS
from stoilo.server.engines.embedded.accounts.host_filter import LEVELS
from stoilo.server.engines.embedded.accounts.preferences import (
    Person,
    ProjectPreferences,
    allow_levels,
    check_name,
    load_person,
    preferences_of,
    save_person,
)
from stoilo.server.engines.embedded.accounts.quotas import is_newcomer
from stoilo.server.engines.embedded.db import schema
from stoilo.server.engines.embedded.db.database import Database

if TYPE_CHECKING:
    from pathlib import Path

    from sqlalchemy import ColumnElement, Connection

    from stoilo.server.engines.embedded.db.schema import AnyRow


MIN_CHARS: Final = 10
# A BOINC client sends the MD5 of password and address and never the password, so its length
# cannot be seen here; the client enforces `MIN_CHARS` (``get_project_config``). What can be
# tried is tried: the passwords that everybody tries first.
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


class Turns:
    """Lets `at_once` callers work at a time and `waiting` more wait; refuses the rest.

    However many addresses ask, no more memory, processor and threads go into passwords.
    """

    def __init__(self, at_once: int, waiting: int) -> None:
        self._admitted = threading.BoundedSemaphore(at_once + waiting)
        self._working = threading.BoundedSemaphore(at_once)

    def __enter__(self) -> None:
        """Wait for a turn; raises ``STO-E013`` when too many wait."""
        if not self._admitted.acquire(blocking=False):
            raise DeniedError(
                "STO-E013",
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
    """Return what is stored of a password's digest.

    Raises:
        DeniedError: ``STO-E013`` too many others are waiting; nothing was tried.
    """
    with turns:
        return hashlib.scrypt(
            digest.encode(), salt=salt.encode(), n=_SCRYPT_N, r=8, p=1, dklen=32
        ).hex()


SECRET_BYTES = 32
KEY_CHARS = 32
_EMAIL = re.compile(r"[A-Za-z0-9._%+-]{1,64}@[A-Za-z0-9.-]{1,185}")
_MAX_EMAIL = 254


@dataclass(frozen=True, slots=True)
class Account:
    """An account with its keys in clear; show them to nobody but their owner."""

    user_id: int  # its row
    email: str  # its address, in the one form that is stored
    key: str  # strong; changes what the account lets the project do
    weak_key: str  # fetches and reports work
    max_level: str  # the highest level whose tasks may be sent
    name: str = ""  # shown to others, empty for none
    # the operator gave out its keys; else it was made over the web, by somebody who
    # said that the address is his
    verified: bool = True
    key_number: int = 0  # how often its keys were changed


@dataclass(frozen=True, slots=True)
class User:
    """Who a scheduler request comes from, which apps may be sent, what was chosen."""

    id: int  # row of the account
    apps: tuple[str, ...]  # what may be sent
    banned: bool = False  # the account is
    # its preferences
    chosen: ProjectPreferences = field(default_factory=ProjectPreferences)
    # the caller has shown the weak key: nothing of the account may change
    weak: bool = False
    newcomer: bool = False  # a stranger none of whose results was ever valid
    paused_until: int = 0  # no new results before that, s


def load_secret(path: Path) -> bytes:
    """Return the secret in `path` (0600), made on first use.

    Raises:
        InternalError: ``STO-E005`` when the file cannot be used.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        part = path.with_name(f"{path.name}.{secrets.token_hex(4)}.part")
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(secrets.token_bytes(SECRET_BYTES))
            stream.flush()
            os.fsync(stream.fileno())
        try:
            os.link(part, path)  # fails when another process was first
        except FileExistsError:
            pass
        part.unlink()
        secret = path.read_bytes()
    except OSError as error:
        raise InternalError(
            "STO-E005", f"the account secret cannot be used (errno {error.errno})"
        ) from error
    if len(secret) != SECRET_BYTES:
        raise InternalError("STO-E005", "the account secret has a wrong length")
    return secret


class Accounts:
    """The users of one project."""

    def __init__(self, database: Database, secret: bytes) -> None:
        self._database = database
        self._secret = secret

    def ensure(self, email: str, now: int, *, max_level: str | None = None) -> Account:
        """Return the account of `email`, made if need be; a given level is stored.

        Raises:
            UsageError: ``STO-E015`` for an unusable address or unknown level.
        """
        address = _check_email(email)
        if max_level is not None and max_level not in LEVELS:
            raise UsageError(
                "STO-E015",
                f"no such level: {max_level[:32]!r}",
                hint="levels are " + ", ".join(LEVELS),
            )
        with self._database.write() as connection:
            row = _find(connection, address)
            if row is None:
                self._insert(connection, address, max_level or LEVELS[0], now)
            elif max_level is not None:
                allow_levels(connection, row, max_level)
            return self._account(connection, address)

    def create(
        self,
        email: str,  # untrusted
        password: str,  # `password_digest` of it, untrusted
        now: int,  # s
        *,
        name: str = "",  # shown to others, untrusted; empty for none
    ) -> Account:
        """Make an account over the web (BOINC's create_account).

        An account that exists is found when the password is its own, and told apart from
        an unusable one by nothing else; that an address is taken cannot be hidden from
        one who tries to take it, only made slow (`rate_limit`).

        Raises:
            UsageError: ``STO-E015``, ``STO-E063``, ``STO-E064``.
            DeniedError: ``STO-E016`` when the account exists with another password.
        """
        address = _check_email(email)
        check_password(password, address)
        chosen = check_name(name)
        salt = secrets.token_hex(16)
        stored = hash_password(password, salt)
        with self._database.write() as connection:
            if _find(connection, address) is None:
                self._insert(connection, address, LEVELS[0], now, salt, stored)
                row = _find(connection, address) or 0
                save_person(connection, row, Person(chosen))
        return self.find(address, password)

    def find(self, email: str, password: str) -> Account:
        """Return an account by password (BOINC's lookup_account); raises ``STO-E016``.

        Takes as long for unknown addresses as for wrong passwords.
        """
        table = schema.users
        address = email[: 2 * _MAX_EMAIL].strip().lower()
        query = select(table.c.password_salt, table.c.password_hash)
        with self._database.read() as connection:
            row = connection.execute(query.where(table.c.email == address)).first()
        salt = row.password_salt if row else ""
        given = hash_password(password[: BOUNDS.token_chars], salt or "none")
        stored = row.password_hash if row else ""
        if not hmac.compare_digest(given, stored or "none"):
            raise DeniedError("STO-E016", "no account with this address and password")
        with self._database.read() as connection:
            return self._account(connection, address)

    def open_by_key(self, key: str) -> Account:
        """Return the account of a (strong) key, or ``STO-E016``; the weak one opens nothing."""
        return self._open(
            schema.users.c.key_hash == _hash_key(key[: BOUNDS.token_chars])
        )

    def open_by_id(self, user_id: int) -> Account:
        """Return a known account; raises ``STO-E016``."""
        return self._open(schema.users.c.id == user_id)

    def _open(self, which: ColumnElement[bool]) -> Account:
        with self._database.read() as connection:
            address = connection.scalar(select(schema.users.c.email).where(which))
            if address is None:
                raise DeniedError("STO-E016", "there is no such account")
            return self._account(connection, address)

    def change_keys(self, user_id: int, now: int) -> Account:
        """Give an account new keys; the old ones, strong and weak, stop at once.

        A password stays: who has it can still look the (new) weak key up.

        Raises:
            DeniedError: ``STO-E016`` when there is no such account.
        """
        with self._database.write() as connection:
            return self._account(connection, self._renew(connection, user_id, now))

    def take_over(self, email: str, now: int) -> Account:
        """Give an account new keys and no password: the operator's word for its owner.

        Whoever made it over the web is out; nobody but who is told its keys can use it.

        Raises:
            UsageError: ``STO-E015``.
            DeniedError: ``STO-E016`` when there is no such account.
        """
        address = _check_email(email)
        table = schema.users
        with self._database.write() as connection:
            self._renew(connection, _find(connection, address) or 0, now)
            connection.execute(
                update(table)
                .where(table.c.email == address)
                .values(password_salt="", password_hash="")
            )
            return self._account(connection, address)

    def _renew(self, connection: Connection, user_id: int, now: int) -> str:
        users, changes = schema.users, schema.key_changes
        address = connection.scalar(select(users.c.email).where(users.c.id == user_id))
        if address is None:
            raise DeniedError("STO-E016", "no such account")
        number = _key_number(connection, user_id) + 1
        connection.execute(delete(changes).where(changes.c.user_id == user_id))
        connection.execute(
            insert(changes).values(user_id=user_id, number=number, changed_at=now)
        )
        connection.execute(
            update(users)
            .where(users.c.id == user_id)
            .values(
                key_hash=_hash_key(self._key(address, "key", number)),
                weak_key_hash=_hash_key(self._key(address, "weak", number)),
            )
        )
        return str(address)

    def stamp(self, purpose: str, text: str) -> str:
        """Return a MAC over `text` that nobody else can make, 64 hex digits."""
        message = f"{purpose}\0{text}".encode()
        return hmac.new(self._secret, message, hashlib.sha256).hexdigest()

    def knows(self, key: str) -> bool:
        """Say whether an (untrusted) key is an account's; waits for no writer."""
        digest, table = key_digest(key), schema.users
        query = select(table.c.id).where(
            (table.c.key_hash == digest) | (table.c.weak_key_hash == digest)
        )
        with self._database.read() as connection:
            return bool(digest) and connection.scalar(query) is not None

    def is_newcomer(self, key: str) -> bool:
        """Say whether an (untrusted) key is a newcomer's, or nobody's."""
        digest, table, people = key_digest(key), schema.users, schema.people
        query = (
            select(table.c.password_hash, people.c.total_credit)
            .outerjoin(people, people.c.user_id == table.c.id)
            .where((table.c.key_hash == digest) | (table.c.weak_key_hash == digest))
        )
        with self._database.read() as connection:
            row = connection.execute(query).first()
        return row is None or is_newcomer(row.password_hash, row.total_credit)

    def _insert(
        self,
        connection: Connection,
        address: str,
        max_level: str,
        now: int,
        salt: str = "",
        password: str = "",
    ) -> None:
        connection.execute(
            insert(schema.users).values(
                email=address,
                key_hash=_hash_key(self._key(address, "key")),
                weak_key_hash=_hash_key(self._key(address, "weak")),
                password_salt=salt,
                password_hash=password,
                max_level=max_level,
                created_at=now,
            )
        )

    def _account(self, connection: Connection, address: str) -> Account:
        table = schema.users
        row = connection.execute(
            select(table.c.id, table.c.max_level, table.c.password_hash).where(
                table.c.email == address
            )
        ).one()
        person = load_person(connection, row.id)
        number = _key_number(connection, row.id)
        return Account(
            user_id=row.id,
            email=address,
            key=self._key(address, "key", number),
            weak_key=self._key(address, "weak", number),
            max_level=row.max_level,
            name=person.name,
            verified=not row.password_hash,
            key_number=number,
        )

    def _key(self, address: str, kind: str, number: int = 0) -> str:
        """Return the account's key of one kind, the `number`-th after the first."""
        again = f"\0{number}" if number else ""
        text = f"{kind}\0{address}{again}".encode()
        return hmac.new(self._secret, text, hashlib.sha256).hexdigest()[:KEY_CHARS]


def _check_email(email: str) -> str:
    """Return the address in the one form that is stored, or raise ``STO-E015``."""
    address = email.strip().lower()
    if not _EMAIL.fullmatch(address):
        raise UsageError(
            "STO-E015", "this is not an e-mail address", hint="like name@example.org"
        )
    return address


def _find(connection: Connection, address: str) -> int | None:
    return connection.scalar(
        select(schema.users.c.id).where(schema.users.c.email == address)
    )


def _key_number(connection: Connection, user_id: int) -> int:
    table = schema.key_changes
    query = select(table.c.number).where(table.c.user_id == user_id)
    return int(connection.scalar(query) or 0)


def user_of(
    row: AnyRow,  # with the account, its preferences and its standing
    digest: str,  # of the key that was shown
) -> User:
    """Return who calls."""
    preferences = preferences_of(row)
    return User(
        row.id,
        preferences.levels,
        bool(row.banned_at),
        preferences,
        weak=row.weak_key_hash == digest,
        newcomer=is_newcomer(row.password_hash, row.person_total_credit),
        paused_until=row.paused_until or 0,
    )


def key_digest(key: str) -> str:
    """Return what is stored of an (untrusted) key, empty for one that nobody can have."""
    return _hash_key(key) if 0 < len(key) <= BOUNDS.token_chars else ""


def _hash_key(key: str) -> str:
    return domain_digest(Domain.TOKEN, b"volunteer", key.encode())
