"""A database of the log that another process holds locked: refused, then gone on with."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from stoilo.audit.log import publisher, sequencer
from stoilo.audit.log import sqlite as log_sqlite
from stoilo.audit.log.sequencer import Sequencer
from stoilo.core.errors import InternalError, UnreachableError

PLACES = ("audit/log.sqlite", "audit-head/head.sqlite")
Opener = Callable[..., Sequencer]


@contextmanager
def locked(path: Path) -> Iterator[None]:
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        yield
        other.execute("ROLLBACK")


@pytest.fixture
def log(open_log: Opener, monkeypatch: pytest.MonkeyPatch) -> Sequencer:
    monkeypatch.setattr(log_sqlite, "_BUSY_S", 0.05)
    found = open_log()
    found.append(b"first")
    found.wait_published(0, 60)
    return found


@pytest.mark.parametrize("name", PLACES)
def test_locked_log_refuses_and_goes_on(
    log: Sequencer, tmp_path: Path, name: str
) -> None:
    with (
        locked(tmp_path / "data" / name),
        pytest.raises(InternalError, match="STO-L040"),
    ):
        log.append(b"second")
    assert log.append(b"second") == 1  # once, whatever was durable before
    assert log.append(b"third") == 2
    log.wait_published(2, 60)


@pytest.mark.parametrize("name", PLACES)
def test_log_stops_for_good_where_a_lock_counts_as_a_broken_disk(
    log: Sequencer, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: without the distinction one lock ends all logging."""
    for module in (sequencer, publisher):
        monkeypatch.setattr(module, "harmless_refusal", lambda _error: None)
    with locked(tmp_path / "data" / name), pytest.raises(InternalError):
        log.append(b"second")
    with pytest.raises(InternalError, match="STO-L051"):
        log.append(b"second")


def test_lock_met_while_reading_is_told_from_a_file_that_is_gone() -> None:
    def told(code: int) -> InternalError | None:
        cause = sqlite3.OperationalError("no")
        cause.sqlite_errorcode = code  # type: ignore[misc]  # as SQLite sets it
        error = UnreachableError("STO-L002", "cannot be read")
        error.__cause__ = cause
        return log_sqlite.harmless_refusal(error)

    assert told(sqlite3.SQLITE_BUSY_SNAPSHOT) is not None
    assert told(sqlite3.SQLITE_CANTOPEN) is None
