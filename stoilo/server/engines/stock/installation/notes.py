"""What an installation cannot mend: hazards of the surroundings and of stock versions; pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from stoilo.server.engines.stock.installation.steps import Note, Step, WriteFile

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from stoilo.server.engines.stock.installation.configtext import ConfigText
    from stoilo.server.engines.stock.installation.planning import ProjectFacts

__all__ = [
    "CLOSED_KEYS",
    "JOIN_CACHE",
    "PRIVATE_KEY",
    "STAGE_FILE",
    "STAGE_FILES",
    "SUBMIT_RPC",
    "make_notes",
]

PRIVATE_KEY: Final = (
    "a private code-sign key lies on the server: {files}. Whoever breaks into it could"
    " sign programs for every volunteer. Our signatures come from the ceremony and need"
    " none here: take it away, to an offline medium or to nowhere."
)
CLOSED_KEYS: Final = (
    "whether a private code-sign key lies on the server cannot be told: {files} may not be"
    " read, or is a link to a folder elsewhere. Look there as the project's owner or as root."
)
JOIN_CACHE: Final = (
    "MariaDB's join_cache_level is {level}. On a small project the transitioner then reads"
    " rows in an order that makes it stop for ever, silently. Put join_cache_level=0 below"
    " [mysqld] and restart the database, or as its root: SET GLOBAL join_cache_level=0."
)
SUBMIT_RPC: Final = (
    "{count} accounts may submit jobs by BOINC's own web interface. It reads any file of"
    " the server that a job names and passes the gate and the log by: delete their rows"
    " in user_submit and user_submit_app."
)
STAGE_FILE: Final = (
    "bin/stage_file of this version ends with an error (parse_config is not defined)."
    " We do not use it; for other apps take bin/stage_file_native."
)


def make_notes(
    facts: ProjectFacts, config: ConfigText, steps: Sequence[Step]
) -> tuple[Note, ...]:
    """Return what people have to do, the grave first."""
    notes = []
    if facts.keys.found:
        text = PRIVATE_KEY.format(files=", ".join(facts.keys.found))
        notes.append(Note("private-key", text, grave=True))
    if facts.keys.closed:
        text = CLOSED_KEYS.format(files=", ".join(facts.keys.closed))
        notes.append(Note("closed-keys", text, grave=True))
    if facts.join_cache_level > 0:
        text = JOIN_CACHE.format(level=facts.join_cache_level)
        notes.append(Note("join-cache", text, grave=True))
    if facts.submitters:
        notes.append(Note("submit-rpc", SUBMIT_RPC.format(count=facts.submitters)))
    if stage_file_is_broken(facts.files):
        notes.append(Note("stage-file", STAGE_FILE))
    if facts.uncertified and config.flag("ignore_upload_certificates"):
        notes.append(Note("old-results", _old_results(facts.uncertified)))
    if any(isinstance(one, WriteFile) and one.keep_former for one in steps):
        notes.append(Note("restart", RESTART))
    return tuple(notes)


STAGE_FILES: Final = (
    "bin/stage_file",
    "html/inc/util_basic.inc",
    "html/inc/dir_hier.inc",
)
RESTART: Final = (
    "daemons whose line changed read it only when they start: end those processes (their"
    " numbers are in the pid_ directory) with SIGHUP, then run bin/start. Do not use bin/stop:"
    " while a project is stopped every client is told to stay away for an hour."
)


def _old_results(count: int) -> str:
    return (
        f"{count} copies that are under way have no upload certificate, so they are"
        " not asked for yet (ignore_upload_certificates). Install again when they are over."
    )


def stage_file_is_broken(files: Mapping[str, bytes]) -> bool:
    """Whether ``bin/stage_file`` calls a function that nothing defines."""
    calls = re.search(rb"\bparse_config\s*\(", files.get("bin/stage_file", b""))
    defined = any(
        b"function parse_config" in files.get(name, b"") for name in STAGE_FILES
    )
    return calls is not None and not defined
