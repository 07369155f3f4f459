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
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import func, insert, or_, select, update

from stoilo.core.digests import Domain, domain_digest
from stoilo.core.errors import DeniedError, InternalError, UsageError
from stoilo.core.types import BOUNDS
from stoilo.server.engines.embedded.accounts.passwords import (
    check_password,
    hash_password,
)
from stoilo.server.engines.embedded.accounts.preferences import (
    check_level,
    check_name,
    join_words,
    levels_up_to,
)
from stoilo.server.engines.embedded.db import schema
from stoilo.server.engines.embedded.db.database import Database

if TYPE_CHECKING:
    from pathlib import Path

    from sqlalchemy import ColumnElement, Connection

    from stoilo.server.engines.embedded.db.schema import AnyRow

SECRET_BYTES = 32
KEY_CHARS = 32
_EMAIL = re.compile(r"[A-Za-z0-9._%+-]{1,64}@[A-Za-z0-9.-]{1,185}")
_MAX_EMAIL = 254
# In place of the address of an account that was erased (`leaving`): no address begins so
ERASED = "erased:"


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
        address = check_email(email)
        level = check_level(max_level or "pure")
        users = schema.users
        mine = users.c.email == address
        with self._database.write() as connection:
            if connection.scalar(select(users.c.id).where(mine)) is None:
                self._insert(connection, address, now, level)
            elif max_level is not None:
                chosen = {"levels": join_words(levels_up_to(level)), "max_level": level}
                connection.execute(update(users).where(mine).values(chosen))
            return self._account(connection, mine)

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
            UsageError: ``STO-E015``.
            DeniedError: ``STO-E016`` when the account exists with another password.
        """
        address = check_email(email)
        check_password(password, address)
        salt = secrets.token_hex(16)
        more = {
            "name": check_name(name),
            "password_salt": salt,
            "password_hash": hash_password(password, salt),
        }
        known = select(schema.users.c.id).where(schema.users.c.email == address)
        with self._database.write() as connection:
            if connection.scalar(known) is None:
                self._insert(connection, address, now, **more)
        return self.find(address, password)

    def find(self, email: str, password: str) -> Account:
        """Return an account by password (BOINC's lookup_account); raises ``STO-E016``.

        Takes as long for unknown addresses as for wrong passwords.
        """
        table = schema.users
        mine = table.c.email == email[: 2 * _MAX_EMAIL].strip().lower()
        query = select(table.c.password_salt, table.c.password_hash)
        with self._database.read() as connection:
            row = connection.execute(query.where(mine)).first()
        salt = row.password_salt if row else ""
        given = hash_password(password[: BOUNDS.token_chars], salt or "none")
        stored = row.password_hash if row else ""
        if not hmac.compare_digest(given, stored or "none"):
            raise DeniedError("STO-E016", "no account with this address and password")
        return self._open(mine)

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
            return self._account(connection, which)

    def change_keys(self, user_id: int) -> Account:
        """Give an account new keys; the old ones, strong and weak, stop at once.

        A password stays: who has it can still look the (new) weak key up.

        Raises:
            DeniedError: ``STO-E016`` when there is no such account.
        """
        return self._renew(schema.users.c.id == user_id, {})

    def take_over(self, email: str) -> Account:
        """Give an account new keys and no password: the operator's word for its owner.

        Whoever made it over the web is out; nobody but who is told its keys can use it.

        Raises:
            UsageError: ``STO-E015``.
            DeniedError: ``STO-E016`` when there is no such account.
        """
        none = {"password_salt": "", "password_hash": ""}
        return self._renew(schema.users.c.email == check_email(email), none)

    def _renew(self, which: ColumnElement[bool], more: dict[str, str]) -> Account:
        with self._database.write() as connection:
            was = self._account(connection, which)
            keys = self._hashes(was.email, was.key_number + 1)
            connection.execute(update(schema.users).where(which).values(keys | more))
            return self._account(connection, which)

    def grave_of(self, address: str) -> str:
        """Return what stands for the address of an account that was erased."""
        return f"{ERASED}{self.stamp('erased account', address)}"

    def stamp(self, purpose: str, text: str) -> str:
        """Return a MAC over `text` that nobody else can make, 64 hex digits."""
        message = f"{purpose}\0{text}".encode()
        return hmac.new(self._secret, message, hashlib.sha256).hexdigest()

    def knows(self, key: str) -> bool:
        """Say whether an (untrusted) key is an account's; waits for no writer."""
        return self._by_any_key(key) is not None

    def is_newcomer(self, key: str) -> bool:
        """Say whether an (untrusted) key is a newcomer's, or nobody's."""
        row = self._by_any_key(key)
        return row is None or is_newcomer(row)

    def _by_any_key(self, key: str) -> AnyRow | None:
        digest, table = key_digest(key), schema.users
        query = select(table.c.password_hash, table.c.total_credit).where(
            or_(table.c.key_hash == digest, table.c.weak_key_hash == digest)
        )
        with self._database.read() as connection:
            return connection.execute(query).first()

    def _insert(
        self,
        connection: Connection,
        address: str,
        now: int,
        max_level: str = "pure",
        **more: str,
    ) -> None:
        # Keys of an account of this address that was erased must not come again.
        number, grave = schema.users.c.key_number, self.grave_of(address)
        mine = schema.users.c.email.startswith(f"{grave}.", autoescape=True)
        last = connection.scalar(select(func.max(number)).where(mine))
        values = self._hashes(address, last or 0) | more
        connection.execute(
            insert(schema.users).values(
                email=address,
                max_level=max_level,
                levels=join_words(levels_up_to(max_level)),
                created_at=now,
                **values,
            )
        )

    def _account(self, connection: Connection, which: ColumnElement[bool]) -> Account:
        row = connection.execute(select(schema.users).where(which)).first()
        if row is None:
            raise DeniedError("STO-E016", "there is no such account")
        return Account(
            user_id=row.id,
            email=row.email,
            key=self._key(row.email, "key", row.key_number),
            weak_key=self._key(row.email, "weak", row.key_number),
            max_level=row.max_level,
            name=row.name,
            verified=not row.password_hash,
            key_number=row.key_number,
        )

    def _hashes(self, address: str, number: int) -> dict[str, object]:
        """Return the columns of the account's `number`-th keys after the first."""
        return {
            "key_hash": _hash_key(self._key(address, "key", number)),
            "weak_key_hash": _hash_key(self._key(address, "weak", number)),
            "key_number": number,
        }

    def _key(self, address: str, kind: str, number: int) -> str:
        again = f"\0{number}" if number else ""
        text = f"{kind}\0{address}{again}".encode()
        return hmac.new(self._secret, text, hashlib.sha256).hexdigest()[:KEY_CHARS]


def check_email(email: str) -> str:
    """Return the address in the one form that is stored, or raise ``STO-E015``."""
    address = email.strip().lower()
    if not _EMAIL.fullmatch(address):
        raise UsageError(
            "STO-E015", "this is not an e-mail address", hint="like name@example.org"
        )
    return address


def is_newcomer(row: AnyRow) -> bool:
    """Say whether an account is one of a stranger who has helped with nothing yet."""
    return bool(row.password_hash) and not row.total_credit


def key_digest(key: str) -> str:
    """Return what is stored of an (untrusted) key, empty for one that nobody can have."""
    return _hash_key(key) if 0 < len(key) <= BOUNDS.token_chars else ""


def _hash_key(key: str) -> str:
    return domain_digest(Domain.TOKEN, b"volunteer", key.encode())
