"""What all hosts need beside their tasks: today's release, programs, code-sign keys.

It changes a few times a year and is needed at every call, so it is read once and kept
until its version changes. The version is a row that changes in the same transaction; each
call reads it with the first thing it reads, so a call never sees an old catalogue.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sqlalchemy import delete, insert, select

from stoilo.core.boinc.messages import FileInfo
from stoilo.server.engines.embedded import schema

if TYPE_CHECKING:
    from sqlalchemy import Connection, Row, ScalarSelect

__all__ = [
    "Catalogue",
    "HeldFile",
    "SignKey",
    "StoredProgram",
    "catalogue_version",
    "change_catalogue",
    "load_catalogue",
]

_NAME: Final = "catalogue"


@dataclass(frozen=True, slots=True)
class HeldFile:
    """A file as it is announced, apart from the project's address."""

    digest: str
    token: str
    size: int
    md5: str

    def info(self, base_url: str, *, name: str = "", sticky: bool = False) -> FileInfo:
        """Return what a reply says of it; it is called by its digest unless named."""
        url = f"{base_url}download/{self.token}"
        return FileInfo(name or self.digest, url, self.size, self.md5, sticky)


@dataclass(frozen=True, slots=True)
class StoredProgram:
    """What stock clients of one platform run."""

    version_num: int
    platform: str
    launcher: HeldFile
    launcher_signature: str
    verifier: HeldFile
    verifier_signature: str


@dataclass(frozen=True, slots=True)
class SignKey:
    """A code-sign key; the signature of a former one is over that in force."""

    text: str
    signature: str


@dataclass(frozen=True, slots=True)
class Catalogue:
    """All of it.

    Attributes:
        version: changes with everything else.
        release: metadata that goes out with every copy, None before there is any.
        programs: one for each platform.
        keys: the one in force first; empty without programs.
    """

    version: str
    release: HeldFile | None
    programs: tuple[StoredProgram, ...]
    keys: tuple[SignKey, ...]


def catalogue_version() -> ScalarSelect[str]:
    """Return the version as a column for another query; NULL before the first change."""
    table = schema.settings
    return select(table.c.value).where(table.c.name == _NAME).scalar_subquery()


def change_catalogue(connection: Connection) -> None:
    """Give the catalogue a new version, in the transaction that changes it."""
    table = schema.settings
    connection.execute(delete(table).where(table.c.name == _NAME))
    connection.execute(insert(table).values(name=_NAME, value=secrets.token_hex(8)))


def load_catalogue(connection: Connection, version: str) -> Catalogue:
    """Return the catalogue as it is in this transaction, which has read `version`."""
    table, keys = schema.programs, schema.code_sign_keys
    programs = connection.execute(
        select(table).where(table.c.replaced_at == 0).order_by(table.c.platform)
    ).all()
    held = connection.execute(select(keys).order_by(keys.c.place)).all()
    return Catalogue(
        version,
        _release(connection),
        tuple(_program(connection, row) for row in programs),
        tuple(SignKey(row.text, row.signature) for row in held),
    )


def _release(connection: Connection) -> HeldFile | None:
    """Return the newest release bundle."""
    table, settings = schema.files, schema.settings
    row = connection.execute(
        select(table.c.digest, table.c.token, table.c.size, table.c.md5)
        .join(settings, settings.c.value == table.c.digest)
        .where(settings.c.name == "release-0")
    ).first()
    return None if row is None else HeldFile(*row)


def _program(connection: Connection, row: Row) -> StoredProgram:  # type: ignore[type-arg]  # a row of `programs`
    """Return a program with its files."""
    table = schema.files
    query = select(table.c.digest, table.c.token, table.c.size, table.c.md5)
    launcher, verifier = (
        HeldFile(*connection.execute(query.where(table.c.digest == digest)).one())
        for digest in (row.launcher, row.verifier)
    )
    return StoredProgram(
        row.version_num,
        row.platform,
        launcher,
        row.launcher_signature,
        verifier,
        row.verifier_signature,
    )
