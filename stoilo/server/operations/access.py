"""Access to a server: tokens given, listed and ended; reviewers named and withdrawn.

Works beside a running server, which looks a token up at every call: what is done here
counts from the next one on. Each act is noted for the log, under the account's salted
commitment. Trust: the caller is the operator, who can read the data directory anyway, or
for `issue_own` and `end_own` the account's holder, authenticated by the server.
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec
from sqlalchemy import select, update

from stoilo.audit.format.facts import OperatorAct
from stoilo.core.errors import (
    DeniedError,
    InternalError,
    PolicyRefusal,
    UsageError,
)
from stoilo.executor.verifier.targets import ReviewerFile, ReviewerKey
from stoilo.server.admission import tokens
from stoilo.server.config import load_config
from stoilo.server.data_directory import ConnectionFile, keys_of, read_connection_file
from stoilo.server.db import schema
from stoilo.server.db.store import Store
from stoilo.server.log.outbox import note_act
from stoilo.server.log.public_records import submitter_commitment
from stoilo.signer.development.changes import (
    list_reviewers,
    publish_reviewers,
    with_reviewer,
    without_reviewer,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from sqlalchemy import Connection, Row

    from stoilo.server.db.records import Owner


NAME_CHARS: Final = 128
WORD_CHARS: Final = 64  # of a group's or a token's name
MOST_DAYS: Final = 365  # of a token that its holder makes himself
MOST_OWN: Final = 16  # good tokens of an account that makes itself one more
ID_CHARS: Final = 12  # So much of a token's digest names it among its account's


@dataclass(frozen=True, slots=True)
class TokenLine:
    """One token, never its text; times in s since 1970."""

    token: str  # the beginning of its digest
    role: str  # what its holder is
    scope: str  # ``*`` or the calls that it may make
    created_at: int  # when it was made
    expires_at: int  # when it ends by itself
    revoked_at: int = 0  # when it was revoked, 0: it was not
    name: str = ""  # its holder's word for it


@contextlib.contextmanager
def open_accounts(data: Path, environ: Mapping[str, str]) -> Iterator[Store]:
    """Yield the server's tables of a data directory.

    Raises:
        UsageError: ``STO-U004`` for a directory that is none.
    """
    keys_of(data)
    config, _ = load_config(data.absolute(), {}, environ)
    with contextlib.closing(Store.open(config.database_url)) as store:
        yield store


def list_tokens(store: Store, name: str) -> tuple[TokenLine, ...]:
    """Return an account's tokens, oldest first; raises ``STO-R029``."""
    with store.read() as connection:
        account = find_account(connection, name)
        return tuple(
            TokenLine(
                row.digest[:ID_CHARS],
                row.role,
                row.scope,
                row.created_at,
                row.expires_at,
                row.revoked_at or 0,
                row.name,
            )
            for row in tokens_of(connection, account.id)
        )


def add_token(
    store: Store, data: Path, name: str, lifetime_s: int, now: int, label: str = ""
) -> ConnectionFile:
    """Return a connection with a new token for the account `name`, made if new.

    Of an account that has good tokens it is of their role, else a researcher's.

    Raises:
        UsageError: ``STO-U004``: the server has never run; ``STO-R029``: no name.
    """
    check_word(name, NAME_CHARS)
    if label:
        check_word(label, WORD_CHARS)
    connection_file = read_connection_file(data)
    with store.write() as connection:
        role = role_of(connection, name, now)
        token = tokens.issue_token(
            connection, name, role, now, lifetime_s=lifetime_s, label=label
        )
    return msgspec.structs.replace(connection_file, token=token)


def check_word(word: str, most: int = WORD_CHARS) -> None:
    """Raise ``STO-R029`` for what can be no name: empty, too long, not of one line."""
    if not word or len(word) > most or not word.isprintable():
        raise UsageError("STO-R029", f"{word[:40]!r} cannot be a name")


def make_link(
    data: Path, name: str, role: tokens.Role, environ: Mapping[str, str], now: int
) -> str:
    """Return a one-time link to the console for the account `name`, made if new.

    Raises:
        UsageError: ``STO-U004``: the server has never run; ``STO-R029``: no name.
    """
    check_word(name, NAME_CHARS)
    config, _ = load_config(data.absolute(), {}, environ)
    url = config.project_url or read_connection_file(data).http
    with open_accounts(data, environ) as store, store.write() as connection:
        secret = tokens.issue_link(connection, name, role, now)
    return f"{url}console/sign-in?link={secret}"


def role_of(connection: Connection, name: str, now: int) -> tokens.Role:
    """Return the role of an account's good tokens; a researcher's where it has none."""
    table = schema.account
    found = connection.scalar(select(table.c.id).where(table.c.name == name))
    roles = [
        one.role for one in tokens_of(connection, found or 0) if has_role(one, now)
    ]
    return tokens.Role(roles[-1]) if roles else tokens.Role.RESEARCHER


def issue_own(store: Store, owner: Owner, label: str, days: int, now: int) -> str:
    """Return a new token like the caller's own, for his account; shown only here.

    Raises:
        UsageError: ``STO-R010``: no such life; ``STO-R029``: no name.
        DeniedError: ``STO-R002``: the caller's token is for some calls only, and of no
            session of the console.
        PolicyRefusal: ``STO-R005``: it has as many good ones as it may have.
    """
    if label:
        check_word(label)
    if not 1 <= days <= MOST_DAYS:
        raise UsageError("STO-R010", f"a token lives 1 to {MOST_DAYS} days, not {days}")
    # What a session may call over gRPC is not this: it gets here by the console's form.
    if owner.scope not in {"*", tokens.SESSION_SCOPE}:
        raise DeniedError("STO-R002", "a token for some calls only makes no others")
    with store.write() as connection:
        good = [
            one
            for one in tokens_of(connection, owner.account_id)
            if is_good(one, now) and one.scope == "*"
        ]
        if len(good) >= MOST_OWN:
            raise PolicyRefusal(
                "STO-R005",
                f"an account makes itself up to {MOST_OWN} tokens",
                hint="revoke one that you no longer use",
            )
        role, life = tokens.Role(owner.role), days * tokens.DAY_S
        return tokens.issue_token(
            connection, owner.name, role, now, lifetime_s=life, label=label
        )


def end_own(store: Store, owner: Owner, token: str, now: int) -> bool:
    """Revoke one of the caller's own tokens; False where it was over.

    Raises:
        DeniedError: ``STO-R003``: it is none of his, or there is none.
    """
    try:
        return revoke(store, owner.name, token or "-", now) > 0
    except UsageError as error:
        raise DeniedError("STO-R003", "no such token") from error


def expire(store: Store, name: str, token: str, until: int, now: int) -> int:
    """Let a token of an account end at `until` (s), all of them if empty; never later.

    Returns how many end earlier than they would have. Raises ``STO-R029``.
    """
    with store.write() as connection:
        account = find_account(connection, name)
        named = _named(tokens_of(connection, account.id), token)
        sooner = [one for one in named if is_good(one, now) and one.expires_at > until]
        change_tokens(connection, account, sooner, now, expires_at=until)
    return len(sooner)


def change_tokens(
    connection: Connection,
    account: Row,  # type: ignore[type-arg]  # of `account`
    changed: Sequence[Row],  # type: ignore[type-arg]  # of its `token`
    now: int,
    **values: str | int,
) -> None:
    """Change columns of tokens, each with its act."""
    for one in changed:
        query = update(schema.token).where(schema.token.c.id == one.id)
        connection.execute(query.values(**values))
        left = one._asdict() | values
        role, until = left["role"], left["expires_at"]
        note_change(connection, account, now, role=role, until=until)


def revoke(store: Store, name: str, token: str, now: int) -> int:
    """Revoke an account's token, all of them if empty; returns how many were good till now.

    Args:
        store: the server's tables.
        name: of the account.
        token: as `list_tokens` names it.
        now: s.

    Raises:
        UsageError: ``STO-R029``: no such account, or no such token of it.
    """
    with store.write() as connection:
        account = find_account(connection, name)
        named = _named(tokens_of(connection, account.id), token)
        return tokens.revoke_digests(connection, [one.digest for one in named], now)


def _named(found: Sequence[Row], token: str) -> list[Row]:  # type: ignore[type-arg]  # of `token`
    """Return the tokens that `token` begins the digest of, all if empty."""
    named = [one for one in found if one.digest.startswith(token)]
    # Digests' beginnings may meet: rather none than the wrong one.
    if token and len(named) != 1:
        raise UsageError("STO-R029", "the account has no such token")
    return named


def revoke_leaked(store: Store, token: str, now: int) -> bool:
    """Revoke a token that turned up somewhere, by its text; False for no good one."""
    with store.write() as connection:
        return tokens.revoke_token(connection, token, now)


def note_change(
    connection: Connection,
    account: Row | None,  # type: ignore[type-arg]  # of `account`
    now: int,
    *,
    role: str = "",
    until: int = 0,
) -> None:
    """Note a change for the log; what a group may use is of no account."""
    subject = "" if account is None else submitter_commitment(account.salt)
    act = OperatorAct.ACCOUNT_CHANGED
    note_act(connection, act, now, subject=subject, role=role, until=until)


def find_account(connection: Connection, name: str) -> Row:  # type: ignore[type-arg]  # of `account`
    """Return an account's row; raises ``STO-R029``."""
    query = select(schema.account).where(schema.account.c.name == name)
    row = connection.execute(query).first()
    if row is None:
        raise UsageError("STO-R029", f"there is no account {name[:40]!r}")
    return row


def tokens_of(connection: Connection, account_id: int) -> list[Row]:  # type: ignore[type-arg]  # of `token`
    """Return an account's tokens, oldest first."""
    table = schema.token
    query = select(table).where(table.c.account_id == account_id).order_by(table.c.id)
    return list(connection.execute(query).all())


def is_good(row: Row, now: int) -> bool:  # type: ignore[type-arg]  # of `token`
    """Say whether a token opens anything now (s)."""
    return row.revoked_at is None and row.expires_at > now


def has_role(row: Row, now: int) -> bool:  # type: ignore[type-arg]  # of `token`
    """Say whether a token is good, whole or a passkey, and no reviewer's (by enrolment)."""
    of_reviewer = row.role == tokens.Role.REVIEWER.value
    lasting = row.scope in {"*", tokens.PASSKEY_SCOPE}
    return is_good(row, now) and lasting and not of_reviewer


def enroll(
    data: Path,  # directory of a server that has run before
    name: str,  # of the reviewer's account, made if new
    key: str,  # public key, hex
    # other accounts of the same person: their tasks he cannot review
    accounts: tuple[str, ...],
    environ: Mapping[str, str],  # for the server's settings
    proposal: Path | None = None,  # file for the ceremony, ``keys.json``
) -> ConnectionFile:
    """Name `key` as a reviewer's in the release; returns his connection.

    A released project's reviewers are named by people: then the account is made here,
    and `proposal` gets the list that the next ceremony is to sign.

    Raises:
        UsageError: ``STO-U004`` no such data directory, ``STO-R029`` no such account,
            ``STO-K091`` a released project, and no `proposal`.
        TrustError: ``STO-K001``, the key is none.
    """
    keys, connection_file = keys_of(data), read_connection_file(data)
    now = int(time.time())
    with open_accounts(data, environ) as store, store.write() as connection:
        token = tokens.issue_token(connection, name, tokens.Role.REVIEWER, now)
        salts = [find_account(connection, one).salt for one in (name, *accounts)]
        own = tuple(map(submitter_commitment, salts))
        note_act(connection, OperatorAct.REVIEWER_ENROLLED, now, subject=own[0])
        entry = ReviewerKey(key, name, own)
        if proposal is None:
            publish_reviewers(keys, lambda named: with_reviewer(named, entry), now)
        else:
            _propose(proposal, with_reviewer(reviewers_of(data), entry))
    return msgspec.structs.replace(connection_file, token=token)


def withdraw(
    data: Path, key: str, environ: Mapping[str, str], proposal: Path | None = None
) -> None:
    """Take a reviewer's key out of the release; raises ``STO-K054``.

    Of a released project: write the list for the next ceremony to `proposal`. Where an
    account has no other key, its reviewer's tokens and sessions end at once and first:
    whatever fails afterwards, he reads nothing more.
    """
    named, now = reviewers_of(data), int(time.time())
    left = without_reviewer(named, key)
    gone = {one.name for one in named} - {one.name for one in left.keys}
    account, token = schema.account, schema.token
    his = (account.c.name.in_(gone), token.c.role == tokens.Role.REVIEWER.value)
    query = select(token.c.digest).join(account, account.c.id == token.c.account_id)
    with open_accounts(data, environ) as store, store.write() as connection:
        digests = connection.scalars(query.where(*his)).all()
        tokens.revoke_digests(connection, digests, now)
    if proposal is None:
        publish_reviewers(
            keys_of(data), lambda named: without_reviewer(named, key), now
        )
    else:
        _propose(proposal, left)


def _propose(place: Path, named: ReviewerFile) -> None:
    """Write the list that a ceremony is to sign; raises ``STO-U006``."""
    try:
        place.write_bytes(msgspec.json.encode(named))
    except OSError as error:
        raise InternalError("STO-U006", f"{place.name} cannot be written") from error


def reviewers_of(data: Path) -> tuple[ReviewerKey, ...]:
    """Return the reviewers whom the release names."""
    return list_reviewers(keys_of(data))
