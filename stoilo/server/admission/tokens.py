"""Who calls: tokens with role, scope, expiry and revocation, stored only as digests.

A token is 256 random bits; its domain-separated digest is the lookup key, so a stolen
table opens nothing. Every refusal reads the same for the caller: whether a token never
existed, expired or was revoked is the operator's business. Making and revoking one is an
act that is noted for the log, under the account's salted commitment.
"""

from __future__ import annotations

import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from sqlalchemy import func, insert, select, update

from stoilo.audit.format.facts import OperatorAct
from stoilo.core.digests import Domain, domain_digest
from stoilo.core.errors import DeniedError, PolicyRefusal, StoiloError
from stoilo.core.types import BOUNDS
from stoilo.server.db import schema
from stoilo.server.db.batcher import Batcher
from stoilo.server.db.records import Owner
from stoilo.server.log.outbox import note_act
from stoilo.server.log.public_records import submitter_commitment

if TYPE_CHECKING:
    from sqlalchemy import Connection, Row

    from stoilo.server.db.store import Store


DAY_S = 86_400
YEAR_S = 365 * DAY_S
KNOWN_FOR_S: Final = (
    60.0  # whose a token is, to those who only want to know whose turn it is
)
MOST_KNOWN: Final = 65_536


class Role(StrEnum):
    """What a token's holder is to the project."""

    RESEARCHER = "researcher"
    REVIEWER = "reviewer"
    AUDITOR = "auditor"
    OPERATOR = "operator"
    VOLUNTEER = "volunteer"


TASK_ROLES = frozenset({Role.RESEARCHER, Role.OPERATOR})
"""Roles whose holders may own tasks; even an operator sees only his own."""

_SIGN_IN: Final = TASK_ROLES | {Role.REVIEWER}
LINK_SCOPE: Final = "SignIn"
LINK_S: Final = 900  # life of a one-time link, s
SESSION_SCOPE: Final = "Operate,ListTasks,PollTask,CancelTask,CreateTask,DownloadBlob"
PASSKEY_SCOPE: Final = "Passkey"  # no call has that name: it opens sessions only
# A reviewer's session reads; what he decides is signed on a machine of his own
REVIEW_SCOPE: Final = "ListReviews,GetReview"
_SESSIONS: Final = (SESSION_SCOPE, REVIEW_SCOPE)
CONSOLE_SCOPES: Final = frozenset({LINK_SCOPE, *_SESSIONS})
SESSION_S: Final = 12 * 3600  # longest session in the console, s
SIGN_INS_A_DAY: Final = 30  # of one account without a link: each is leaves of the log
_ASK_FOR_LINK: Final = "ask the operator: `stoilo account add NAME --for console`"

OF_SUSPENDED = frozenset(
    {"PollTask", "ListTasks", "CancelTask", "DownloadBlob"}
    | {"ShowAccount", "RevokeToken"}
)
"""Calls that a suspended account may still make: about what was taken before, and itself."""


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
    label: str = "",
) -> str:
    """Make a token for the account `name` (made if new); the only time it is shown.

    `label` is its holder's own name for it.
    """
    token = f"sto_{secrets.token_urlsafe(32)}"
    digest = token_digest(token)
    grant(
        connection,
        *(name, role, digest, now),
        scope=scope,
        lifetime_s=lifetime_s,
        label=label,
    )
    return token


def grant(
    connection: Connection,
    name: str,
    role: Role,
    digest: str,
    now: int,
    *,
    scope: str,
    lifetime_s: int,
    label: str,
) -> int:
    """Let who has what `digest` is of act for the account `name`; returns the token's row."""
    account = make_account(connection, name, now)
    made = connection.execute(
        insert(schema.token).values(
            account_id=account.id,
            role=role.value,
            scope=scope,
            digest=digest,
            created_at=now,
            expires_at=now + lifetime_s,
            name=label,
        )
    )
    note_act(
        connection,
        OperatorAct.TOKEN_ISSUED,
        now,
        subject=submitter_commitment(account.salt),
        role=role.value,
        until=now + lifetime_s,
    )
    return int(made.inserted_primary_key[0])  # type: ignore[index]  # of one row


def make_account(connection: Connection, name: str, now: int, group: str = "") -> Row:  # type: ignore[type-arg]  # of `account`
    """Return the account's row; a new one, in `group`, where there is none."""
    accounts = schema.account
    query = select(accounts).where(accounts.c.name == name)
    row = connection.execute(query).first()
    if row is None:
        values = {"name": name, "salt": secrets.token_hex(32), "created_at": now}
        connection.execute(insert(accounts).values(group_name=group, **values))
        row = connection.execute(query).one()
    return row


def issue_link(connection: Connection, name: str, role: Role, now: int) -> str:
    """Make a one-time link's secret for an account: good for a sign-in, for no call."""
    return issue_token(connection, name, role, now, scope=LINK_SCOPE, lifetime_s=LINK_S)


def open_session(connection: Connection, secret: str, now: int) -> str:
    """Return a session's token for a link's secret (untrusted), which is used up.

    A researcher's, operator's or reviewer's own token opens one too, and stays. In a
    writing transaction: of two that come with one link the second gets ``STO-R001``.
    """
    owner = find_owner(connection, secret, now)
    if owner.scope == LINK_SCOPE:
        revoke_token(connection, secret, now)
    elif owner.scope != "*":
        raise DeniedError("STO-R001", "this opens no session", hint=_ASK_FOR_LINK)
    return start_session(connection, owner, now)


def start_session(connection: Connection, owner: Owner, now: int) -> str:
    """Return a new session's token for somebody who has shown who he is.

    Raises:
        DeniedError: ``STO-R001``: there are no pages for his role.
        PolicyRefusal: ``STO-E068``: too often in a day; a link of the operator's is not
            counted against its holder, so that a thief cannot keep him out.
    """
    if owner.role not in _SIGN_IN:
        raise DeniedError("STO-R001", "this opens no session", hint=_ASK_FOR_LINK)
    if owner.scope != LINK_SCOPE:
        _check_sign_ins(connection, owner.account_id, now)
    role = Role(owner.role)
    scope = REVIEW_SCOPE if role is Role.REVIEWER else SESSION_SCOPE
    return issue_token(
        connection,
        *(owner.name, role, now),
        scope=scope,
        lifetime_s=SESSION_S,
        label="console",
    )


def _check_sign_ins(connection: Connection, account_id: int, now: int) -> None:
    table = schema.token
    query = select(func.count()).where(
        table.c.account_id == account_id,
        table.c.scope.in_(_SESSIONS),
        table.c.created_at > now - DAY_S,
    )
    if (connection.scalar(query) or 0) >= SIGN_INS_A_DAY:
        raise PolicyRefusal(
            "STO-E068",
            f"an account signs in {SIGN_INS_A_DAY} times a day at most",
            hint="a link from the operator opens a session all the same",
        )


def revoke_token(connection: Connection, token: str, now: int) -> bool:
    """Make `token` useless from now on; False for unknown and revoked ones."""
    return revoke_digests(connection, [token_digest(token)], now) > 0


def revoke_digests(connection: Connection, digests: Sequence[str], now: int) -> int:
    """Revoke tokens by their stored form, each with its act; returns how many were not."""
    accounts, tokens = schema.account, schema.token
    found = connection.execute(
        select(tokens.c.id, tokens.c.role, accounts.c.salt)
        .join(accounts, accounts.c.id == tokens.c.account_id)
        .where(tokens.c.digest.in_(digests), tokens.c.revoked_at.is_(None))
    ).all()
    for row in found:
        query = update(tokens).where(tokens.c.id == row.id)
        connection.execute(query.values(revoked_at=now))
        act, subject = OperatorAct.TOKEN_REVOKED, submitter_commitment(row.salt)
        note_act(connection, act, now, subject=subject, role=row.role)
    return len(found)


def find_owner(connection: Connection, token: str, now: int) -> Owner:
    """Return who holds `token` (untrusted), or raise ``STO-R001``."""
    if not token or len(token) > BOUNDS.token_chars or not token.isascii():
        raise _not_accepted()
    return owner_of(connection, token_digest(token), now)


def owner_of(connection: Connection, digest: str, now: int) -> Owner:
    """Return who holds what `digest` is of, or raise ``STO-R001``."""
    accounts, tokens, suspended = schema.account, schema.token, schema.suspension
    row = connection.execute(
        select(accounts.c.name, accounts.c.salt, suspended.c.since, tokens)
        .join(accounts, accounts.c.id == tokens.c.account_id)
        .outerjoin(suspended, suspended.c.account_id == accounts.c.id)
        .where(tokens.c.digest == digest)
    ).first()
    if row is None or row.revoked_at is not None or row.expires_at <= now:
        raise _not_accepted()
    return Owner(
        row.account_id,
        row.name,
        row.role,
        row.scope,
        row.salt,
        suspended=row.since is not None,
    )


def _not_accepted() -> DeniedError:
    return DeniedError(
        "STO-R001",
        "the server does not accept this token",
        hint="use the connection file that the server wrote, or ask its operator",
    )


def check_permission(owner: Owner, rpc: str) -> None:
    """Raise ``STO-R002`` unless the token's role and scope allow `rpc`.

    Of a suspended account ``STO-R009``, unless it only looks after what it has.
    """
    _check(owner, rpc, TASK_ROLES, "ask the operator for a researcher's token")


def check_reviewer(owner: Owner, rpc: str) -> None:
    """Raise ``STO-R002`` unless the token is a reviewer's and its scope allows `rpc`.

    Of a suspended account ``STO-R009``.
    """
    hint = "ask the operator to enroll you: `stoilo account add --for review`"
    _check(owner, rpc, frozenset({Role.REVIEWER}), hint)


def check_operator(owner: Owner, rpc: str) -> None:
    """Raise ``STO-R002`` unless the token is an operator's and its scope allows `rpc`."""
    hint = "ask for a link: `stoilo account add NAME --for operation`"
    _check(owner, rpc, frozenset({Role.OPERATOR}), hint)


def check_own(owner: Owner, rpc: str) -> None:
    """Raise ``STO-R002`` unless the token's scope allows `rpc`, of any role; ``STO-R009``."""
    _check(owner, rpc, frozenset(Role), "ask the operator for a token for all calls")


def _check(owner: Owner, rpc: str, roles: frozenset[Role], hint: str) -> None:
    in_scope = owner.scope == "*" or rpc in owner.scope.split(",")
    if owner.role not in roles or not in_scope:
        raise DeniedError(
            "STO-R002", f"a token of role {owner.role} may not call {rpc}", hint=hint
        )
    if owner.suspended and rpc not in OF_SUSPENDED:
        raise DeniedError(
            "STO-R009", "the account is suspended", hint="ask the project's operator"
        )


class Authenticator:
    """Who calls, by the token alone: asked before a byte of the message is read.

    Many that ask at once share one read. What is remembered of a token opens nothing: each
    call asks the database itself; here it decides only whose room and whose turn a message
    takes. For one event loop.
    """

    def __init__(
        self,
        store: Store,  # where tokens' digests are
        clock: Callable[[], int],  # seconds since 1970
        # seconds of a clock that is never set
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._clock = clock
        self._steady = steady
        self._known: OrderedDict[str, tuple[float, Owner]] = OrderedDict()
        self._asking: Batcher[str, Owner] = Batcher(self._look)

    async def find(self, token: str) -> Owner:
        """Return whose an (untrusted) token is, or raise ``STO-R001``."""
        if len(token) > BOUNDS.token_chars or not token.isascii():
            return await self._asking.submit("")  # nobody's
        digest = token_digest(token)  # the token itself is not kept
        until, known = self._known.get(digest, (0.0, None))
        if known is not None and until > self._steady():
            return known
        owner = await self._asking.submit(token)
        self._known.pop(digest, None)
        self._known[digest] = self._steady() + KNOWN_FOR_S, owner
        while len(self._known) > MOST_KNOWN:
            self._known.popitem(last=False)
        return owner

    def _look(self, tokens: Sequence[str]) -> list[Owner | Exception]:
        answers: list[Owner | Exception] = []
        with self._store.read() as connection:
            for token in tokens:
                try:
                    answers.append(find_owner(connection, token, self._clock()))
                except StoiloError as error:
                    answers.append(error)
        return answers
