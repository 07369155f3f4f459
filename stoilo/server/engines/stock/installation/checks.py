"""What is wrong with a project, causes before what they cause; pure.

What `stoilo boinc install` would do, and what it would tell people to do, is named by its
own plan; the rest is whether the project runs and keeps up. Nothing is said of what is
well, nor of what could not be looked at because of a fault that is named.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from stoilo.core.boinc.codesign import check_boinc_signature, parse_boinc_public
from stoilo.core.errors import StoiloError, TrustError
from stoilo.server.engines.stock.app_versions import parse_description
from stoilo.server.engines.stock.installation.facts import CONFIG_FILE
from stoilo.server.engines.stock.installation.plan import (
    RESTART,
    Finding,
    SetMode,
    make_plan,
)
from stoilo.server.engines.stock.installation.queues import QUEUES
from stoilo.server.engines.stock.installation.snapshot import Snapshot
from stoilo.server.engines.stock.project.levels import APPS, plan_classes

if TYPE_CHECKING:
    from stoilo.core.boinc.xml import Element
    from stoilo.server.engines.stock.app_versions import OfferedVersion


def examine(seen: Snapshot) -> tuple[Finding, ...]:
    """Return what is wrong with a project, nothing where all is well."""
    return tuple(found for check in CHECKS for found in check(seen))


def is_healthy(findings: tuple[Finding, ...]) -> bool:
    """Whether nothing grave was found."""
    return not any(one.grave for one in findings)


_INSTALL: Final = "run stoilo boinc install"
_START: Final = "run bin/start in the project's directory"
LEAST_FREE: Final = 1_000_000_000
LEAST_FILES: Final = 1_000
LOW_SHARE: Final = 0.05
CLOCK_S: Final = 60.0
CRON_S: Final = 900  # ``bin/start --cron`` runs every five minutes


def check_disk(seen: Snapshot) -> Iterator[Finding]:
    """Say whether there is room where files are written."""
    for space in seen.spaces:
        left = f"{space.free // 1_000_000} MB free"
        if space.free < LEAST_FREE:
            text = f"the disk is full: {left}"
        elif space.files_free < LEAST_FILES:
            text = f"the disk is full: room for {space.files_free} more files"
        elif space.free < space.total * LOW_SHARE:
            text = f"{left}, less than a twentieth"
        else:
            continue
        advice = "make room: uploads fail and clients try again, log files stop"
        grave = text.startswith("the disk")
        yield Finding(f"disk {space.name}", text, advice, grave)


def check_database(seen: Snapshot) -> Iterator[Finding]:
    """Say whether the database answers, is BOINC's of today and agrees on the time."""
    if seen.queues.trouble:
        text = f"it does not answer: {seen.queues.trouble}"
        advice = "start it; host, name, user and password are those of config.xml"
        yield Finding("database", text, advice)
    if abs(seen.queues.clock_ahead_s) > CLOCK_S:
        ahead = f"the database's clock is {seen.queues.clock_ahead_s:.0f} s off ours"
        advice = "let one time service set both"
        yield Finding("clock", f"{ahead}: deadlines are wrong", advice)
    there, needed = seen.facts.tables or (0, 0)
    if there < needed:  # an upgrade may end before it has changed them
        yield Finding(
            "tables",
            f"they are BOINC's of {there}, its files need {needed}",
            "run ./upgrade_db.php in html/ops, and look whether it says All done",
        )


def check_stopped(seen: Snapshot) -> Iterator[Finding]:
    """Say whether somebody has stopped the project."""
    if seen.stop_files:
        yield Finding(
            "stopped",
            f"the project is stopped ({', '.join(seen.stop_files)}): every client that"
            " calls is told to stay away for an hour",
            f"{_START}; for a change of config.xml a stop is never needed",
        )


def check_installation(seen: Snapshot) -> Iterator[Finding]:
    """Name what an installation of the same release would do, and tell people to do."""
    if seen.interpreter:
        text = f"{seen.interpreter}; BOINC calls every result wrong"
        advice = "install a python3 that its owner can run"
        yield Finding("entry points", text, advice)
    try:
        plan = make_plan(seen.facts, (), None, seen.entry_points)
    except StoiloError as error:
        yield Finding("installation", error.message, error.hint or _INSTALL)
        return
    for step in plan.steps:
        text = str(step).replace("\n", "; ")
        # with another mode config.xml works; the others keep web server or daemons out
        loose = isinstance(step, SetMode) and step.path == CONFIG_FILE
        yield Finding("installation", text, _INSTALL, grave=not loose)
    yield from (note for note in plan.notes if note is not RESTART)


def check_daemons(seen: Snapshot) -> Iterator[Finding]:
    """Say of each daemon that should live whether it does, and whether cron watches."""
    if not seen.daemons:
        text = f"config.xml has no daemon for this machine ({seen.facts.host})"
        advice = f"{_INSTALL}: <host> must be the machine's short name"
        yield Finding("daemons", text, advice)
    # BOINC's daemons end when the database does; cron starts them again
    none_can = seen.stop_files or seen.queues.trouble
    for one in seen.daemons:
        name = f"daemon {one.daemon.pid_name.removesuffix('.pid')}"
        if one.daemon.disabled:
            advice = "remove <disabled> in config.xml"
            yield Finding(name, "it is disabled", advice, grave=False)
        elif not one.alive and not none_can:
            said = f"; its log ends: {one.last_words}" if one.last_words else ""
            what = f"process {one.pid} is gone" if one.pid else "it was never started"
            advice = f"read {one.daemon.log_name}, then {_START}"
            yield Finding(name, f"{what}{said}", advice)
    age = seen.cron_age_s
    if age is None or age > CRON_S:
        last = "never" if age is None else f"last {age} s ago"
        text = f"bin/start was run {last}: a daemon that dies stays dead"
        advice = "let cron run `cd PROJECT; bin/start --cron` every five minutes"
        yield Finding("cron", text, advice, grave=False)


def check_engine(seen: Snapshot) -> Iterator[Finding]:
    """Say whether BOINC's daemons reach the engine, and it the one that makes workunits."""
    if not seen.can_make:
        text = "bin/create_work cannot be run: no task would be sent out"
        advice = "copy it from BOINC's build, as make_project does"
        yield Finding("tools", text, advice)
    if seen.socket:
        yield Finding(
            "socket",
            f"nothing answers the entry points: {seen.socket}; results wait",
            "start stoilo up --engine stock --project-dir PROJECT; where it runs, restart it",
        )


LATE_S: Final = 120  # a daemon that looks every second has taken a row long before


def check_backlogs(seen: Snapshot) -> Iterator[Finding]:
    """Say of each queue whether workunits wait in it for too long."""
    for name, backlog in seen.queues.backlogs.items():
        queue = QUEUES[name]
        refused = name == "outcomes" and seen.queues.refused
        if backlog.count and (refused or backlog.oldest_s > LATE_S):
            waiting = f"{backlog.count} {queue.what}"
            text = f"{waiting}, the oldest for {backlog.oldest_s} s"
            yield Finding(f"backlog {name}", text, queue.advice)
    if seen.queues.foreign:
        yield Finding(
            "names",
            f"{seen.queues.foreign} workunits with a name of ours were made by somebody"
            f" else, for example {seen.queues.foreign_name}: what comes of them is not what"
            " was asked for",
            "cancel them with bin/cancel_jobs --name NAME, and let nothing but stoilo make"
            " work for its apps",
        )


def check_versions(seen: Snapshot) -> Iterator[Finding]:
    """Say of the newest version of each app and platform what is wrong with it."""
    if seen.facts.database is None:
        return
    versions = {
        (one.app, one.platform, one.plan_class): one
        for one in seen.facts.database.offered
        if one.app in APPS
    }
    there = {one.plan_class for one in versions.values()}
    for app in APPS:
        for name in plan_classes(app):
            if name not in there:
                text = f"no app version for {name}: its tasks are never sent"
                advice = f"{_INSTALL}, or bin/update_versions"
                yield Finding(f"version {app}", text, advice)
    for version in versions.values():
        if wrong := tuple(_wrong(version, seen)):
            name = f"version {version.plan_class or version.app} {version.platform}"
            yield Finding(name, "; ".join(wrong), _INSTALL)


def _wrong(version: OfferedVersion, seen: Snapshot) -> Iterator[str]:
    if version.plan_class not in plan_classes(version.app):
        yield (
            f"plan class {version.plan_class or 'none'}: it would be sent to volunteers who"
            " did not choose its tasks; mark it as deprecated on the project's page"
        )
    try:
        root = parse_description(version.xml)
        for info in root.every("file_info"):
            yield from _wrong_file(info, seen)
    except TrustError as error:
        yield f"its description cannot be read: {error.message}"


def _wrong_file(info: Element, seen: Snapshot) -> Iterator[str]:
    name = info.string("name")
    if name not in seen.programs:
        yield f"{name} is not in the download directory"
        return
    size, md5 = seen.programs[name]
    if size != info.integer("nbytes"):
        yield f"{name} has {size} bytes instead of {info.integer('nbytes')}"
    try:
        signature = info.string("file_signature", longest=4096)
        key = parse_boinc_public(seen.facts.key)
        check_boinc_signature(md5, signature + "\n", key)
    except TrustError as error:
        yield f"clients will refuse {name}: {error.message}"


OK_STATUS: Final = 200
BROKEN_STATUS: Final = 500
# name → what its answer must hold, what is wrong without, what to do
_PAGES: Final = {
    "master page": (
        "boinc_scheduler",
        "it names no scheduler",
        "let the web server read html/user, and schedulers.txt below it",
    ),
    "scheduler": (
        "<scheduler_reply>",
        "it does not answer as BOINC's does",
        "let the web server run cgi-bin/cgi; read its error log",
    ),
    "upload handler": (
        "<data_server_reply>",
        "it does not answer as BOINC's does",
        "let the web server run cgi-bin/file_upload_handler; read its log",
    ),
    "download": (
        "",
        "every task would fail for good",
        "let the web server hand out the download directory",
    ),
}
_AFTER_AN_UPGRADE: Final = (
    "read the web server's error log; after an upgrade of BOINC take over what has changed"
    " in its samples into html/project/*.inc and html/user/index.php"
)


def check_web(seen: Snapshot) -> Iterator[Finding]:
    """Say of each URL whether clients get what they expect."""
    for name, answer in seen.web.items():
        if name == "php":
            if "<b>" in answer.body:
                text = "PHP writes its warnings into answers, which clients cannot read"
                yield Finding(name, text, "php_admin_flag display_errors off")
            continue
        needed, what, advice = _PAGES[name]
        if answer.trouble:
            text = f"{answer.url}: {answer.trouble}"
            yield Finding(name, text, "start the web server")
        elif "<project_is_down/>" in answer.body:
            if not seen.queues.trouble:
                yield _down(name, is_stopped=bool(seen.stop_files))
        elif answer.status != OK_STATUS or needed not in answer.body:
            if answer.status == BROKEN_STATUS and name == "master page":
                advice = _AFTER_AN_UPGRADE
            yield Finding(name, f"{answer.url} ({answer.status}): {what}", advice)


def _down(name: str, *, is_stopped: bool) -> Finding:
    why = "the project is stopped" if is_stopped else "the feeder does not run"
    return Finding(
        name,
        f"it tells every client that the project is down: {why}",
        "run bin/start; clients call again after an hour, or at an update by hand",
    )


# causes come before what they cause: a full disk before the daemon that it has stopped
CHECKS: Final[tuple[Callable[[Snapshot], Iterator[Finding]], ...]] = (
    check_disk,
    check_database,
    check_stopped,
    check_installation,
    check_daemons,
    check_engine,
    check_backlogs,
    check_versions,
    check_web,
)
