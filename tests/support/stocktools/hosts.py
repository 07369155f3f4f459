"""A fake project's scheduler and its volunteers: one host for each user."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stoilo.server.engines.stock.project.directory import place
from tests.support.stocktools.daemons import (
    CLIENT_ERROR,
    IN_PROGRESS,
    NO_REPLY,
    OVER,
    QUOTA,
    SUCCESS,
    UNSENT,
    output_name,
)
from tests.support.stocktools.planclasses import fits

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.support.stocktools.database import FakeRow
    from tests.support.stocktools.project import FakeProject

__all__ = ["FakeHosts"]

CANCELLED: Final = 16


class FakeHosts:
    """Fetch, compute and report by hand; user N has host N.

    Args:
        project: of the fake kind.
        now: s since 1970.
    """

    def __init__(self, project: FakeProject, now: Callable[[], int]) -> None:
        self._project = project
        self._now = now
        self._database = project.open_database()

    def close(self) -> None:
        """Close the connection."""
        self._database.close()

    def fetch(self, user: int, room: int = 8) -> list[str]:
        """Return copies that the scheduler hands to a user: one of a workunit."""
        self._call(user)
        names: list[str] = []
        waiting = self._database.rows(
            "SELECT result.*, workunit.delay_bound AS delay, workunit.batch AS batch"
            " FROM result"
            " JOIN workunit ON workunit.id = result.workunitid"
            " WHERE result.server_state = ? AND workunit.error_mask = 0"
            " ORDER BY result.priority DESC, result.id",
            UNSENT,
        )
        for result in waiting:
            if len(names) >= room or self._has_one(user, result.workunitid):
                continue
            if (version := self._version(user, result)) is not None:
                self._send(user, result, version)
                names.append(result.name)
        return names

    def choose(self, user: int, preferences: str) -> None:
        """Save a user's project preferences, as the project's page does."""
        self._call(user)
        saved = f"<project_specific>\n{preferences}\n</project_specific>".encode()
        self._database.run(
            "UPDATE user SET project_prefs = ? WHERE id = ?", saved, user
        )

    def upload(self, copy: str, body: bytes) -> None:
        """Upload a copy's result file."""
        result = self._result(copy)
        path = place(self._project.project.upload, output_name(result), 1024)
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(body)

    def report(self, user: int, copy: str) -> None:
        """Report a copy as done."""
        self._end(user, copy, SUCCESS, 0)

    def fail(self, user: int, copy: str, exit_status: int = 195) -> None:
        """Report a copy as failed."""
        self._end(user, copy, CLIENT_ERROR, exit_status)

    def unneeded(self, user: int, copies: Sequence[str]) -> list[str]:
        """Return those of a host's copies that the scheduler tells it to drop."""
        self._call(user)
        found = [self._workunit(copy) for copy in copies]
        return [
            copy
            for copy, workunit in zip(copies, found, strict=True)
            if workunit.error_mask & CANCELLED
        ]

    def record(self, user: int) -> tuple[int, int]:
        """Return a host's jobs a day and its run of valid results."""
        found = self._database.row(
            "SELECT * FROM host_app_version WHERE host_id = ?", user
        )
        assert found is not None
        return found.max_jobs_per_day, found.consecutive_valid

    def _call(self, user: int) -> None:
        if self._database.row("SELECT id FROM host WHERE id = ?", user) is None:
            self._database.insert("user", [{"id": user, "name": f"u{user}"}])
            self._database.insert("host", [{"id": user, "userid": user}])
        self._database.run(
            "UPDATE host SET rpc_time = ? WHERE id = ?", self._now(), user
        )

    def _has_one(self, user: int, workunit: int) -> bool:
        found = self._database.row(
            "SELECT id FROM result WHERE workunitid = ? AND userid = ?", workunit, user
        )
        return found is not None

    def _version(self, user: int, result: FakeRow) -> int | None:
        """Return the app version by which a user may have a copy, None without one."""
        specs = self._project.root / "plan_class_spec.xml"
        text = specs.read_text("latin-1") if specs.exists() else ""
        row = self._database.row("SELECT project_prefs FROM user WHERE id = ?", user)
        chosen = (row.project_prefs if row else None) or b""
        versions = self._database.rows(
            "SELECT id, plan_class FROM app_version WHERE appid = ? AND deprecated = 0"
            " ORDER BY version_num DESC",
            result.appid,
        )
        return next(
            (
                int(one.id)
                for one in versions
                if fits(text, one.plan_class, chosen.decode(), result.batch)
            ),
            None,
        )

    def _send(self, user: int, result: FakeRow, version: int) -> None:
        now = self._now()
        self._database.run(
            "UPDATE result SET server_state = ?, hostid = ?, userid = ?, sent_time = ?,"
            " report_deadline = ?, app_version_id = ? WHERE id = ?",
            IN_PROGRESS,
            user,
            user,
            now,
            now + result.delay,
            version,
            result.id,
        )
        self._database.run(
            "UPDATE workunit SET transition_time = ? WHERE id = ?"
            " AND transition_time > ?",
            now + result.delay,
            result.workunitid,
            now + result.delay,
        )
        key = (user, version)
        where = "WHERE host_id = ? AND app_version_id = ?"
        query = f"SELECT id FROM host_app_version {where}"  # noqa: S608 - our own words
        if self._database.row(query, *key) is None:
            row = {"host_id": user, "app_version_id": version}
            self._database.insert(
                "host_app_version", [{**row, "max_jobs_per_day": QUOTA}]
            )

    def _end(self, user: int, copy: str, outcome: int, exit_status: int) -> None:
        """Take a report as the scheduler does: also a late one, not an unwanted one."""
        self._call(user)
        result = self._result(copy)
        late = result.server_state == OVER and result.outcome == NO_REPLY
        if result.hostid != user or not (result.server_state == IN_PROGRESS or late):
            return
        self._database.run(
            "UPDATE result SET server_state = ?, outcome = ?, exit_status = ?,"
            " received_time = ?, validate_state = 0 WHERE id = ?",
            OVER,
            outcome,
            exit_status,
            self._now(),
            result.id,
        )
        self._database.run(
            "UPDATE workunit SET transition_time = ? WHERE id = ?",
            self._now(),
            result.workunitid,
        )

    def _result(self, copy: str) -> FakeRow:
        found = self._database.row("SELECT * FROM result WHERE name = ?", copy)
        assert found is not None, copy
        return found

    def _workunit(self, copy: str) -> FakeRow:
        number = self._result(copy).workunitid
        found = self._database.row("SELECT * FROM workunit WHERE id = ?", number)
        assert found is not None
        return found
