"""Who calls: tokens with role, scope, expiry and revocation, stored only as digests.

A token is 256 random bits; its domain-separated digest is the lookup key, so a stolen
table opens nothing. Every refusal reads the same for the caller: whether a token never
existed, expired or was revoked is the operator's business.
"""

from __future__ import annotations

import secrets
from enum import StrEnum
from typing import TYPE_CHECKING

from sqlalchemy import insert, select, update

from stoilo.core.digests import Domain, domain_digest
from stoilo.core.errors import DeniedError
from stoilo.core.limits import BOUNDS
from stoilo.server import schema
from stoilo.server.records import Owner

if TYPE_CHECKING:
    from sqlalchemy import Connection

__all__ = [
    "Role",
    "check_permission",
    "find_owner",
    "issue_token",
    "revoke_token",
    "token_digest",
]

YEAR_S = 365 * 86_400


class Role(StrEnum):
    """What a token's holder is to the project."""

    RESEARCHER = "researcher"
    REVIEWER = "reviewer"
    AUDITOR = "auditor"
    OPERATOR = "operator"
    VOLUNTEER = "volunteer"


TASK_ROLES = frozenset({Role.RESEARCHER, Role.OPERATOR})
"""Roles whose holders may own tasks; even an operator sees only his own."""


def token_digest(token: str) -> str:
    """Return the stored form of a token."""
    return domain_digest(Domain.TOKEN, token.encode())


def issue_token(
    connection: Connection,
    name: str,
    role: Role,
    now: int,
    *,
    scope: str = "*",
    lifetime_s: int = YEAR_S,
) -> str:
    """Make a token for the account `name` (made if new); the only time it is shown."""
    accounts = schema.account
    account_id = connection.scalar(select(accounts.c.id).where(accounts.c.name == name))
    if account_id is None:
        made = connection.execute(
            insert(accounts).values(
                name=name, salt=secrets.token_hex(32), created_at=now
            )
        )
        account_id = made.inserted_primary_key[0]  # type: ignore[index]  # just made
    token = f"sto_{secrets.token_urlsafe(32)}"
    connection.execute(
        insert(schema.token).values(
            account_id=account_id,
            role=role.value,
            scope=scope,
            digest=token_digest(token),
            created_at=now,
            expires_at=now + lifetime_s,
        )
    )
    return token


def revoke_token(connection: Connection, token: str, now: int) -> None:
    """Make `token` useless from now on; unknown tokens are ignored."""
    connection.execute(
        update(schema.token)
        .where(schema.token.c.digest == token_digest(token))
        .values(revoked_at=now)
    )


def find_owner(connection: Connection, token: str, now: int) -> Owner:
    """Return who holds `token` (untrusted), or raise ``STO-R001``."""
    denied = DeniedError(
        "STO-R001",
        "the server does not accept this token",
        hint="use the connection file that the server wrote, or ask its operator",
    )
    if not token or len(token) > BOUNDS.token_chars or not token.isascii():
        raise denied
    accounts, tokens = schema.account, schema.token
    row = connection.execute(
        select(accounts.c.name, accounts.c.salt, tokens)
        .join(accounts, accounts.c.id == tokens.c.account_id)
        .where(tokens.c.digest == token_digest(token))
    ).first()
    if row is None or row.revoked_at is not None or row.expires_at <= now:
        raise denied
    return Owner(row.account_id, row.name, row.role, row.scope, row.salt)


def check_permission(owner: Owner, rpc: str) -> None:
    """Raise ``STO-R002`` unless the token's role and scope allow `rpc`."""
    in_scope = owner.scope == "*" or rpc in owner.scope.split(",")
    if owner.role not in TASK_ROLES or not in_scope:
        raise DeniedError(
            "STO-R002",
            f"a token of role {owner.role} may not call {rpc}",
            hint="ask the operator for a researcher's token",
        )
