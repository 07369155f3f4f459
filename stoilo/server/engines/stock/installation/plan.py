"""What an installation has to do: facts about a project → steps and notes; pure.

A project that is as it should be has no steps, so installing again changes nothing, and
`checks` can name every step that is left. What only people can do (a private key to take
away, a setting of MariaDB) comes out as a note.
"""

from __future__ import annotations

import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from stoilo.core.errors import UsageError
from stoilo.server.engines.stock.app_versions import new_versions
from stoilo.server.engines.stock.installation.config_rules import (
    correct_daemons,
    correct_settings,
)
from stoilo.server.engines.stock.installation.facts import (
    CONFIG_FILE,
    PLAN_CLASS_FILE,
    PROJECT_FILE,
    UPLOAD_KEY,
)
from stoilo.server.engines.stock.project.config import edit_config, read_config
from stoilo.server.engines.stock.project.levels import (
    APPS,
    MOST_APPS,
    PREFERENCES_FILE,
    add_apps,
    render_preferences,
    set_plan_classes,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from stoilo.server.engines.programs import AppProgram, CodeSignKey
    from stoilo.server.engines.stock.app_versions import VersionFolder
    from stoilo.server.engines.stock.installation.facts import (
        DatabaseFacts,
        ProjectFacts,
    )
    from stoilo.server.engines.stock.project.config import ConfigText


@dataclass(frozen=True, slots=True)
class WriteFile:
    """A file gets its content, in one step by a rename."""

    path: str  # from the project
    content: bytes
    mode: int
    why: str  # what it is for, or what goes wrong without
    keep_former: bool = False  # a copy of what was there stays beside it

    def __str__(self) -> str:
        """Return the step for people."""
        return f"write {self.path}: {self.why}"


@dataclass(frozen=True, slots=True)
class SetMode:
    """A file or directory gets its permissions; a directory is made, with what it holds."""

    path: str
    mode: int
    why: str

    def __str__(self) -> str:
        """Return the step for people."""
        return f"set {self.path} to {self.mode:o}: {self.why}"


@dataclass(frozen=True, slots=True)
class AddVersion:
    """An app version's directory with programs and signatures."""

    folder: VersionFolder

    def __str__(self) -> str:
        """Return the step for people."""
        return f"add {self.folder.path}"


@dataclass(frozen=True, slots=True)
class RunTool:
    """One of BOINC's own programs runs in the project's directory."""

    words: tuple[str, ...]
    why: str

    def __str__(self) -> str:
        """Return the step for people."""
        return f"run {' '.join(self.words)}: {self.why}"


Step = WriteFile | SetMode | AddVersion | RunTool


@dataclass(frozen=True, slots=True)
class Finding:
    """What is wrong with a project, or not well."""

    name: str  # of the hazard, stable
    text: str  # what was seen
    advice: str = ""  # what people have to do
    grave: bool = True  # it cannot be used, or not safely, until that is done


@dataclass(frozen=True, slots=True)
class Plan:
    """What an installation has to do, in order; empty where everything is done."""

    steps: tuple[Step, ...]
    notes: tuple[Finding, ...] = ()  # what only people can do


def make_plan(
    facts: ProjectFacts,
    programs: Sequence[AppProgram],
    key: CodeSignKey | None,
    wanted: Sequence[WriteFile],
    *,
    quick: bool = False,
) -> Plan:
    """Return what has to be done.

    Args:
        facts: the project as it is; without its database's, that part is left out.
        programs: launcher and verifier with signatures, one a platform.
        key: the public code-sign key, with those that it has taken over from; None: it
            stays as it is.
        wanted: entry points as they have to lie there.
        quick: hosts shall ask every few seconds; see `correct_settings`.

    Raises:
        UsageError: ``STO-B021`` config.xml cannot be edited, or there are too many apps;
            ``STO-B023`` hosts know another code-sign key.
    """
    config = read_config(facts.files.get(CONFIG_FILE, b""))
    steps = [*_modes(facts), *_files(facts, wanted)]
    if facts.database is not None:
        _check_apps(facts.database)
        steps += _apps(facts, facts.database, programs)
        if key is not None:
            steps += _key(facts, facts.database, key)
        steps += _versions(facts.database, programs)
    # last, when all else is there: daemons and scheduler go by it at once
    steps += _config(facts, config, quick=quick)
    return Plan(tuple(steps), tuple(_notes(facts, config, steps)))


def _check_apps(database: DatabaseFacts) -> None:
    if len({*database.apps, *APPS}) > MOST_APPS:
        raise UsageError(
            "STO-B021",
            f"with ours the project would have more than {MOST_APPS} apps",
            hint="mark apps as deprecated in the project's database, or use another",
        )


_LOGS: Final = "log_"
_MODES: Final = {
    "download": (0o2775, "web server and engine write here, as one group"),
    "upload": (0o2775, "the upload handler could not make directories for results"),
    "templates": (0o2775, "the engine writes a template for each kind of workunit"),
    "stoilo": (0o2770, "the entry points' socket lies here, for the group only"),
    CONFIG_FILE: (0o640, "it holds the database's password"),
    _LOGS: (
        0o2770,
        "made by the first scheduler request it would be the web server's: no daemon starts",
    ),
}


def _modes(facts: ProjectFacts) -> Iterator[Step]:
    for name, (mode, why) in _MODES.items():
        path = f"{_LOGS}{facts.host}" if name == _LOGS else name
        if facts.modes.get(path) != mode:
            yield SetMode(path, mode, why)
    if facts.closed_folders:
        named = ", ".join(facts.closed_folders[:5])
        why = f"hosts get 403 for files in {named}, and their tasks fail for good"
        yield SetMode("download", _MODES["download"][0], why)


def _files(facts: ProjectFacts, wanted: Sequence[WriteFile]) -> Iterator[Step]:
    """Return the files of ours that are missing or differ."""
    for file in wanted:
        same = facts.files.get(file.path) == file.content
        if not same or not facts.modes.get(file.path, 0) & stat.S_IXUSR:
            yield file
    page = render_preferences().encode()
    if facts.files.get(PREFERENCES_FILE) != page:
        why = "volunteers choose their level here; BOINC's own page takes none for all"
        yield WriteFile(PREFERENCES_FILE, page, 0o644, why)
    classes = _text(facts, PLAN_CLASS_FILE)
    with_ours = set_plan_classes(classes)
    if with_ours != classes:
        why = "tasks are sent only to who chose their level and kind"
        yield WriteFile(PLAN_CLASS_FILE, _encode(with_ours), 0o644, why)


def _apps(
    facts: ProjectFacts, database: DatabaseFacts, programs: Sequence[AppProgram]
) -> Iterator[Step]:
    """Return how the levels become apps."""
    text = _text(facts, PROJECT_FILE, "<boinc>\n</boinc>\n")
    missing = tuple(app for app in APPS if app not in database.apps)
    with_apps = add_apps(text, missing)
    if with_apps != text:
        why = "an app for each level"
        yield WriteFile(PROJECT_FILE, _encode(with_apps), 0o644, why)
    if missing or not {one.platform for one in programs} <= {*database.platforms}:
        yield RunTool(("bin/xadd",), "apps and platforms into the database")


def _text(facts: ProjectFacts, name: str, default: str = "") -> str:
    """Return a file to be edited; bytes that are not UTF-8 stay as they are."""
    data = facts.files.get(name)
    return default if data is None else data.decode("utf-8", "surrogateescape")


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _key(
    facts: ProjectFacts, database: DatabaseFacts, key: CodeSignKey
) -> Iterator[Step]:
    """Return how the ceremony's public key comes to be the project's."""
    if not key.text or facts.key.strip() == key.text.strip():
        return
    former = [old for old in key.former if old.key.strip() == facts.key.strip()]
    if database.hosts and facts.key and not former:
        raise UsageError(
            "STO-B023",
            f"{database.hosts} computers know another code-sign key of this project",
            hint="let the old key vouch for the new one: stoilo release sign NEW.pub",
        )
    # BOINC's scheduler hands the old key's signature out by these names
    # (sched/handle_request.cpp); the new key comes last, when they are there
    texts = {
        name: text
        for number, old in enumerate(former if database.hosts else ())
        for name, text in (
            (f"old_key_{number}", old.key),
            (f"signature_stripped_{number}", old.signature),
        )
    } | {"code_sign_public": key.text}
    why = "clients check launcher and verifier with the ceremony's key"
    for name, text in texts.items():
        yield WriteFile(f"{facts.key_dir}/{name}", text.encode(), 0o644, why)


def _versions(
    database: DatabaseFacts, programs: Sequence[AppProgram]
) -> Iterator[Step]:
    """Return how new app versions come to be.

    One that an earlier installation has left half-way is written again.
    """
    made = new_versions(APPS, programs, database.offered, database.numbers)
    yield from map(AddVersion, made)
    if made:
        words = ("bin/update_versions", "--noconfirm")
        yield RunTool(words, "app versions with the ceremony's signatures")


def _config(facts: ProjectFacts, config: ConfigText, *, quick: bool) -> Iterator[Step]:
    """Return the one edit of config.xml."""
    settings = correct_settings(
        config,
        facts.host,
        # not known, with a database that does not answer: nothing gets stricter then
        uncertified=facts.database.uncertified if facts.database else 1,
        quick=quick,
    )
    daemons = tuple(correct_daemons(config, APPS))
    if not settings and not daemons:
        return
    content = edit_config(
        facts.files[CONFIG_FILE],
        {tag: value for tag, (value, _) in settings.items()},
        [(was, becomes) for was, becomes, _ in daemons if was is not None],
        [becomes for was, becomes, _ in daemons if was is None],
    )
    reasons = [f"<{tag}> = {value}: {why}" for tag, (value, why) in settings.items()]
    reasons += [f"daemon {becomes.cmd}: {why}" for _, becomes, why in daemons]
    yield WriteFile(CONFIG_FILE, content, 0o640, "\n".join(reasons), keep_former=True)


RESTART: Final = Finding(
    "restart",
    "daemons whose line changed read it only when they start",
    "end those processes (their numbers are in the pid_ directory) with SIGHUP, then run"
    " bin/start. Do not use bin/stop: while a project is stopped every client is told to"
    " stay away for an hour.",
    grave=False,
)


def _notes(
    facts: ProjectFacts, config: ConfigText, steps: Sequence[Step]
) -> Iterator[Finding]:
    """Return what people have to do, keys first."""
    yield from _key_notes(facts)
    if facts.database is not None:
        yield from _database_notes(facts.database, config)
    if any(isinstance(one, WriteFile) and one.keep_former for one in steps):
        yield RESTART


def _key_notes(facts: ProjectFacts) -> Iterator[Finding]:
    keys = facts.keys
    if keys.found:
        yield Finding(
            "private-key",
            f"a private code-sign key lies on the server: {', '.join(keys.found)}. Whoever"
            " breaks into it could sign programs for every volunteer. Our signatures come"
            " from the ceremony and need none here",
            "take it away, to an offline medium or to nowhere",
        )
    if keys.closed:
        yield Finding(
            "closed-keys",
            "whether a private code-sign key lies on the server cannot be told:"
            f" {', '.join(keys.closed)} may not be read, or is a link to a folder elsewhere",
            "look there as the project's owner or as root",
        )
    if keys.unseen:
        text = f"not looked into for private keys: {', '.join(keys.unseen)}"
        yield Finding("unseen-files", text, "look there as root", grave=False)
    mode = facts.modes.get(UPLOAD_KEY)
    if mode is None:
        text = "there is no private upload key, so results have no upload certificates"
        advice = "make a pair with BOINC's crypt_prog -genkey, in the key directory"
        yield Finding("upload-key", text, advice)
    elif mode & stat.S_IRWXO:
        text = "everybody on this machine may read upload_private"
        yield Finding("upload-key", text, "chmod 640 it", grave=False)


def _database_notes(database: DatabaseFacts, config: ConfigText) -> Iterator[Finding]:
    if level := database.join_cache_level:
        yield Finding(
            "join-cache",
            f"MariaDB's join_cache_level is {level}. On a small project the transitioner"
            " then reads rows in an order that makes it stop for ever, silently",
            "put join_cache_level=0 below [mysqld] and restart the database, or as its"
            " root: SET GLOBAL join_cache_level=0",
        )
    if database.submitters:
        yield Finding(
            "submit-rpc",
            f"{database.submitters} accounts may submit jobs by BOINC's own web interface."
            " It reads any file of the server that a job names and passes the gate and the"
            " log by",
            "delete their rows in user_submit and user_submit_app",
        )
    if database.uncertified and config.flag("ignore_upload_certificates"):
        yield Finding(
            "old-results",
            f"{database.uncertified} results that are under way have no upload certificate,"
            " so they are not asked for yet (ignore_upload_certificates)",
            "install again when they are over",
            grave=False,
        )
