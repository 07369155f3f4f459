"""What is right and wrong with a project, causes before what they cause; pure.

What `stoilo boinc install` would do, and what it would tell people to do, is named by its
own plan; the rest is whether the project runs and keeps up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from stoilo.core.boinc.codesign import check_boinc_signature, parse_boinc_public
from stoilo.core.boinc.xml import Element, XmlBounds, parse_xml
from stoilo.core.errors import StoiloError, TrustError
from stoilo.server.engines.stock.installation.facts import CONFIG_FILE
from stoilo.server.engines.stock.installation.plan import RESTART, SetMode, make_plan
from stoilo.server.engines.stock.installation.snapshot import Snapshot
from stoilo.server.engines.stock.project.levels import APPS, plan_classes

if TYPE_CHECKING:
    from stoilo.server.engines.stock.installation.app_versions import OfferedVersion
    from stoilo.server.engines.stock.installation.snapshot import DaemonState, Space


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
    verdict: CheckVerdict
    text: str  # what was seen
    advice: str = ""  # what to do; empty when all is well


def examine(seen: Snapshot) -> tuple[CheckResult, ...]:
    """Return what is right and wrong with a project."""
    return tuple(found for check in CHECKS for found in check(seen))


def is_healthy(findings: tuple[CheckResult, ...]) -> bool:
    """Whether nothing failed."""
    return all(one.verdict is not CheckVerdict.FAIL for one in findings)


def _ok(name: str, text: str) -> CheckResult:
    return CheckResult(name, CheckVerdict.OK, text)


def _warn(name: str, text: str, advice: str) -> CheckResult:
    return CheckResult(name, CheckVerdict.WARN, text, advice)


def _fail(name: str, text: str, advice: str) -> CheckResult:
    return CheckResult(name, CheckVerdict.FAIL, text, advice)


def _skip(name: str, text: str) -> CheckResult:
    return CheckResult(name, CheckVerdict.SKIP, text)


_INSTALL: Final = "run stoilo boinc install"
_START: Final = "run bin/start in the project's directory"
_NO_DATABASE: Final = "the database does not answer"

LEAST_FREE: Final = 1_000_000_000
LEAST_FILES: Final = 1_000
LOW_SHARE: Final = 0.05


def check_disk(seen: Snapshot) -> Iterator[CheckResult]:
    """Say whether there is room where files are written."""
    yield from map(_space, seen.spaces)


def _space(space: Space) -> CheckResult:
    name = f"disk {space.name}"
    left = f"{space.free // 1_000_000} MB free"
    advice = "make room: uploads fail and clients try again, log files stop"
    if space.free < LEAST_FREE:
        return _fail(name, f"the disk is full: {left}", advice)
    if space.files_free < LEAST_FILES:
        text = f"the disk is full: room for {space.files_free} more files"
        return _fail(name, text, advice)
    if space.free < space.total * LOW_SHARE:
        return _warn(name, f"{left}, less than a twentieth", advice)
    return _ok(name, left)


CLOCK_S: Final = 60.0


def check_database(seen: Snapshot) -> Iterator[CheckResult]:
    """Say whether the database answers, and agrees on the time: deadlines go by it."""
    if seen.queues.trouble:
        advice = "start it; host, name, user and password are those of config.xml"
        yield _fail("database", f"it does not answer: {seen.queues.trouble}", advice)
        return
    yield _ok("database", "it answers")
    if abs(seen.queues.clock_ahead_s) > CLOCK_S:
        text = f"the database's clock is {seen.queues.clock_ahead_s:.0f} s off ours"
        yield _fail(
            "clock", f"{text}: deadlines are wrong", "let one time service set both"
        )


def check_tables(seen: Snapshot) -> Iterator[CheckResult]:
    """Say whether BOINC's tables are what its files need: an upgrade may end before them."""
    there, needed = seen.facts.tables or (0, 0)
    if there < needed:
        yield _fail(
            "tables",
            f"they are BOINC's of {there}, its files need {needed}",
            "run ./upgrade_db.php in html/ops, and look whether it says All done",
        )


def check_stopped(seen: Snapshot) -> Iterator[CheckResult]:
    """Say whether somebody has stopped the project."""
    if seen.stop_files:
        yield _fail(
            "stopped",
            f"the project is stopped ({', '.join(seen.stop_files)}): every client that"
            " calls is told to stay away for an hour",
            f"{_START}; for a change of config.xml a stop is never needed",
        )


def check_daemons(seen: Snapshot) -> Iterator[CheckResult]:
    """Say of each daemon whether it lives."""
    if not seen.daemons:
        text = f"config.xml has no daemon for this machine ({seen.facts.host})"
        advice = f"{_INSTALL}: <host> must be the machine's short name"
        yield _fail("daemons", text, advice)
    cause = "the project is stopped" if seen.stop_files else ""
    if seen.queues.trouble:
        cause = "BOINC's daemons end when the database does; cron starts them again"
    for state in seen.daemons:
        yield _daemon(state, cause)


def _daemon(state: DaemonState, cause: str) -> CheckResult:
    """Return how a daemon is; `cause`: why none can live, empty without one."""
    daemon = state.daemon
    name = f"daemon {daemon.pid_name.removesuffix('.pid')}"
    if daemon.disabled:
        return _warn(name, "it is disabled", "remove <disabled> in config.xml")
    if state.alive:
        return _ok(name, f"process {state.pid}")
    if cause:
        return _skip(name, cause)
    said = f"; its log ends: {state.last_words}" if state.last_words else ""
    what = f"process {state.pid} is gone" if state.pid else "it was never started"
    return _fail(name, f"{what}{said}", f"read {daemon.log_name}, then {_START}")


# ``bin/start --cron`` runs every five minutes.
CRON_S: Final = 900


def check_cron(seen: Snapshot) -> Iterator[CheckResult]:
    """Say whether something starts dead daemons again."""
    age = seen.cron_age_s
    if age is None or age > CRON_S:
        last = "never" if age is None else f"last {age} s ago"
        text = f"bin/start was run {last}: a daemon that dies stays dead"
        advice = "let cron run `cd PROJECT; bin/start --cron` every five minutes"
        yield _warn("cron", text, advice)


def check_installation(seen: Snapshot) -> Iterator[CheckResult]:
    """Name what an installation of the same release would do, and tell people to do."""
    if seen.interpreter:
        text = f"{seen.interpreter}; BOINC calls every result wrong"
        yield _fail("entry points", text, "install a python3 that its owner can run")
    try:
        plan = make_plan(seen.facts, (), None, seen.entry_points)
    except StoiloError as error:
        yield _fail("installation", error.message, error.hint or _INSTALL)
        return
    for step in plan.steps:
        text = str(step).replace("\n", "; ")
        # with another mode config.xml works; the others keep web server or daemons out
        loose = isinstance(step, SetMode) and step.path == CONFIG_FILE
        yield (_warn if loose else _fail)("installation", text, _INSTALL)
    for note in plan.notes:
        if note.name != RESTART.name:
            yield (_fail if note.grave else _warn)(note.name, note.text, "as said")
    if not plan.steps:
        yield _ok("installation", "everything is as stoilo boinc install leaves it")


def check_tools(seen: Snapshot) -> Iterator[CheckResult]:
    """Say whether BOINC's programs that make and cancel workunits can be run."""
    if seen.missing_tools:
        named = ", ".join(f"bin/{name}" for name in seen.missing_tools)
        text = f"{named} cannot be run: no task would be sent out"
        yield _fail("tools", text, "copy it from BOINC's build, as make_project does")


def check_socket(seen: Snapshot) -> Iterator[CheckResult]:
    """Say whether BOINC's daemons reach the engine."""
    if seen.socket:
        yield _fail(
            "socket",
            f"nothing answers the entry points: {seen.socket}; results wait",
            "start stoilo up --engine stock --project-dir PROJECT; where it runs, restart it",
        )
    else:
        yield _ok("socket", "the server answers")


# A daemon that looks every second has taken a row long before.
LATE_S: Final = 120
_LOG: Final = "read the server's log (journalctl -u stoilo)"
_STEPS: Final = {
    "transitions": (
        "workunits wait for their next step",
        (
            "see whether the transitioner lives; 'Duplicate entry' in its log is"
            " join_cache_level's fault"
        ),
    ),
    "validations": (
        "workunits wait for a validator",
        "see whether validators live and the entry points' socket answers",
    ),
    "assimilations": (
        "finished workunits wait for an assimilator: it is slow, or does not run",
        (
            "see whether they live and the server's database and disk are quick; nothing is"
            " lost"
        ),
    ),
    "deletions": (
        "workunits wait for their files to be deleted",
        "see whether file_deleter lives and may write in upload",
    ),
    "creation": (
        "workunits wait for create_work: it fails, or stops half-way",
        f"{_LOG}: it says why; nothing is made twice",
    ),
    "outcomes": (
        (
            "ended workunits wait for the server to take them: BOINC has done its part, the"
            " server is slow, stopped or in trouble"
        ),
        f"{_LOG}; see whether its disk is full",
    ),
}


def check_backlogs(seen: Snapshot) -> Iterator[CheckResult]:
    """Say of each stage whether workunits wait in it for too long."""
    for name, backlog in seen.queues.backlogs.items():
        what, advice = _STEPS[name]
        said = f"{backlog.count} {what}, the oldest for {backlog.oldest_s} s"
        refused = name == "outcomes" and seen.queues.refused
        if backlog.count and (refused or backlog.oldest_s > LATE_S):
            yield _fail(f"backlog {name}", said, advice)
        else:
            yield _ok(f"backlog {name}", f"{backlog.count} wait")
    if seen.queues.foreign:
        yield _fail(
            "names",
            f"{seen.queues.foreign} workunits with a name of ours were made by somebody"
            f" else, for example {seen.queues.foreign_name}: what comes of them is not what"
            " was asked for",
            "cancel them with bin/cancel_jobs --name NAME, and let nothing but stoilo make"
            " work for its apps",
        )


_BOUNDS: Final = XmlBounds(document_bytes=1024 * 1024, elements=1000)
_OLDEST_API: Final = 6


def check_versions(seen: Snapshot) -> Iterator[CheckResult]:
    """Say of the newest version of each app and platform what is wrong with it."""
    if seen.facts.database is None:
        yield _skip("versions", _NO_DATABASE)
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
                yield _fail(f"version {app}", text, advice)
    for version in versions.values():
        name = f"version {version.plan_class or version.app} {version.platform}"
        if wrong := tuple(_wrong(version, seen)):
            yield _fail(name, "; ".join(wrong), _INSTALL)
        else:
            yield _ok(name, f"{version.number / 100:.2f}, signatures hold")


def _wrong(version: OfferedVersion, seen: Snapshot) -> Iterator[str]:
    if version.plan_class not in plan_classes(version.app):
        yield (
            f"plan class {version.plan_class or 'none'}: it would be sent to volunteers who"
            " did not choose its tasks; mark it as deprecated on the project's page"
        )
    try:
        root = parse_xml(b"<x>" + version.xml + b"</x>", _BOUNDS)
        yield from _wrong_description(root)
        for info in root.every("file_info"):
            yield from _wrong_file(info, seen)
    except TrustError as error:
        yield f"its description cannot be read: {error.message}"


def _wrong_description(root: Element) -> Iterator[str]:
    described = root.find("app_version")
    if described is None:
        yield "its description has no <app_version>"
        return
    api = described.string("api_version").partition(".")[0]
    if not api.isdigit() or int(api) < _OLDEST_API:
        yield "without an API version clients share no memory file with the launcher"
    if not any(ref.flag("main_program") for ref in described.every("file_ref")):
        yield "none of its files is the main program"


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


def check_web(seen: Snapshot) -> Iterator[CheckResult]:
    """Say of each URL whether clients get what they expect."""
    if seen.web is None:
        yield _skip("web", "not asked")
        return
    for name in _PAGES:
        if name == "scheduler" and "<project_is_down/>" in seen.web[name].body:
            yield _down(seen)
        else:
            yield _page(name, seen)
    if "<b>" in seen.web["php"].body:
        text = "PHP writes its warnings into answers, which clients cannot read then"
        yield _fail("php", text, "php_admin_flag display_errors off")


def _page(name: str, seen: Snapshot) -> CheckResult:
    answer = (seen.web or {})[name]
    needed, what, advice = _PAGES[name]
    if not answer.url and name == "download":
        return _skip(name, "there is no program to fetch")
    if answer.trouble:
        return _fail(name, f"{answer.url}: {answer.trouble}", "start the web server")
    if answer.status == BROKEN_STATUS and name == "master page":
        advice = _AFTER_AN_UPGRADE
    if answer.status != OK_STATUS or needed not in answer.body:
        return _fail(name, f"{answer.url} ({answer.status}): {what}", advice)
    return _ok(name, answer.url)


def _down(seen: Snapshot) -> CheckResult:
    if seen.queues.trouble:
        return _skip("scheduler", _NO_DATABASE)
    why = "the project is stopped" if seen.stop_files else "the feeder does not run"
    return _fail(
        "scheduler",
        f"it tells every client that the project is down: {why}",
        "run bin/start; clients call again after an hour, or at an update by hand",
    )


# causes come before what they cause: a full disk before the daemon that it has stopped
CHECKS: Final[tuple[Callable[[Snapshot], Iterator[CheckResult]], ...]] = (
    check_disk,
    check_database,
    check_tables,
    check_stopped,
    check_installation,
    check_daemons,
    check_cron,
    check_tools,
    check_socket,
    check_backlogs,
    check_versions,
    check_web,
)
