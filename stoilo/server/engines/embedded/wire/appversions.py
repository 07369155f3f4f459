"""App versions in a reply: whether a client can run ours, which one, and the key for it.

A host that runs copies by its own program (`stoilo volunteer`) needs none of this. Any other
gets work only when its platform has a program and it would believe our signatures; if not,
a notice says what to do, because a client would fail every task in silence.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sqlalchemy import select

from stoilo.executor.messages import AppVersion, FileInfo, ProgramFile
from stoilo.server.engines.embedded import schema
from stoilo.server.engines.embedded.wire.programs import (
    VERIFIER_OPEN_NAME,
    offered_platforms,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sqlalchemy import Connection

    from stoilo.executor.messages import SchedulerReply, SchedulerRequest

__all__ = ["KeyNews", "ProgramChoice", "choose_program", "key_news"]

OLDEST_CLIENT = 7
"""Major version: older ones have no memory-mapped runtime interface as ours needs it."""


@dataclass(frozen=True, slots=True)
class KeyNews:
    """What a client must be told about the code-sign key; empty texts for nothing.

    Attributes:
        key: the one in force.
        signature: over it, by the key that the client holds.
        stranger: the client holds a key that the one in force did not take over from,
            and would take no program of ours.
    """

    key: str = ""
    signature: str = ""
    stranger: bool = False


@dataclass(frozen=True, slots=True)
class ProgramChoice:
    """How one client can run copies.

    Attributes:
        usable: whether it can at all.
        platform: of its program; empty for a host with its own.
        news: about the code-sign key.
        notices: for its user, why it cannot.
    """

    usable: bool = True
    platform: str = ""
    news: KeyNews = KeyNews()
    notices: tuple[str, ...] = ()

    def complete(
        self, connection: Connection, reply: SchedulerReply, base_url: str
    ) -> SchedulerReply:
        """Return `reply` with the app versions that its copies need, key and notices."""
        apps = {workunit.app for workunit in reply.workunits}
        return replace(
            reply,
            app_versions=_app_versions(connection, self.platform, apps, base_url),
            code_sign_key=self.news.key,
            code_sign_key_signature=self.news.signature,
            messages=reply.messages + self.notices,
        )


def choose_program(connection: Connection, request: SchedulerRequest) -> ProgramChoice:
    """Return how the caller can run copies."""
    if request.own_program:
        return ProgramChoice()
    news = key_news(connection, request.code_sign_key)
    platform = _find_platform(connection, request.platforms)
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
    elif not platform:
        shown = ", ".join(one[:64] for one in request.platforms[:4]) or "none"
        notice = f"This project has no program for your platform ({shown})."
    if notice:
        return ProgramChoice(usable=False, news=news, notices=(notice,))
    return ProgramChoice(platform=platform, news=news)


def _find_platform(connection: Connection, platforms: Sequence[str]) -> str:
    """Return the first of a host's platforms that has a program, empty for none."""
    offered = offered_platforms(connection)
    return next((one for one in platforms if one in offered), "")


def _app_versions(
    connection: Connection, platform: str, apps: Iterable[str], base_url: str
) -> tuple[AppVersion, ...]:
    """Return the app version of each of `apps` on `platform`."""
    table = schema.programs
    row = connection.execute(
        select(table).where(table.c.replaced_at == 0, table.c.platform == platform)
    ).first()
    if row is None:
        return ()
    launcher = ProgramFile(
        _file_info(connection, row.launcher, "launcher", "", base_url),
        row.launcher_signature,
        executable=True,
        main=True,
    )
    verifier = ProgramFile(
        _file_info(connection, row.verifier, "verifier", ".tar", base_url),
        row.verifier_signature,
        open_name=VERIFIER_OPEN_NAME,
    )
    return tuple(
        AppVersion(app, row.version_num, platform, (launcher, verifier))
        for app in sorted(set(apps))
    )


def _file_info(
    connection: Connection, digest: str, part: str, suffix: str, base_url: str
) -> FileInfo:
    """Return one file; its name is of its bytes, so that it never changes meaning."""
    table = schema.files
    row = connection.execute(select(table).where(table.c.digest == digest)).one()
    name = f"stoilo_{part}_{digest[:16]}{suffix}"
    return FileInfo(name, f"{base_url}download/{row.token}", row.size, row.md5)


def key_news(connection: Connection, held: str) -> KeyNews:
    """Return what to tell a client that holds the key `held` (untrusted text)."""
    table = schema.code_sign_keys
    rows = connection.execute(select(table).order_by(table.c.place)).all()
    if not rows or rows[0].text.strip() == held.strip():
        return KeyNews()
    if not held.strip():
        return KeyNews(rows[0].text)
    for row in rows[1:]:
        if row.text.strip() == held.strip():
            return KeyNews(rows[0].text, row.signature)
    return KeyNews(stranger=True)
