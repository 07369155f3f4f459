"""App versions in a reply: whether a client can run ours, which one, and the key for it.

A host that runs copies by its own program (`stoilo volunteer`) needs none of this. Any other
gets work only when its platform has a program and it would believe our signatures; if not,
a notice says what to do, because a client would fail every task in silence.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from stoilo.core.boinc.messages import AppVersion, ProgramFile
from stoilo.server.engines.embedded.wire.programs import VERIFIER_OPEN_NAME

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from stoilo.core.boinc.messages import FileInfo, SchedulerReply, SchedulerRequest
    from stoilo.server.engines.embedded.wire.catalogue import (
        Catalogue,
        HeldFile,
        SignKey,
        StoredProgram,
    )

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
        program: what it runs; None for a host with its own.
        news: about the code-sign key.
        notices: for its user, why it cannot.
    """

    usable: bool = True
    program: StoredProgram | None = None
    news: KeyNews = KeyNews()
    notices: tuple[str, ...] = ()

    def complete(self, reply: SchedulerReply, base_url: str) -> SchedulerReply:
        """Return `reply` with the app versions that its copies need, key and notices."""
        apps = {workunit.app for workunit in reply.workunits}
        return replace(
            reply,
            app_versions=_app_versions(self.program, apps, base_url),
            code_sign_key=self.news.key,
            code_sign_key_signature=self.news.signature,
            messages=reply.messages + self.notices,
        )


def choose_program(catalogue: Catalogue, request: SchedulerRequest) -> ProgramChoice:
    """Return how the caller can run copies."""
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
