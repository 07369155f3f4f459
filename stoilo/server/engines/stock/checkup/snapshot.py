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


class CheckVerdict(StrEnum):
    """How one check came out."""

    OK = "ok"
    WARN = "warn"  # works, and will not for long or not well
    FAIL = "fail"
    SKIP = "skip"  # could not be looked at; another finding says why


@dataclass(frozen=True, slots=True)
class CheckResult:
    """One line of the checkup."""

    name: str  # of the check, stable
    verdict: CheckVerdict  # how it came out
    text: str  # what was seen
    advice: str = ""  # what to do; empty when all is well


@dataclass(frozen=True, slots=True)
class DaemonState:
    """One daemon of config.xml and its process."""

    daemon: Daemon  # as configured
    pid: int  # in its pid file, 0 without one
    alive: bool  # a process of that number runs the daemon's program
    last_words: str = ""  # end of its log, one line, empty without a log


@dataclass(frozen=True, slots=True)
class Backlog:
    """Rows that wait for one daemon."""

    count: int = 0  # how many
    oldest_s: int = 0  # how long the oldest has waited, s


@dataclass(frozen=True, slots=True)
class VersionView:
    """One app version in the database, and what is wrong with its files."""

    app: str  # the level
    platform: str  # BOINC's name
    number: int  # of the version
    plan_class: str  # of the version, empty for none
    xml: bytes  # its description, as the scheduler sends it
    # name of each of its files → bytes in the download directory, -1 absent
    sizes: Mapping[str, int] = field(default_factory=dict)
    # name of each of its files → MD5 there
    md5s: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class OwnView:
    """What the server's own tables said."""

    known: bool = True  # they are there: a server has run on the project
    uncreated: Backlog = Backlog()  # workunits that ``create_work`` has yet to make
    undelivered: Backlog = Backlog()  # ends that the server has yet to take
    refused: int = 0  # of those, ends that it could not take when it was told
    foreign: int = 0  # open workunits whose row in BOINC somebody else has made
    foreign_name: str = ""  # one of them


@dataclass(frozen=True, slots=True)
class AppReplication:
    """What an app's row says of copies, beside what each workunit says."""

    app: str
    machine_classes: int = 0  # BOINC's kind of homogeneous redundancy, 0 for none
    one_version: bool = False  # all copies of a workunit go to one app version
    # copies of a workunit whose host is not trusted (adaptive replication), 0 for as
    # many as the workunit says
    target: int = 0


@dataclass(frozen=True, slots=True)
class DatabaseView:
    """What the database said."""

    trouble: str = ""  # why it said nothing; empty where it answered
    join_cache_level: int = 0  # of the server
    clock_ahead_s: float = 0.0  # of its clock before ours
    apps: tuple[str, ...] = ()  # names of apps that are not deprecated
    # how BOINC itself would replicate apps' work, where it would
    replications: tuple[AppReplication, ...] = ()
    versions: tuple[VersionView, ...] = ()  # newest of each app and platform
    transitions: Backlog = Backlog()  # workunits whose next step is due
    validations: Backlog = Backlog()  # workunits that wait for a validator
    assimilations: Backlog = Backlog()  # app → workunits that wait for an assimilator
    deletions: Backlog = Backlog()  # workunits whose files wait to be deleted
    submitters: int = 0  # accounts that may use BOINC's own way to submit
    own: OwnView = OwnView()  # what our tables say


@dataclass(frozen=True, slots=True)
class WebAnswer:
    """What one URL said."""

    url: str  # that was asked
    status: int = 0  # of HTTP, 0 when nothing answered
    body: str = ""  # its beginning
    trouble: str = ""  # why nothing answered


@dataclass(frozen=True, slots=True)
class WebView:
    """What the project's web server said."""

    master: WebAnswer  # the page that clients attach to
    scheduler: WebAnswer  # an empty request to the scheduler that the page names
    upload: WebAnswer  # the question how much of a file is there
    download: WebAnswer  # a program's file, its beginning
    config: WebAnswer  # BOINC's description of the project


@dataclass(frozen=True, slots=True)
class Space:
    """Room on the disk of one directory, bytes and files."""

    name: str
    total: int
    free: int
    files_free: int = 1_000_000


@dataclass(frozen=True, slots=True)
class EntryPoint:
    """One program that daemons of BOINC's call for us."""

    name: str
    present: bool
    executable: bool
    # why the interpreter in its first line cannot be run by the project's owner; empty:
    # it can, or was not tried
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
