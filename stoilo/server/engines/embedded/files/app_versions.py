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
from typing import TYPE_CHECKING, Final

from sqlalchemy import bindparam, delete, exists, func, insert, select, update

from stoilo.core.boinc.messages import AppVersion, FileInfo, FileRef, ProgramFile
from stoilo.executor.verifier.workunit import RELEASE
from stoilo.server.engines.embedded.db import schema
from stoilo.server.engines.interface import ResultProgress
from stoilo.server.engines.programs import CodeSignKey, FormerKey
from stoilo.server.engines.workunits import WorkunitFile

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sqlalchemy import Connection, ScalarSelect, Select

    from stoilo.core.boinc.messages import SchedulerReply, SchedulerRequest
    from stoilo.server.engines.embedded.db.schema import AnyRow
    from stoilo.server.engines.programs import AppProgram


# What all hosts need beside their tasks (release, programs, keys) changes a few times a year
# and is needed at every call, so it is read once and kept until its version changes. The
# version is a row that changes in the same transaction; each call reads it with the first
# thing it reads, so that no call sees an old catalogue.
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
class Catalogue:
    """All of it."""

    version: str  # changes with everything else
    # metadata that goes out with every result, None before there is any
    release: HeldFile | None
    programs: tuple[StoredProgram, ...]  # one for each platform
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


def load_catalogue(connection: Connection, version: str) -> Catalogue:
    """Return the catalogue as it is in this transaction, which has read `version`."""
    table, keys = schema.programs, schema.code_sign_keys
    programs = connection.execute(
        select(table).where(table.c.replaced_at == 0).order_by(table.c.platform)
    ).all()
    held = [
        (row.text, row.signature)
        for row in connection.execute(select(keys).order_by(keys.c.place))
    ]
    (in_force, _), *former = held or [("", "")]
    return Catalogue(
        version,
        _release(connection),
        tuple(_program(connection, row) for row in programs),
        CodeSignKey(in_force, tuple(FormerKey(*row) for row in former)),
    )


def _release(connection: Connection) -> HeldFile | None:
    table, settings = schema.files, schema.settings
    row = connection.execute(
        select(table.c.digest, table.c.token, table.c.size, table.c.md5)
        .join(settings, settings.c.value == table.c.digest)
        .where(settings.c.name == "release-0")
    ).first()
    return None if row is None else HeldFile(*row)


def _program(connection: Connection, row: AnyRow) -> StoredProgram:
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


FIRST_VERSION = 100  # BOINC shows it as 1.00
VERIFIER_OPEN_NAME = "stoilo-verifier.tar"


def program_files(programs: Iterable[AppProgram]) -> tuple[WorkunitFile, ...]:
    """Return the files of programs in the form that the depot takes."""
    signed = [file for one in programs for file in (one.launcher, one.verifier)]
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
        _insert(connection, program, now)
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


def _insert(connection: Connection, program: AppProgram, now: int) -> None:
    table = schema.programs
    newest = connection.scalar(select(func.max(table.c.version_num)))
    connection.execute(
        insert(table).values(
            version_num=FIRST_VERSION if newest is None else newest + 1,
            created_at=now,
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


def program_digests(connection: Connection) -> tuple[str, ...]:
    """Return the digests of files that app versions need."""
    table = schema.programs
    rows = connection.execute(
        select(table.c.launcher, table.c.verifier).where(table.c.served == 1)
    ).all()
    return tuple(digest for row in rows for digest in row)


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
    program: StoredProgram | None = None  # what it runs; None for a host with its own
    key: str = ""  # the code-sign key, where the client has to be told
    key_signature: str = ""  # over it, by the key that the client holds
    notices: tuple[str, ...] = ()  # for its user, why it cannot

    def complete(self, reply: SchedulerReply, base_url: str) -> SchedulerReply:
        """Return `reply` with the app versions that its results need, key and notices."""
        apps = {workunit.app for workunit in reply.workunits}
        return replace(
            reply,
            app_versions=_app_versions(self.program, apps, base_url),
            code_sign_key=self.key,
            code_sign_key_signature=self.key_signature,
            messages=reply.messages + self.notices,
        )


def choose_program(catalogue: Catalogue, request: SchedulerRequest) -> ProgramChoice:
    """Return how the caller can run results."""
    if request.own_program:
        return ProgramChoice()
    news = _key_news(catalogue.key, request.code_sign_key.strip())
    offered = {program.platform: program for program in catalogue.programs}
    program = next((offered[one] for one in request.platforms if one in offered), None)
    notice = ""
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
    key, signature = news or ("", "")
    choice = ProgramChoice(key=key, key_signature=signature)
    if notice:
        return replace(choice, usable=False, notices=(notice,))
    return replace(choice, program=program)


def _app_versions(
    program: StoredProgram | None, apps: Iterable[str], base_url: str
) -> tuple[AppVersion, ...]:
    named = sorted(set(apps))
    if program is None or not named:
        return ()
    launcher = ProgramFile(
        _file_info(program.launcher, "launcher", "", base_url),
        program.launcher_signature,
        executable=True,
        main=True,
    )
    verifier = ProgramFile(
        _file_info(program.verifier, "verifier", ".tar", base_url),
        program.verifier_signature,
        open_name=VERIFIER_OPEN_NAME,
    )
    return tuple(
        AppVersion(app, program.version_num, program.platform, (launcher, verifier))
        for app in named
    )


def _file_info(file: HeldFile, part: str, suffix: str, base_url: str) -> FileInfo:
    """Return one file; its name is of its bytes, so that it never changes meaning."""
    return file.info(base_url, name=f"stoilo_{part}_{file.digest[:16]}{suffix}")


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
