"""What an installation has to do: facts about a project → steps and notes; pure.

A project that is as it should be has no steps, so installing again changes nothing. What
only people can do (a private key to take away, a setting of MariaDB) comes out as a note.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from stoilo.core.errors import UsageError
from stoilo.server.engines.stock.installation.app_versions import new_versions
from stoilo.server.engines.stock.installation.config_rules import (
    Surroundings,
    correct_daemons,
    correct_settings,
)
from stoilo.server.engines.stock.installation.levels import (
    APPS,
    MOST_APPS,
    PREFERENCES_FILE,
    add_apps,
    missing_plan_classes,
    render_preferences,
    set_plan_classes,
)
from stoilo.server.engines.stock.installation.private_keys import KeySearch
from stoilo.server.engines.stock.project.config import (
    ConfigText,
    edit_config,
    read_config,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from stoilo.server.engines.programs import AppProgram, CodeSignKey
    from stoilo.server.engines.stock.installation.app_versions import (
        KnownVersion,
        VersionFolder,
    )
    from stoilo.server.engines.stock.project.config import ConfigText


@dataclass(frozen=True, slots=True)
class WriteFile:
    """A file gets its content, in one step by a rename."""

    path: str  # from the project
    content: bytes  # of the file
    mode: int  # its permissions
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


@dataclass(frozen=True, slots=True)
class RetireVersions:
    """App versions in the database are not sent any more: rows of `app_version`."""

    rows: tuple[int, ...]
    why: str

    def __str__(self) -> str:
        """Return the step for people."""
        return f"retire app versions {', '.join(map(str, self.rows))}: {self.why}"


@dataclass(frozen=True, slots=True)
class MarkPreferences:
    """Accounts' preferences get the element that the scheduler looks at."""

    accounts: int

    def __str__(self) -> str:
        """Return the step for people."""
        return (
            f"mark the preferences of {self.accounts} accounts: the scheduler looks at"
            " one element, which they were saved without"
        )


Step = WriteFile | SetMode | AddVersion | RunTool | RetireVersions | MarkPreferences


@dataclass(frozen=True, slots=True)
class Note:
    """What people have to do."""

    name: str  # of the hazard, one word
    text: str  # what is wrong and what to do
    grave: bool = False  # the project cannot be used, or not safely, until it is done


@dataclass(frozen=True, slots=True)
class Plan:
    """What an installation has to do, in order; empty where everything is done."""

    steps: tuple[Step, ...]
    notes: tuple[Note, ...] = ()


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


CONFIG_FILE: Final = "config.xml"
PROJECT_FILE: Final = "project.xml"
PLAN_CLASS_FILE: Final = "plan_class_spec.xml"
KEY_FILE: Final = "code_sign_public"


@dataclass(frozen=True, slots=True)
class ProjectFacts:
    """What a project is now, as `reading.read_facts` finds it."""

    # name below the project → content, of those that an installation writes; absent
    # ones are left out
    files: Mapping[str, bytes]
    modes: Mapping[str, int]  # the same for permissions of files and directories
    host: str  # short name of this machine
    key: str = ""  # content of ``code_sign_public``, empty without one
    key_dir: str = "keys"  # where it lies
    # where private code-sign keys lie
    keys: KeySearch = field(default_factory=KeySearch)
    apps: tuple[str, ...] = ()  # names in the project's database
    platforms: tuple[str, ...] = ()
    versions: tuple[KnownVersion, ...] = ()  # app versions below ``apps/``
    # (app, number, platform with plan class) in the database
    registered: frozenset[tuple[str, int, str]] = frozenset()
    # rows of app versions on offer whose plan class is none of ours
    unclassed: tuple[int, ...] = ()
    unmarked: int = 0  # accounts with preferences that the scheduler cannot read
    hosts: int = 0  # computers that have called
    uncertified: int = 0  # copies that are not over and have no upload certificate
    submitters: int = 0  # accounts that may use BOINC's own way to submit jobs
    join_cache_level: int = 0  # MariaDB's


def make_plan(
    facts: ProjectFacts,
    programs: Sequence[AppProgram],
    key: CodeSignKey,
    wanted: Sequence[WriteFile],
    *,
    quick: bool = False,
) -> Plan:
    """Return what has to be done.

    Args:
        facts: the project as it is.
        programs: launcher and verifier with signatures, one a platform.
        key: the public code-sign key, with those that it has taken over from.
        wanted: templates and entry points as they have to lie there.
        quick: see `Surroundings`.

    Raises:
        UsageError: ``STO-B021`` config.xml cannot be edited; ``STO-B022`` too many apps;
            ``STO-B023`` hosts know another code-sign key.
    """
    config = read_config(facts.files.get(CONFIG_FILE, b""))
    _check_apps(facts)
    steps: list[Step] = [
        *_directories(facts),
        *_files(facts, wanted),
        *_apps(facts, programs),
        *_key(facts, key),
        *_versions(facts, programs),
        *_config(facts, config, quick=quick),
    ]
    return Plan(tuple(steps), make_notes(facts, config, steps))


def _check_apps(facts: ProjectFacts) -> None:
    """Refuse more apps than a scheduler holds."""
    if len({*facts.apps, *APPS}) > MOST_APPS:
        raise UsageError(
            "STO-B022",
            f"with ours the project would have more than {MOST_APPS} apps",
            hint="mark apps as deprecated in the project's database, or use another",
        )


_MODES: Final = {
    "download": 0o2775,
    "upload": 0o2775,
    "templates": 0o2775,
    "stoilo": 0o2770,
    CONFIG_FILE: 0o640,
}


def _directories(facts: ProjectFacts) -> list[Step]:
    logs = f"log_{facts.host}"
    steps: list[Step] = [
        SetMode(name, mode, _WHY_MODE[name])
        for name, mode in _MODES.items()
        if facts.modes.get(name) != mode
    ]
    if facts.modes.get(logs) != LOGS_MODE:
        steps.append(SetMode(logs, LOGS_MODE, _WHY_LOGS))
    return steps


LOGS_MODE: Final = 0o2770
_WHY_LOGS: Final = (
    "daemons and web server both write logs here; made by the first scheduler request it"
    " would be the web server's alone, and no daemon could start"
)


_WHY_MODE: Final = {
    "download": "web server and engine write here, as one group",
    "upload": "the upload handler could not make directories for results",
    "templates": "the engine writes a template for each kind of workunit",
    "stoilo": "the entry points' socket lies here, for the project's group only",
    CONFIG_FILE: "it holds the database's password",
}


def _files(facts: ProjectFacts, wanted: Sequence[WriteFile]) -> list[Step]:
    page = WriteFile(
        PREFERENCES_FILE,
        render_preferences().encode(),
        0o644,
        "volunteers choose their level here; BOINC's own page takes none for all",
    )
    return [
        file for file in (*wanted, page) if facts.files.get(file.path) != file.content
    ]


def _apps(facts: ProjectFacts, programs: Sequence[AppProgram]) -> list[Step]:
    steps: list[Step] = []
    text = _text(facts, PROJECT_FILE, "<boinc>\n</boinc>\n")
    missing = tuple(app for app in APPS if app not in facts.apps)
    with_apps = add_apps(text, missing)
    if with_apps != text:
        steps.append(
            WriteFile(PROJECT_FILE, _bytes(with_apps), 0o644, "an app for each level")
        )
    classes = _text(facts, PLAN_CLASS_FILE)
    if missing_plan_classes(classes):
        steps.append(
            WriteFile(
                PLAN_CLASS_FILE,
                _bytes(set_plan_classes(classes)),
                0o644,
                "tasks are sent only to who chose their level and kind",
            )
        )
    if missing or not {one.platform for one in programs} <= {*facts.platforms}:
        steps.append(RunTool(("bin/xadd",), "apps and platforms into the database"))
    return steps


def _text(facts: ProjectFacts, name: str, default: str = "") -> str:
    """Return a file to be edited; bytes that are not UTF-8 stay as they are."""
    data = facts.files.get(name)
    return default if data is None else data.decode("utf-8", "surrogateescape")


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _key(facts: ProjectFacts, key: CodeSignKey) -> list[Step]:
    if not key.text or facts.key.strip() == key.text.strip():
        return []
    former = [old for old in key.former if old.key.strip() == facts.key.strip()]
    if facts.hosts and facts.key and not former:
        raise UsageError(
            "STO-B023",
            f"{facts.hosts} computers know another code-sign key of this project",
            hint="let the old key vouch for the new one: stoilo release boinc-change",
        )
    why = "clients check launcher and verifier with the ceremony's key"
    steps: list[Step] = []
    if facts.hosts:
        for number, old in enumerate(former):
            for name, text in (
                (f"old_key_{number}", old.key),
                (f"signature_stripped_{number}", old.signature),
            ):
                path = f"{facts.key_dir}/{name}"
                steps.append(WriteFile(path, text.encode(), 0o644, why))
    path = f"{facts.key_dir}/{KEY_FILE}"
    return [*steps, WriteFile(path, key.text.encode(), 0o644, why)]


def _versions(facts: ProjectFacts, programs: Sequence[AppProgram]) -> list[Step]:
    made = new_versions(APPS, programs, facts.versions)
    steps: list[Step] = [AddVersion(folder) for folder in made]
    waiting = {
        (one.app, one.number, one.platform) for one in facts.versions if one.app in APPS
    }
    if made or waiting - facts.registered:
        words = ("bin/update_versions", "--noconfirm")
        steps.append(RunTool(words, "app versions with the ceremony's signatures"))
    if facts.unclassed:
        why = "they would be sent to volunteers who did not choose their tasks"
        steps.append(RetireVersions(facts.unclassed, why))
    if facts.unmarked:
        steps.append(MarkPreferences(facts.unmarked))
    return steps


def _config(facts: ProjectFacts, config: ConfigText, *, quick: bool) -> list[Step]:
    """Return the one edit of config.xml; it comes last, when all else is there."""
    around = Surroundings(facts.host, facts.uncertified, quick)
    corrections = correct_settings(config, around)
    changes = correct_daemons(config, APPS)
    if not corrections and not changes:
        return []
    content = edit_config(
        facts.files[CONFIG_FILE],
        {one.tag: one.value for one in corrections},
        [(one.was, one.becomes) for one in changes if one.was is not None],
        [one.becomes for one in changes if one.was is None],
    )
    reasons = [f"<{one.tag}> = {one.value}: {one.why}" for one in corrections]
    reasons += [f"daemon {one.becomes.cmd}: {one.why}" for one in changes]
    return [
        WriteFile(CONFIG_FILE, content, 0o640, "\n".join(reasons), keep_former=True)
    ]
