"""What all hosts need beside their tasks: today's release, programs, code-sign keys.

It changes a few times a year and is needed at every call, so it is read once and kept
until its version changes. The version is a row that changes in the same transaction; each
call reads it with the first thing it reads, so a call never sees an old catalogue.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Final

from sqlalchemy import bindparam, delete, insert, select

from stoilo.core.boinc.messages import FileInfo, FileRef
from stoilo.executor.verifier.workunit import RELEASE
from stoilo.server.engines.embedded.db import schema

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection, Row, ScalarSelect, Select


__all__ = [
    "Catalogue",
    "HeldFile",
    "SignKey",
    "StoredProgram",
    "catalogue_version",
    "change_catalogue",
    "file_refs",
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
    """All of it."""

    version: str  # changes with everything else
    # metadata that goes out with every result, None before there is any
    release: HeldFile | None
    programs: tuple[StoredProgram, ...]  # one for each platform
    keys: tuple[SignKey, ...]  # the one in force first; empty without programs


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


def file_refs(
    connection: Connection,
    workunits: Sequence[int],
    release: HeldFile | None,
    base_url: str,
) -> tuple[dict[int, list[FileRef]], tuple[FileInfo, ...]]:
    """Return files of some workunits, today's release among them, and all of them once.

    A workunit that brings a release of its own gets that.
    """
    if not workunits:
        return {}, ()
    refs: dict[int, list[FileRef]] = {row: [] for row in workunits}
    files: dict[str, FileInfo] = {}
    rows = connection.execute(_query(), {"rows": list(refs)}).all()
    for row, open_name, sticky, digest, token, size, md5 in rows:
        file = HeldFile(digest, token, size, md5)
        refs[row].append(FileRef(file.digest, open_name))
        known = files.get(file.digest)  # sticky for one workunit is sticky for all
        keep = bool(sticky) or (known is not None and known.sticky)
        files[file.digest] = file.info(base_url, sticky=keep)
    for own in refs.values():
        if release is not None and all(ref.open_name != RELEASE for ref in own):
            files[release.digest] = release.info(base_url, sticky=True)
            own.append(FileRef(release.digest, RELEASE))
    return refs, tuple(files.values())


@cache
def _query() -> Select[int, str, int, str, str, int, str]:
    """Return the query for the files of workunits :rows, each workunit's in order."""
    needs, table = schema.workunit_files, schema.files
    of = needs.c.workunit_id
    return (
        select(
            of,
            needs.c.open_name,
            needs.c.sticky,
            table.c.digest,
            table.c.token,
            table.c.size,
            table.c.md5,
        )
        .join(table, table.c.digest == needs.c.digest)
        .where(of.in_(bindparam("rows", expanding=True)))
        .order_by(of, needs.c.open_name)
    )
