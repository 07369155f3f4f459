"""What hosts need beside their tasks' own files: today's release, and what stock clients run.

Files and signatures come from the release; no key to sign with is ever here. A host that
runs results by its own program (`stoilo volunteer`) needs none of this. Any other gets work
only when its platform has a program and it would believe our signatures; if not, a notice
says what to do, because a client would fail every task in silence.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import bindparam, delete, exists, func, insert, null, select, update

from stoilo.core.boinc.messages import AppVersion, FileInfo, FileRef, ProgramFile
from stoilo.executor.verifier.workunit import RELEASE
from stoilo.server.engines.embedded.db import schema
from stoilo.server.engines.interface import ResultProgress
from stoilo.server.engines.programs import (
    FIRST_VERSION,
    VERIFIER_OPEN_NAME,
    CodeSignKey,
    FormerKey,
    launcher_name,
    verifier_name,
)
from stoilo.server.engines.workunits import WorkunitFile

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from sqlalchemy import Connection, ScalarSelect, Select

    from stoilo.core.boinc.messages import SchedulerRequest
    from stoilo.server.engines.embedded.db.schema import AnyRow
    from stoilo.server.engines.programs import AppProgram

# What all hosts need beside their tasks (release, programs, keys) changes a few times a year
# and is needed at every call, so it is read once and kept until its version changes. The
# version is a row that changes in the same transaction; each call reads it with the first
# thing it reads, so that no call sees an old catalogue.
_NAME: Final = "catalogue"


@dataclass(frozen=True, slots=True)
class Catalogue:
    """All of it, as it is announced."""

    version: str  # changes with everything else
    # metadata that goes out with every result, None before there is any
    release: FileInfo | None
    programs: Mapping[str, AppVersion]  # by platform, of no app yet
    key: CodeSignKey  # that clients check programs with


def catalogue_version() -> ScalarSelect[str]:
    """Return the version as a column for another query; NULL before the first change."""
    table = schema.settings
    return select(table.c.value).where(table.c.name == _NAME).scalar_subquery()


def change_catalogue(connection: Connection) -> None:
    """Give the catalogue a new version, in the transaction that changes it."""
    table = schema.settings
    connection.execute(delete(table).where(table.c.name == _NAME))
    connection.execute(insert(table).values(name=_NAME, value=secrets.token_hex(8)))


def load_catalogue(connection: Connection, version: str, base_url: str) -> Catalogue:
    """Return the catalogue as it is in this transaction, which has read `version`."""
    table, keys, settings = schema.programs, schema.code_sign_keys, schema.settings
    programs = connection.execute(select(table).where(table.c.replaced_at == 0)).all()
    query = select(settings.c.value).where(settings.c.name == "release-0")
    newest = connection.scalar(query)
    named = [newest, *(one for row in programs for one in (row.launcher, row.verifier))]
    files = schema.files
    rows = connection.execute(select(files).where(files.c.digest.in_(named)))
    held = {
        row.digest: _info(row, base_url, sticky=row.digest == newest) for row in rows
    }
    stored = connection.execute(select(keys).order_by(keys.c.place))
    (in_force, _), *former = [(row.text, row.signature) for row in stored] or [("", "")]
    return Catalogue(
        version,
        held.get(newest or ""),
        {row.platform: _program(row, held) for row in programs},
        CodeSignKey(in_force, tuple(FormerKey(*row) for row in former)),
    )


def _info(
    row: AnyRow,  # of `files`
    base_url: str,
    *,
    sticky: bool,
) -> FileInfo:
    """Return what a reply says of a file, which is called by its digest."""
    url = f"{base_url}download/{row.token}"
    return FileInfo(row.digest, url, row.size, row.md5, sticky)


def _program(row: AnyRow, held: Mapping[str, FileInfo]) -> AppVersion:
    launcher, verifier = launcher_name(row.launcher), verifier_name(row.verifier)
    files = (
        ProgramFile(
            replace(held[row.launcher], name=launcher, sticky=False),
            row.launcher_signature,
            executable=True,
            main=True,
        ),
        ProgramFile(
            replace(held[row.verifier], name=verifier, sticky=False),
            row.verifier_signature,
            open_name=VERIFIER_OPEN_NAME,
        ),
    )
    return AppVersion("", row.version_num, row.platform, files)


def file_refs(
    connection: Connection,
    workunits: Sequence[int],
    release: FileInfo | None,
    base_url: str,
    *,
    room: int = 0,
) -> tuple[dict[int, list[FileRef]], tuple[FileInfo, ...]]:
    """Return files of some workunits, today's release among them, and all of them once.

    A workunit that brings a release of its own gets that. `room`: bytes of small files
    that may come with what is said of them; those that hosts keep never do.
    """
    if not workunits:
        return {}, ()
    refs: dict[int, list[FileRef]] = {row: [] for row in workunits}
    files: dict[str, FileInfo] = {}
    query = _files_of(with_content=room > 0)
    for row in connection.execute(query, {"rows": list(refs)}):
        refs[row.workunit_id].append(FileRef(row.digest, row.open_name))
        known = files.get(row.digest)  # sticky for one workunit is sticky for all
        keep = bool(row.sticky) or (known is not None and known.sticky)
        info = _info(row, base_url, sticky=keep)
        if not keep and room >= row.size > 0 and row.content:
            room -= row.size
            info = replace(info, content=row.content)
        files[row.digest] = info
    for own in refs.values():
        if release is not None and all(ref.open_name != RELEASE for ref in own):
            files[release.name] = release
            own.append(FileRef(release.name, RELEASE))
    return refs, tuple(files.values())


@cache
def _files_of(*, with_content: bool) -> Select[Any]:
    """Return the query for the files of workunits :rows, each workunit's in order."""
    needs, table = schema.workunit_files, schema.files
    of = needs.c.workunit_id
    content = table.c.content if with_content else null().label("content")
    return (
        select(needs, table.c.token, table.c.size, table.c.md5, content)
        .join(table, table.c.digest == needs.c.digest)
        .where(of.in_(bindparam("rows", expanding=True)))
        .order_by(of, needs.c.open_name)
    )


RELEASES_KEPT = 3


def program_files(programs: Iterable[AppProgram]) -> tuple[WorkunitFile, ...]:
    """Return the files of programs in the form that the depot takes."""
    signed = [file for one in programs for _, file in one.files]
    return tuple(
        WorkunitFile(VERIFIER_OPEN_NAME, file.digest, file.source) for file in signed
    )


def store_programs(
    connection: Connection, programs: Sequence[AppProgram], key: CodeSignKey, now: int
) -> tuple[str, ...]:
    """Make checked programs those in force; return digests that may go now."""
    table = schema.programs
    wanted = {program.platform: program for program in programs}
    rows = connection.execute(select(table).where(table.c.replaced_at == 0)).all()
    for row in rows:
        if row.platform in wanted and _same(row, wanted[row.platform]):
            del wanted[row.platform]
            continue
        connection.execute(
            update(table)
            .where(table.c.version_num == row.version_num)
            .values(replaced_at=max(now, 1))
        )
    for program in wanted.values():
        _insert(connection, program)
    _store_key(connection, key)
    return _retire(connection)


def _same(row: AnyRow, program: AppProgram) -> bool:
    """Say whether a row is this program, signatures included."""
    return all(getattr(row, name) == value for name, value in _columns(program).items())


def _columns(program: AppProgram) -> dict[str, str]:
    return {
        "platform": program.platform,
        "launcher": program.launcher.digest,
        "launcher_signature": program.launcher.signature,
        "verifier": program.verifier.digest,
        "verifier_signature": program.verifier.signature,
    }


def _insert(connection: Connection, program: AppProgram) -> None:
    table = schema.programs
    newest = connection.scalar(select(func.max(table.c.version_num)))
    connection.execute(
        insert(table).values(
            version_num=FIRST_VERSION if newest is None else newest + 1,
            replaced_at=0,
            served=1,
            **_columns(program),
        )
    )


def _store_key(connection: Connection, key: CodeSignKey) -> None:
    table = schema.code_sign_keys
    rows = [{"place": 0, "text": key.text, "signature": ""}] if key.text else []
    rows += [
        {"place": place, "text": former.key, "signature": former.signature}
        for place, former in enumerate(key.former, start=1)
    ]
    connection.execute(delete(table))
    if rows:
        connection.execute(insert(table), rows)


def _retire(connection: Connection) -> tuple[str, ...]:
    table, results = schema.programs, schema.results
    needed = exists().where(
        results.c.state == ResultProgress.IN_PROGRESS.value,
        results.c.sent_at <= table.c.replaced_at,
    )
    over = (table.c.served == 1) & (table.c.replaced_at > 0) & ~needed
    rows = connection.execute(select(table).where(over)).all()
    numbers = [row.version_num for row in rows]
    connection.execute(
        update(table).where(table.c.version_num.in_(numbers)).values(served=0)
    )
    return tuple(digest for row in rows for digest in (row.launcher, row.verifier))


def store_release(connection: Connection, digest: str) -> list[str]:
    """Make a stored file the release that goes out; return those now too old."""
    table = schema.settings
    releases = table.c.name.like("release-%")
    rows = connection.execute(select(table).where(releases).order_by(table.c.name))
    kept = [row.value for row in rows if row.value != digest]
    newest = [digest, *kept][:RELEASES_KEPT]
    connection.execute(delete(table).where(releases))
    connection.execute(
        insert(table),
        [
            {"name": f"release-{place}", "value": one}
            for place, one in enumerate(newest)
        ],
    )
    return [one for one in kept if one not in newest]


def kept_digests(connection: Connection) -> tuple[str, ...]:
    """Return digests of files that stay though no workunit names them."""
    table, programs = schema.settings, schema.programs
    releases = select(table.c.value).where(table.c.name.like("release-%"))
    rows = connection.execute(
        select(programs.c.launcher, programs.c.verifier).where(programs.c.served == 1)
    ).all()
    return (*connection.scalars(releases), *(one for row in rows for one in row))


def offered_platforms(connection: Connection) -> tuple[str, ...]:
    """Return the platforms that have a program."""
    table = schema.programs
    query = select(table.c.platform).where(table.c.replaced_at == 0)
    return tuple(connection.scalars(query.order_by(table.c.platform)))


# Major version: older ones have no memory-mapped runtime interface as ours needs it
OLDEST_CLIENT = 7


@dataclass(frozen=True, slots=True)
class ProgramChoice:
    """How one client can run results."""

    usable: bool = True  # whether it can at all
    program: AppVersion | None = None  # what it runs; None for a host with its own
    key: str = ""  # the code-sign key, where the client has to be told
    key_signature: str = ""  # over it, by the key that the client holds
    notices: tuple[str, ...] = ()  # for its user, why it cannot
    lacking: bool = False  # whether that is because the project has no programs at all

    def versions(self, apps: Iterable[str]) -> tuple[AppVersion, ...]:
        """Return the app versions of some apps, none for a host with its own program."""
        return tuple(replace(self.program, app=app) for app in apps if self.program)


def choose_program(catalogue: Catalogue, request: SchedulerRequest) -> ProgramChoice:
    """Return how the caller can run results."""
    if request.own_program:
        return ProgramChoice()
    news = _key_news(catalogue.key, request.code_sign_key.strip())
    offered = catalogue.programs
    program = next((offered[one] for one in request.platforms if one in offered), None)
    notice, lacking = "", False
    if 0 < request.client.major < OLDEST_CLIENT:
        notice = (
            f"This project needs BOINC {OLDEST_CLIENT} or newer. Update your client."
        )
    elif news is None:
        notice = (
            "Your client knows another code-sign key of this project and would refuse its "
            "programs. Ask the project why; then remove the project and add it again."
        )
    elif program is None:
        shown = ", ".join(one[:64] for one in request.platforms[:4]) or "none"
        notice = f"This project has no program for your platform ({shown})."
        lacking = not offered
    key, signature = news or ("", "")
    if notice:
        return ProgramChoice(
            usable=False,
            key=key,
            key_signature=signature,
            notices=(notice,),
            lacking=lacking,
        )
    return ProgramChoice(program=program, key=key, key_signature=signature)


def _key_news(key: CodeSignKey, held: str) -> tuple[str, str] | None:
    """Return key and signature to tell a client that holds `held` (untrusted text).

    None when the one in force did not take over from that: such a client would take no
    program of ours.
    """
    if not key.text or key.text.strip() == held:
        return "", ""
    if not held:
        return key.text, ""
    signed = (one.signature for one in key.former if one.key.strip() == held)
    signature = next(signed, None)
    return None if signature is None else (key.text, signature)
