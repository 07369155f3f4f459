"""Making somebody a reviewer of a project: account, token and key in one step.

Works beside a running server, which notices the new release metadata by itself. Trust: the
caller is the operator, who can read the data directory anyway.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import msgspec
from sqlalchemy import Connection, select

from stoilo.audit.format.record import OperatorAct
from stoilo.core.errors import InternalError, UsageError
from stoilo.executor.verifier.release.targets import ReviewerFile, ReviewerKey
from stoilo.server.admission import tokens
from stoilo.server.config import load_config
from stoilo.server.data_directory import CONNECTION_FILE, ConnectionFile
from stoilo.server.db import schema
from stoilo.server.db.store import Store
from stoilo.server.log.disclosure import submitter_commitment
from stoilo.server.log.outbox import note_act
from stoilo.signer.reviewers import (
    enroll_reviewer,
    list_reviewers,
    with_reviewer,
    withdraw_reviewer,
    without_reviewer,
)

__all__ = ["enroll", "reviewers_of", "withdraw"]


def enroll(
    data: Path,
    name: str,
    key: str,
    accounts: tuple[str, ...],
    environ: Mapping[str, str],
    proposal: Path | None = None,
) -> ConnectionFile:
    """Name `key` as a reviewer's in the release; returns his connection.

    A released project's reviewers are named by people: then the account is made here,
    and `proposal` gets the list that the next ceremony is to sign.

    Args:
        data: directory of a server that has run before.
        name: of the reviewer's account, made if new.
        key: public key, hex.
        accounts: other accounts of the same person: their tasks he cannot review.
        environ: for the server's settings.
        proposal: file for the ceremony, ``keys.json``.

    Raises:
        UsageError: ``STO-U004`` no such data directory, ``STO-R029`` no such account,
            ``STO-K091`` a released project, and no `proposal`.
        TrustError: ``STO-K001``, ``STO-K002``, the key is none.
    """
    connection_file = _read_connection(data)
    now = int(time.time())
    with _open_store(data, environ) as connection:
        token = tokens.issue_token(connection, name, tokens.Role.REVIEWER, now)
        own = tuple(_commitment(connection, one) for one in (name, *accounts))
        note_act(connection, OperatorAct.REVIEWER_ENROLLED, now, subject=own[0])
        entry = ReviewerKey(key, name, own)
        if proposal is None:
            enroll_reviewer(_keys(data), entry, now)
        else:
            _propose(proposal, with_reviewer(reviewers_of(data), entry))
    return msgspec.structs.replace(connection_file, token=token)


def withdraw(data: Path, key: str, proposal: Path | None = None) -> None:
    """Take a reviewer's key out of the release; raises ``STO-K030``.

    Of a released project: write the list for the next ceremony to `proposal`.
    """
    if proposal is None:
        withdraw_reviewer(_keys(data), key, int(time.time()))
    else:
        _propose(proposal, without_reviewer(reviewers_of(data), key))


def _propose(place: Path, named: ReviewerFile) -> None:
    """Write the list that a ceremony is to sign; raises ``STO-U006``."""
    try:
        place.write_bytes(msgspec.json.encode(named))
    except OSError as error:
        raise InternalError("STO-U006", f"{place.name} cannot be written") from error


def reviewers_of(data: Path) -> tuple[ReviewerKey, ...]:
    """Return the reviewers whom the release names."""
    return list_reviewers(_keys(data))


def _keys(data: Path) -> Path:
    keys = data / "keys"
    if not (keys / "metadata").is_dir():
        raise UsageError(
            "STO-U004",
            f"{data.name or data} is not the data directory of a server",
            hint="start one with `stoilo up --data DIR`",
        )
    return keys


def _read_connection(data: Path) -> ConnectionFile:
    _keys(data)
    try:
        return msgspec.json.decode(
            (data / CONNECTION_FILE).read_bytes(), type=ConnectionFile
        )
    except (OSError, msgspec.MsgspecError) as error:
        raise UsageError(
            "STO-U004", "the server has written no connection file yet"
        ) from error


@contextmanager
def _open_store(data: Path, environ: Mapping[str, str]) -> Iterator[Connection]:
    config, _ = load_config(data.absolute(), {}, environ)
    store = Store.open(config.database_url)
    try:
        with store.write() as connection:
            yield connection
    finally:
        store.close()


def _commitment(connection: Connection, name: str) -> str:
    table = schema.account
    salt = connection.scalar(select(table.c.salt).where(table.c.name == name))
    if salt is None:
        raise UsageError("STO-R029", f"there is no account {name[:40]!r}")
    return submitter_commitment(str(salt))
