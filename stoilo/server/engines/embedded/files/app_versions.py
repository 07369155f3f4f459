"""What stock BOINC clients run, its signatures, and the key for them, as stored.

The files and their signatures come from the release; no key to sign with is ever here.
Each is checked as a client will check it before anything is stored, so that a ceremony's
mistake stops at the server instead of making every host's tasks fail.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sqlalchemy import delete, exists, func, insert, select, update

from stoilo.core.boinc.messages import AppVersion, ProgramFile
from stoilo.server.engines.embedded.db import schema
from stoilo.server.engines.interface import ResultProgress
from stoilo.server.engines.programs import check_programs
from stoilo.server.engines.workunits import WorkunitFile

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sqlalchemy import Connection, Row

    from stoilo.core.boinc.messages import FileInfo, SchedulerReply, SchedulerRequest
    from stoilo.server.engines.embedded.files.catalogue import (
        Catalogue,
        HeldFile,
        SignKey,
        StoredProgram,
    )
    from stoilo.server.engines.programs import AppProgram, CodeSignKey

__all__ = [
    "VERIFIER_OPEN_NAME",
    "KeyNews",
    "ProgramChoice",
    "check_programs",
    "choose_program",
    "key_news",
    "offered_platforms",
    "program_digests",
    "program_files",
    "store_programs",
]


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


def _same(row: Row, program: AppProgram) -> bool:  # type: ignore[type-arg]  # a row of `programs`
    """Say whether a row is this program, signatures included."""
    return all(getattr(row, name) == value for name, value in _columns(program).items())


def _columns(program: AppProgram) -> dict[str, str]:
    """Return a program's columns."""
    return {
        "platform": program.platform,
        "launcher": program.launcher.digest,
        "launcher_signature": program.launcher.signature,
        "verifier": program.verifier.digest,
        "verifier_signature": program.verifier.signature,
    }


def _insert(connection: Connection, program: AppProgram, now: int) -> None:
    """Insert a program under the next number."""
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
    """Make `key` the one in force."""
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
    """Stop serving former programs that no result under way can need."""
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


OLDEST_CLIENT = 7
"""Major version: older ones have no memory-mapped runtime interface as ours needs it."""


@dataclass(frozen=True, slots=True)
class KeyNews:
    """What a client must be told about the code-sign key; empty texts for nothing."""

    key: str = ""  # the one in force
    signature: str = ""  # over it, by the key that the client holds
    # the client holds a key that the one in force did not take over from, and would
    # take no program of ours
    stranger: bool = False


@dataclass(frozen=True, slots=True)
class ProgramChoice:
    """How one client can run results."""

    usable: bool = True  # whether it can at all
    program: StoredProgram | None = None  # what it runs; None for a host with its own
    news: KeyNews = KeyNews()  # about the code-sign key
    notices: tuple[str, ...] = ()  # for its user, why it cannot

    def complete(self, reply: SchedulerReply, base_url: str) -> SchedulerReply:
        """Return `reply` with the app versions that its results need, key and notices."""
        apps = {workunit.app for workunit in reply.workunits}
        return replace(
            reply,
            app_versions=_app_versions(self.program, apps, base_url),
            code_sign_key=self.news.key,
            code_sign_key_signature=self.news.signature,
            messages=reply.messages + self.notices,
        )


def choose_program(catalogue: Catalogue, request: SchedulerRequest) -> ProgramChoice:
    """Return how the caller can run results."""
    if request.own_program:
        return ProgramChoice()
    news = key_news(catalogue.keys, request.code_sign_key)
    program = _find_program(catalogue.programs, request.platforms)
    notice = ""
    if 0 < request.client.major < OLDEST_CLIENT:
        notice = (
            f"This project needs BOINC {OLDEST_CLIENT} or newer. Update your client."
        )
    elif news.stranger:
        notice = (
            "Your client knows another code-sign key of this project and would refuse its "
            "programs. Ask the project why; then remove the project and add it again."
        )
    elif program is None:
        shown = ", ".join(one[:64] for one in request.platforms[:4]) or "none"
        notice = f"This project has no program for your platform ({shown})."
    if notice:
        return ProgramChoice(usable=False, news=news, notices=(notice,))
    return ProgramChoice(program=program, news=news)


def _find_program(
    programs: Sequence[StoredProgram], platforms: Sequence[str]
) -> StoredProgram | None:
    """Return the program of the first of a host's platforms that has one."""
    offered = {program.platform: program for program in programs}
    return next((offered[one] for one in platforms if one in offered), None)


def _app_versions(
    program: StoredProgram | None, apps: Iterable[str], base_url: str
) -> tuple[AppVersion, ...]:
    """Return the app version of each of `apps`."""
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


def key_news(keys: Sequence[SignKey], held: str) -> KeyNews:
    """Return what to tell a client that holds the key `held` (untrusted text)."""
    if not keys or keys[0].text.strip() == held.strip():
        return KeyNews()
    if not held.strip():
        return KeyNews(keys[0].text)
    for key in keys[1:]:
        if key.text.strip() == held.strip():
            return KeyNews(keys[0].text, key.signature)
    return KeyNews(stranger=True)
