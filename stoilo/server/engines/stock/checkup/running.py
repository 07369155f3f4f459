"""Whether a project runs and keeps up: database, daemons, backlogs, disk, web; pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stoilo.server.engines.stock.checkup.snapshot import fail, ok, skip, warn

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stoilo.server.engines.stock.checkup.snapshot import (
        Backlog,
        CheckResult,
        DaemonState,
        OwnView,
        Snapshot,
        Space,
        WebAnswer,
    )


# A daemon that looks every second has taken a row long before.
LATE_S: Final = 120

# ``bin/start --cron`` runs every five minutes.
CRON_S: Final = 900

_START: Final = "run bin/start in the project's directory"


def check_stopped(seen: Snapshot) -> CheckResult:
    """Say whether somebody has stopped the project."""
    if not seen.stop_files:
        return ok("stopped", "the project is not stopped")
    return fail(
        "stopped",
        f"the project is stopped ({', '.join(seen.stop_files)}): every client that calls"
        " is told to stay away for an hour",
        f"{_START}; for a change of config.xml a stop is never needed",
    )


def check_daemons(seen: Snapshot) -> Iterator[CheckResult]:
    """Say of each daemon whether it lives."""
    if not seen.daemons:
        yield fail(
            "daemons",
            f"config.xml has no daemon for this machine ({seen.host})",
            "run stoilo boinc install: <host> must be the machine's short name",
        )
    for state in seen.daemons:
        yield _daemon(state, _cause(seen))


def _cause(seen: Snapshot) -> str:
    if seen.database.trouble:
        return "BOINC's daemons end when the database does; cron starts them again"
    return "the project is stopped" if seen.stop_files else ""


def _daemon(state: DaemonState, cause: str) -> CheckResult:
    daemon = state.daemon
    name = f"daemon {daemon.pid_name.removesuffix('.pid')}"
    if daemon.disabled:
        return warn(name, "it is disabled", "remove <disabled> in config.xml")
    if state.alive:
        return ok(name, f"process {state.pid}")
    if cause:
        return skip(name, cause)
    said = f"; its log ends: {state.last_words}" if state.last_words else ""
    what = f"process {state.pid} is gone" if state.pid else "it was never started"
    return fail(name, f"{what}{said}", f"read {daemon.log_name}, then {_START}")


def check_cron(seen: Snapshot) -> CheckResult:
    """Say whether something starts dead daemons again."""
    advice = "let cron run `cd PROJECT; bin/start --cron` every five minutes"
    if seen.cron_age_s is None:
        return warn("cron", "bin/start has never run", advice)
    if seen.cron_age_s > CRON_S:
        text = f"bin/start was last run {seen.cron_age_s} s ago: a daemon that dies stays dead"
        return warn("cron", text, advice)
    return ok("cron", f"bin/start was run {seen.cron_age_s} s ago")


_STEPS: Final = (
    (
        "transitions",
        "transitioner",
        "workunits wait for their next step",
        "see whether it lives; 'Duplicate entry' in its log is join_cache_level's fault",
    ),
    (
        "validations",
        "validators",
        "workunits wait for a validator",
        "see whether validators live and the entry points' socket answers",
    ),
    (
        "assimilations",
        "assimilators",
        "finished workunits wait for an assimilator: it is slow, or does not run",
        "see whether they live and the server's database and disk are quick; nothing is lost",
    ),
    (
        "deletions",
        "file_deleter",
        "workunits wait for their files to be deleted",
        "see whether file_deleter lives and may write in upload",
    ),
)


def check_backlogs(seen: Snapshot) -> Iterator[CheckResult]:
    """Say of each stage whether workunits wait in it for too long."""
    for name, who, what, advice in _STEPS:
        if seen.database.trouble:
            yield skip(f"backlog {name}", "the database does not answer")
            continue
        backlog: Backlog = getattr(seen.database, name)
        said = f"{backlog.count} {what}, the oldest for {backlog.oldest_s} s"
        if backlog.count and backlog.oldest_s > LATE_S:
            yield fail(f"backlog {name}", said, advice)
        else:
            yield ok(f"backlog {name}", f"{backlog.count} for {who}")


_LOG = "read the server's log (journalctl -u stoilo)"


def check_tools(seen: Snapshot) -> CheckResult:
    """Say whether the programs of BOINC's that make and cancel workunits can be run."""
    missing = [one.name for one in seen.tools if not (one.present and one.executable)]
    if missing:
        text = f"bin/{', bin/'.join(missing)} cannot be run: no task would be sent out"
        return fail("tools", text, "copy it from BOINC's build, as make_project does")
    return ok("tools", f"{len(seen.tools)} in bin")


def check_own_rows(seen: Snapshot) -> Iterator[CheckResult]:
    """Say what waits too long on its way into BOINC and out of it."""
    own = seen.database.own
    if seen.database.trouble:
        yield skip("backlog creation", "the database does not answer")
        return
    if not own.known:
        yield skip("backlog creation", "no server has run on this project yet")
        return
    yield _creation(own)
    yield _delivery(own)
    if own.foreign:
        text = (
            f"{own.foreign} workunits with a name of ours were made by somebody else, for"
            f" example {own.foreign_name}: what comes of them is not what was asked for"
        )
        yield fail(
            "names",
            text,
            "cancel them with bin/cancel_jobs --name NAME, and let nothing but stoilo make"
            " work for its apps",
        )


def _creation(own: OwnView) -> CheckResult:
    waiting = own.uncreated
    if waiting.count and waiting.oldest_s > LATE_S:
        text = (
            f"{waiting.count} workunits wait for create_work, the oldest for"
            f" {waiting.oldest_s} s: it fails, or stops half-way"
        )
        return fail(
            "backlog creation", text, f"{_LOG}: it says why; nothing is made twice"
        )
    return ok("backlog creation", f"{waiting.count} for create_work")


def _delivery(own: OwnView) -> CheckResult:
    waiting = own.undelivered
    if waiting.count and (own.refused or waiting.oldest_s > LATE_S):
        text = (
            f"{waiting.count} ended workunits wait for the server to take them, the oldest"
            f" for {waiting.oldest_s} s; {own.refused} of them it could not take at first:"
            " BOINC has done its part, the server is slow, stopped or in trouble"
        )
        return fail("backlog outcomes", text, f"{_LOG}; see whether its disk is full")
    return ok("backlog outcomes", f"{waiting.count} for the server")


OK_STATUS: Final = 200
BROKEN_STATUS: Final = 500
LEAST_FREE: Final = 1_000_000_000
LOW_SHARE: Final = 0.05
LEAST_FILES: Final = 1_000
CLOCK_S: Final = 60.0


def check_database(seen: Snapshot) -> CheckResult:
    """Say whether the project's database answers."""
    if seen.database.trouble:
        return fail(
            "database",
            f"it does not answer: {seen.database.trouble}",
            "start it; host, name, user and password are those of config.xml",
        )
    return ok("database", "it answers")


def check_tables(seen: Snapshot) -> Iterator[CheckResult]:
    """Say whether BOINC's tables are what its files need: an upgrade may end before them."""
    if seen.tables is None:
        return
    there, needed = seen.tables
    if there < needed:
        yield fail(
            "tables",
            f"they are BOINC's of {there}, its files need {needed}",
            "run ./upgrade_db.php in html/ops, and look whether it says All done",
        )
    else:
        yield ok("tables", f"BOINC's of {there}")


def check_web(seen: Snapshot) -> Iterator[CheckResult]:
    """Say of each URL whether clients get what they expect."""
    if seen.web is None:
        yield skip("web", "not asked")
        return
    yield _page(
        "master page",
        seen.web.master,
        "boinc_scheduler",
        "it names no scheduler",
        "let the web server read html/user, and schedulers.txt below it"
        if seen.web.master.status != BROKEN_STATUS
        else "read the web server's error log; after an upgrade of BOINC take over what has"
        " changed in its samples into html/project/*.inc and html/user/index.php",
    )
    yield _scheduler(seen)
    yield _page(
        "upload handler",
        seen.web.upload,
        "<data_server_reply>",
        "it does not answer as BOINC's does",
        "let the web server run cgi-bin/file_upload_handler; read its log",
    )
    yield _download(seen)
    if "<b>" in seen.web.config.body:
        yield fail(
            "php",
            "PHP writes its warnings into answers, which clients cannot read then",
            "php_admin_flag display_errors off",
        )


def _page(
    name: str, answer: WebAnswer, needed: str, what: str, advice: str
) -> CheckResult:
    if answer.trouble:
        return fail(name, f"{answer.url}: {answer.trouble}", "start the web server")
    if answer.status != OK_STATUS or needed not in answer.body:
        return fail(name, f"{answer.url} ({answer.status}): {what}", advice)
    return ok(name, answer.url)


def _scheduler(seen: Snapshot) -> CheckResult:
    assert seen.web is not None  # noqa: S101 - the caller has looked
    answer = seen.web.scheduler
    if "<project_is_down/>" in answer.body:
        if seen.database.trouble:
            return skip("scheduler", "the database does not answer")
        why = "the project is stopped" if seen.stop_files else "the feeder does not run"
        return fail(
            "scheduler",
            f"it tells every client that the project is down: {why}",
            "run bin/start; clients call again after an hour, or at an update by hand",
        )
    return _page(
        "scheduler",
        answer,
        "<scheduler_reply>",
        "it does not answer as BOINC's does",
        "let the web server run cgi-bin/cgi; read its error log",
    )


def _download(seen: Snapshot) -> CheckResult:
    assert seen.web is not None  # noqa: S101 - the caller has looked
    answer = seen.web.download
    if not answer.url:
        return skip("download", "there is no program to fetch")
    if answer.trouble or answer.status != OK_STATUS:
        said = answer.trouble or f"status {answer.status}"
        return fail(
            "download",
            f"{answer.url}: {said}: every task would fail for good",
            "let the web server hand out the download directory",
        )
    return ok("download", answer.url)


def check_disk(seen: Snapshot) -> Iterator[CheckResult]:
    """Say whether there is room where files are written."""
    for space in seen.spaces:
        yield _space(space)


def _space(space: Space) -> CheckResult:
    name = f"disk {space.name}"
    left = f"{space.free // 1_000_000} MB free"
    advice = "make room: uploads fail and clients try again, log files stop"
    if space.free < LEAST_FREE or space.files_free < LEAST_FILES:
        if space.free >= LEAST_FREE:
            left = f"room for {space.files_free} more files"
        return fail(name, f"the disk is full: {left}", advice)
    if space.free < space.total * LOW_SHARE:
        return warn(name, f"{left}, less than a twentieth", advice)
    return ok(name, left)


def check_clock(seen: Snapshot) -> CheckResult:
    """Say whether database and machine agree on the time, by which deadlines go."""
    if seen.database.trouble:
        return skip("clock", "the database does not answer")
    ahead = seen.database.clock_ahead_s
    if abs(ahead) > CLOCK_S:
        text = f"the database's clock is {ahead:.0f} s off ours: deadlines are wrong"
        return fail("clock", text, "let one time service set both")
    return ok("clock", "database and machine agree")
