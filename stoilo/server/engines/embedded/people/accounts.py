"""Volunteers' accounts: keys derived from a secret file, only hashes in the database.

A key (BOINC: authenticator) is an HMAC over the account's e-mail, so it can be shown
again without being stored; a thief of the database alone can neither use nor recompute
it.
The weak key reports and fetches work and opens nothing else (reference/boinc.md §0.4).
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sqlalchemy import insert, select

from stoilo.core.digests import Domain, domain_digest
from stoilo.core.errors import DeniedError, InternalError, UsageError
from stoilo.core.limits import BOUNDS
from stoilo.server.engines.embedded import schema
from stoilo.server.engines.embedded.database import Database
from stoilo.server.engines.embedded.people.levels import LEVELS
from stoilo.server.engines.embedded.people.passwords import (
    check_password,
    hash_password,
)
from stoilo.server.engines.embedded.people.people import (
    Person,
    check_name,
    load_person,
    save_person,
)
from stoilo.server.engines.embedded.people.preferences import (
    ProjectPreferences,
    allow_levels,
    preferences_of,
)

if TYPE_CHECKING:
    from pathlib import Path

    from sqlalchemy import Connection, Row


__all__ = [
    "LEVELS",
    "Account",
    "Accounts",
    "User",
    "key_digest",
    "load_secret",
    "open_accounts",
    "user_of",
]

SECRET_BYTES = 32
KEY_CHARS = 32
_EMAIL = re.compile(r"[A-Za-z0-9._%+-]{1,64}@[A-Za-z0-9.-]{1,185}")
_MAX_EMAIL = 254


@dataclass(frozen=True, slots=True)
class Account:
    """An account with its keys in clear; show them to nobody but their owner."""

    user_id: int
    email: str
    key: str
    weak_key: str
    max_level: str
    name: str = ""


@dataclass(frozen=True, slots=True)
class User:
    """Who a scheduler request comes from, which apps may be sent, what was chosen."""

    id: int
    apps: tuple[str, ...]
    banned: bool = False
    chosen: ProjectPreferences = field(default_factory=ProjectPreferences)


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

    def create(self, email: str, password: str, now: int, *, name: str = "") -> Account:
        """Make an account over the web (BOINC's create_account).

        An account that exists is found when the password is its own, and told apart from
        an unusable one by nothing else; that an address is taken cannot be hidden from
        one who tries to take it, only made slow (`rates`).

        Args:
            email: untrusted.
            password: `passwords.password_digest` of it, untrusted.
            now: s.
            name: shown to others, untrusted; empty for none.

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
        """Return an account by password (BOINC's lookup_account).

        Takes as long for unknown addresses as for wrong passwords.

        Raises:
            DeniedError: ``STO-E016``.
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
        """Return the account of a (strong) key; the weak one opens nothing.

        Raises:
            DeniedError: ``STO-E016``.
        """
        table = schema.users
        digest = _hash_key(key[: BOUNDS.token_chars])
        with self._database.read() as connection:
            address = connection.scalar(
                select(table.c.email).where(table.c.key_hash == digest)
            )
            if address is None:
                raise DeniedError("STO-E016", "no account with this key")
            return self._account(connection, address)

    def open_by_id(self, user_id: int) -> Account:
        """Return a known account; raises ``STO-E016``."""
        table = schema.users
        with self._database.read() as connection:
            address = connection.scalar(
                select(table.c.email).where(table.c.id == user_id)
            )
            if address is None:
                raise DeniedError("STO-E016", "no such account")
            return self._account(connection, address)

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

    def _insert(
        self,
        connection: Connection,
        address: str,
        max_level: str,
        now: int,
        salt: str = "",
        password: str = "",
    ) -> None:
        """Insert one account."""
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
        """Return an account that exists, keys in clear."""
        table = schema.users
        row = connection.execute(
            select(table.c.id, table.c.max_level).where(table.c.email == address)
        ).one()
        person = load_person(connection, row.id)
        return Account(
            user_id=row.id,
            email=address,
            key=self._key(address, "key"),
            weak_key=self._key(address, "weak"),
            max_level=row.max_level,
            name=person.name,
        )

    def _key(self, address: str, kind: str) -> str:
        """Return the account's key of one kind."""
        text = f"{kind}\0{address}".encode()
        return hmac.new(self._secret, text, hashlib.sha256).hexdigest()[:KEY_CHARS]


def open_accounts(directory: Path) -> Accounts:
    """Return the accounts of the engine under `directory`, also beside a running one.

    Raises:
        InternalError: ``STO-E003`` or ``STO-E005``.
    """
    database = Database(f"sqlite:///{directory / 'engine.sqlite'}")
    database.upgrade()
    return Accounts(database, load_secret(directory / "account.secret"))


def _check_email(email: str) -> str:
    """Return the address in the one form that is stored, or raise ``STO-E015``."""
    address = email.strip().lower()
    if not _EMAIL.fullmatch(address):
        raise UsageError(
            "STO-E015", "this is not an e-mail address", hint="like name@example.org"
        )
    return address


def _find(connection: Connection, address: str) -> int | None:
    """Return the row of an address."""
    return connection.scalar(
        select(schema.users.c.id).where(schema.users.c.email == address)
    )


def user_of(row: Row) -> User:  # type: ignore[type-arg]  # as in `authenticate`
    """Return whom a row with account, preferences and standing describes."""
    preferences = preferences_of(row)
    return User(row.id, preferences.levels, bool(row.banned_at), preferences)


def key_digest(key: str) -> str:
    """Return what is stored of an (untrusted) key, empty for one that nobody can have."""
    return _hash_key(key) if 0 < len(key) <= BOUNDS.token_chars else ""


def _hash_key(key: str) -> str:
    """Return what is stored of a key."""
    return domain_digest(Domain.TOKEN, b"volunteer", key.encode())
