"""What a project stands on: database, web server, disk, clock; pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stoilo.server.engines.stock.checkup.findings import fail, ok, skip, warn

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stoilo.server.engines.stock.checkup.snapshot import (
        Answer,
        Finding,
        Snapshot,
        Space,
    )

__all__ = [
    "check_clock",
    "check_database",
    "check_disk",
    "check_tables",
    "check_web",
]

OK_STATUS: Final = 200
BROKEN_STATUS: Final = 500
LEAST_FREE: Final = 1_000_000_000
LOW_SHARE: Final = 0.05
LEAST_FILES: Final = 1_000
CLOCK_S: Final = 60.0


def check_database(seen: Snapshot) -> Finding:
    """Say whether the project's database answers."""
    if seen.database.trouble:
        return fail(
            "database",
            f"it does not answer: {seen.database.trouble}",
            "start it; host, name, user and password are those of config.xml",
        )
    return ok("database", "it answers")


def check_tables(seen: Snapshot) -> Iterator[Finding]:
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


def check_web(seen: Snapshot) -> Iterator[Finding]:
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


def _page(name: str, answer: Answer, needed: str, what: str, advice: str) -> Finding:
    """Return what one page is like."""
    if answer.trouble:
        return fail(name, f"{answer.url}: {answer.trouble}", "start the web server")
    if answer.status != OK_STATUS or needed not in answer.body:
        return fail(name, f"{answer.url} ({answer.status}): {what}", advice)
    return ok(name, answer.url)


def _scheduler(seen: Snapshot) -> Finding:
    """Return what the scheduler is like."""
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


def _download(seen: Snapshot) -> Finding:
    """Return whether programs can be fetched."""
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


def check_disk(seen: Snapshot) -> Iterator[Finding]:
    """Say whether there is room where files are written."""
    for space in seen.spaces:
        yield _space(space)


def _space(space: Space) -> Finding:
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


def check_clock(seen: Snapshot) -> Finding:
    """Say whether database and machine agree on the time, by which deadlines go."""
    if seen.database.trouble:
        return skip("clock", "the database does not answer")
    ahead = seen.database.clock_ahead_s
    if abs(ahead) > CLOCK_S:
        text = f"the database's clock is {ahead:.0f} s off ours: deadlines are wrong"
        return fail("clock", text, "let one time service set both")
    return ok("clock", "database and machine agree")
