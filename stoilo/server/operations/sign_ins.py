"""Who signs in without a secret of ours: by a passkey, or because a provider vouches.

A passkey is a token (`admission.tokens`) whose digest is of the credential's id and whose
scope is no call's: role, end, name, revocation, listing and leaves are those of tokens.
Beside it is kept what its signatures are checked with. Trust: the caller has checked the
signature, or the provider's word; what is decided here is whose it is, and whether he may.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sqlalchemy import insert, select, update

from stoilo.core.digests import content_digest
from stoilo.core.errors import DeniedError, PolicyRefusal, UsageError
from stoilo.server.admission import tokens
from stoilo.server.db import schema
from stoilo.server.db.records import Owner
from stoilo.server.operations.access import (
    check_word,
    is_good,
    note_change,
    tokens_of,
)

if TYPE_CHECKING:
    from sqlalchemy import Connection, Row

log = logging.getLogger(__name__)
MOST_PASSKEYS: Final = 8  # good ones of an account


@dataclass(frozen=True, slots=True)
class Credential:
    """A passkey as its authenticator made it, and how often it has signed."""

    credential_id: bytes
    data: bytes  # WebAuthn's attested credential data, up to 2,048 bytes
    count: int


def add_passkey(
    connection: Connection, owner: Owner, made: Credential, name: str, now: int
) -> None:
    """Keep a passkey of `owner`, in the role in which he is here.

    Raises:
        UsageError: ``STO-R029`` no name; ``STO-R010`` it is known.
        PolicyRefusal: ``STO-R005`` he has as many as an account may have.
    """
    check_word(name)
    digest = content_digest(made.credential_id)
    known = select(schema.token.c.id).where(schema.token.c.digest == digest)
    if connection.scalar(known) is not None:
        raise UsageError("STO-R010", "this passkey is registered, or was")
    if len(list_passkeys(connection, owner.account_id, now)) >= MOST_PASSKEYS:
        raise PolicyRefusal(
            "STO-R005",
            f"an account has up to {MOST_PASSKEYS} passkeys",
            hint="remove one that you no longer use",
        )
    token = tokens.grant(
        connection,
        *(owner.name, tokens.Role(owner.role), digest, now),
        scope=tokens.PASSKEY_SCOPE,
        lifetime_s=tokens.YEAR_S,
        label=name,
    )
    values = {"token_id": token, "credential": made.data, "sign_count": made.count}
    connection.execute(insert(schema.passkey).values(used_at=0, **values))


def list_passkeys(connection: Connection, account_id: int, now: int) -> list[Row]:  # type: ignore[type-arg]  # of both tables
    """Return an account's good passkeys, oldest first, each with its token."""
    token, kept = schema.token, schema.passkey
    query = (
        select(token, kept)
        .join(kept, kept.c.token_id == token.c.id)
        .where(
            token.c.account_id == account_id,
            token.c.revoked_at.is_(None),
            token.c.expires_at > now,
        )
    )
    return list(connection.execute(query.order_by(token.c.id)).all())


def find_passkey(
    connection: Connection, credential_id: bytes, now: int
) -> tuple[Owner, Row]:  # type: ignore[type-arg]  # of `passkey`
    """Return whose an (untrusted) credential id is, and what is kept of it.

    Raises ``STO-R001``, the same for unknown, ended and removed ones and for those of
    suspended accounts.
    """
    digest, table = content_digest(credential_id), schema.passkey
    owner = tokens.owner_of(connection, digest, now)
    query = select(table).join(schema.token, schema.token.c.id == table.c.token_id)
    row = connection.execute(query.where(schema.token.c.digest == digest)).first()
    if row is None or owner.suspended:
        raise DeniedError("STO-R001", "this passkey opens no session")
    return owner, row


def use_passkey(
    connection: Connection,
    owner: Owner,
    kept: Row,  # type: ignore[type-arg]  # of `passkey`
    count: int,
    now: int,
) -> None:
    """Note a signature of a passkey, its `count`-th if it counts at all.

    Raises ``STO-R001`` where it goes back: two authenticators have the same key then.
    """
    if (count or kept.sign_count) and count <= kept.sign_count:
        said = "a passkey of account %d counts %d signatures after %d: a copy of it?"
        log.warning(said, owner.account_id, count, kept.sign_count)
        raise DeniedError("STO-R001", "this passkey opens no session")
    table = schema.passkey
    query = update(table).where(table.c.token_id == kept.token_id)
    connection.execute(query.values(sign_count=count, used_at=now))


def find_vouched(connection: Connection, name: str, group: str, now: int) -> Owner:
    """Return the researcher `name` for whom a provider vouches.

    An unknown one gets an account in `group`, unless that is empty. Others than
    researchers are not let in by a provider's word.

    Raises:
        DeniedError: ``STO-R001``: unknown, suspended, or of another role.
    """
    accounts, suspended = schema.account, schema.suspension
    found = connection.scalar(select(accounts.c.id).where(accounts.c.name == name))
    role = tokens.Role.RESEARCHER.value
    held = {one.role for one in tokens_of(connection, found or 0) if is_good(one, now)}
    if held - {role} or (found is None and not group):
        raise DeniedError("STO-R001", "this account is not known here")
    row = tokens.make_account(connection, name, now, group)
    if found is None:
        note_change(connection, row, now, role=role)
    since = select(suspended.c.since).where(suspended.c.account_id == row.id)
    if connection.scalar(since) is not None:
        raise DeniedError("STO-R001", "this account is not known here")
    return Owner(row.id, name, role, tokens.SESSION_SCOPE, row.salt)
