"""What a checkup has read of a project, as values; pure.

Every part that could not be read says so itself, so that one fault hides no other.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from stoilo.server.engines.stock.installation.private_keys import KeySearch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stoilo.server.engines.stock.project.config import ConfigText, Daemon

__all__ = [
    "Backlog",
    "CheckResult",
    "CheckVerdict",
    "DaemonState",
    "DatabaseView",
    "EntryPoint",
    "OwnView",
    "Snapshot",
    "Space",
    "VersionView",
    "WebAnswer",
    "WebView",
    "fail",
    "ok",
    "skip",
    "warn",
]


class CheckVerdict(StrEnum):
    """How one check came out."""

    OK = "ok"
    WARN = "warn"  # works, and will not for long or not well
    FAIL = "fail"
    SKIP = "skip"  # could not be looked at; another finding says why


@dataclass(frozen=True, slots=True)
class CheckResult:
    """One line of the checkup.

    Attributes:
        name: of the check, stable.
        verdict: how it came out.
        text: what was seen.
        advice: what to do; empty when all is well.
    """

    name: str
    verdict: CheckVerdict
    text: str
    advice: str = ""


@dataclass(frozen=True, slots=True)
class DaemonState:
    """One daemon of config.xml and its process.

    Attributes:
        daemon: as configured.
        pid: in its pid file, 0 without one.
        alive: a process of that number runs the daemon's program.
        last_words: end of its log, one line, empty without a log.
    """

    daemon: Daemon
    pid: int
    alive: bool
    last_words: str = ""


@dataclass(frozen=True, slots=True)
class Backlog:
    """Rows that wait for one daemon.

    Attributes:
        count: how many.
        oldest_s: how long the oldest has waited, s.
    """

    count: int = 0
    oldest_s: int = 0


@dataclass(frozen=True, slots=True)
class VersionView:
    """One app version in the database, and what is wrong with its files.

    Attributes:
        app: the level.
        platform: BOINC's name.
        number: of the version.
        plan_class: of the version, empty for none.
        xml: its description, as the scheduler sends it.
        sizes: name of each of its files → bytes in the download directory, -1 absent.
        md5s: name of each of its files → MD5 there.
    """

    app: str
    platform: str
    number: int
    plan_class: str
    xml: bytes
    sizes: Mapping[str, int] = field(default_factory=dict)
    md5s: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class OwnView:
    """What the server's own tables said.

    Attributes:
        known: they are there: a server has run on the project.
        uncreated: workunits that ``create_work`` has yet to make.
        undelivered: ends that the server has yet to take.
        refused: of those, ends that it could not take when it was told.
        foreign: open workunits whose row in BOINC somebody else has made.
        foreign_name: one of them.
    """

    known: bool = True
    uncreated: Backlog = Backlog()
    undelivered: Backlog = Backlog()
    refused: int = 0
    foreign: int = 0
    foreign_name: str = ""


@dataclass(frozen=True, slots=True)
class AppReplication:
    """What an app's row says of copies, beside what each workunit says.

    Attributes:
        app: its name.
        machine_classes: BOINC's kind of homogeneous redundancy, 0 for none.
        one_version: all copies of a workunit go to one app version.
        target: copies of a workunit whose host is not trusted (adaptive replication),
            0 for as many as the workunit says.
    """

    app: str
    machine_classes: int = 0
    one_version: bool = False
    target: int = 0


@dataclass(frozen=True, slots=True)
class DatabaseView:
    """What the database said.

    Attributes:
        trouble: why it said nothing; empty where it answered.
        join_cache_level: of the server.
        clock_ahead_s: of its clock before ours.
        apps: names of apps that are not deprecated.
        replications: how BOINC itself would replicate apps' work, where it would.
        versions: newest of each app and platform.
        transitions: workunits whose next step is due.
        validations: workunits that wait for a validator.
        assimilations: app → workunits that wait for an assimilator.
        deletions: workunits whose files wait to be deleted.
        submitters: accounts that may use BOINC's own way to submit.
        own: what our tables say.
    """

    trouble: str = ""
    join_cache_level: int = 0
    clock_ahead_s: float = 0.0
    apps: tuple[str, ...] = ()
    replications: tuple[AppReplication, ...] = ()
    versions: tuple[VersionView, ...] = ()
    transitions: Backlog = Backlog()
    validations: Backlog = Backlog()
    assimilations: Backlog = Backlog()
    deletions: Backlog = Backlog()
    submitters: int = 0
    own: OwnView = OwnView()


@dataclass(frozen=True, slots=True)
class WebAnswer:
    """What one URL said.

    Attributes:
        url: that was asked.
        status: of HTTP, 0 when nothing answered.
        body: its beginning.
        trouble: why nothing answered.
    """

    url: str
    status: int = 0
    body: str = ""
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class WebView:
    """What the project's web server said.

    Attributes:
        master: the page that clients attach to.
        scheduler: an empty request to the scheduler that the page names.
        upload: the question how much of a file is there.
        download: a program's file, its beginning.
        config: BOINC's description of the project.
    """

    master: WebAnswer
    scheduler: WebAnswer
    upload: WebAnswer
    download: WebAnswer
    config: WebAnswer


@dataclass(frozen=True, slots=True)
class Space:
    """Room on the disk of one directory, bytes and files."""

    name: str
    total: int
    free: int
    files_free: int = 1_000_000


@dataclass(frozen=True, slots=True)
class EntryPoint:
    """One program that daemons of BOINC's call for us.

    Attributes:
        trouble: why the interpreter in its first line cannot be run by the project's
            owner; empty: it can, or was not tried.
    """

    name: str
    present: bool
    executable: bool
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A project at one moment.

    Attributes:
        now: s since 1970.
        host: short name of this machine.
        config: what config.xml says.
        files: of ours, as `installation.reading` reads them.
        modes: permissions by name from the project.
        closed_folders: those below ``download`` that the web server may not read.
        keys: where private code-sign keys lie.
        code_sign_key: the public one's text.
        upload_key: permissions of the private upload key, None without one.
        stop_files: names of those that ``bin/stop`` leaves.
        cron_age_s: since ``bin/start --cron`` was last seen, None if never.
        daemons: of this host.
        database: see there.
        tables: BOINC's number of what its tables are, and of what its files need; None
            where the project does not say.
        web: see there; None when it was not asked.
        spaces: of the directories that are written.
        templates: name → text of ours.
        entry_points: of ours.
        tools: programs of BOINC's that the engine runs.
        socket: what answers behind it: empty for an answer, else why none.
    """

    now: int
    host: str
    config: ConfigText
    modes: Mapping[str, int] = field(default_factory=dict)
    closed_folders: tuple[str, ...] = ()
    plan_classes: str = ""
    preferences_page: bool = True
    keys: KeySearch = field(default_factory=KeySearch)
    code_sign_key: str = ""
    upload_key: int | None = None
    stop_files: tuple[str, ...] = ()
    cron_age_s: int | None = None
    daemons: tuple[DaemonState, ...] = ()
    database: DatabaseView = DatabaseView()
    tables: tuple[int, int] | None = None
    web: WebView | None = None
    spaces: tuple[Space, ...] = ()
    templates: Mapping[str, str] = field(default_factory=dict)
    entry_points: tuple[EntryPoint, ...] = ()
    tools: tuple[EntryPoint, ...] = ()
    socket: str = ""


def ok(name: str, text: str) -> CheckResult:
    """All is well."""
    return CheckResult(name, CheckVerdict.OK, text)


def warn(name: str, text: str, advice: str) -> CheckResult:
    """It works, and will not for long or not well."""
    return CheckResult(name, CheckVerdict.WARN, text, advice)


def fail(name: str, text: str, advice: str) -> CheckResult:
    """It does not work, or not safely."""
    return CheckResult(name, CheckVerdict.FAIL, text, advice)


def skip(name: str, text: str) -> CheckResult:
    """It could not be looked at; another finding says why."""
    return CheckResult(name, CheckVerdict.SKIP, text)
