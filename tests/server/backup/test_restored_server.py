"""A backup of a running server is restored and goes on: its tasks end, its log is one."""

from __future__ import annotations

import errno
import json
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from stoilo.audit.read.reader import verify_log
from stoilo.core.codec.skeleton import decode
from stoilo.core.errors import InternalError, TrustError, UsageError
from stoilo.server.backup.restoring import Restore, restore_backup
from stoilo.server.db import rows
from stoilo.server.db.store import Store
from stoilo.testing.deployment import Deployment
from tests.support.mariadb import MariaServer
from tests.support.wire import RawClient

pytestmark = pytest.mark.slow


def run(*words: object) -> dict[str, object]:
    done = subprocess.run(
        [sys.executable, "-m", "stoilo", *map(str, words), "--json"],
        capture_output=True,
        check=False,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@contextmanager
def working(data: Path, volunteers: int) -> Iterator[RawClient]:
    with (
        Deployment(data, volunteers=volunteers) as server,
        RawClient(Path(server.line.connection)) as client,
    ):
        yield client


def is_at_rest(data: Path, issued: int) -> bool:
    """Whether so many attempts were issued and nothing waits for the log."""
    with closing(sqlite3.connect(data / "server.sqlite")) as tables:
        ask = "SELECT count(*) FROM attempt WHERE state = 'issued'"
        done = tables.execute(ask).fetchone()[0] == issued
        ask = "SELECT count(*) FROM event WHERE log_index IS NULL"
        waiting = tables.execute(ask).fetchone()[0]
    return done and not waiting and verify_log(data).unpublished == 0


class Story:
    """A server that was backed up while tasks were pending, and worked on after.

    Attributes:
        place: everything.
        pending: tasks that had no volunteer when the backup was taken.
        done: the value of the task that had ended.
    """

    def __init__(self, place: Path, wait_until: Callable[..., object]) -> None:
        self.place = place
        self.data, self.backup = place / "data", place / "backup"
        with working(self.data, 2) as client:
            self.ended = client.submit()
            assert client.wait(self.ended).state == "succeeded"
        with working(self.data, 0) as client:  # nobody computes
            self.pending = [client.submit() for _ in range(3)]
            # Their admissions go into the log at once, that they were issued soon after
            wait_until(lambda: is_at_rest(self.data, issued=3))
            run("backup", "--data", self.data, "--output", self.backup,
                "--offline-keys")  # fmt: skip
            self.then = (self.data / "audit" / "log" / "checkpoint").read_bytes()
        shutil.copytree(self.data, place / "at-rest", ignore=lambda *_: ["run"])
        with working(self.data, 2) as client:
            assert client.wait(client.submit()).state == "succeeded"
        self.later = (self.data / "audit" / "log" / "checkpoint").read_bytes()
        self.late = place / "late"
        run("backup", "--data", self.data, "--output", self.late)


@pytest.fixture(scope="module")
def story(
    tmp_path_factory: pytest.TempPathFactory, wait_until: Callable[..., object]
) -> Story:
    return Story(tmp_path_factory.mktemp("story"), wait_until)


def finish(data: Path, story: Story) -> None:
    """Run the restored server until what was pending is done, once each."""
    with working(data, 2) as client:
        assert decode(client.poll(story.ended).value) == 42
        for task in story.pending:
            answer = client.wait(task)
            assert (answer.state, decode(answer.value)) == ("succeeded", 42)


def test_restored_with_the_surviving_log_it_goes_on_without_a_fork(
    story: Story, tmp_path: Path
) -> None:
    data = tmp_path / "restored"
    restore_backup(Restore(story.backup, data, log=story.data))
    before = verify_log(story.data)
    finish(data, story)
    after = verify_log(data)
    assert after.size > before.size
    restore_check = Restore(story.backup, tmp_path / "x", newest=story.later, log=data)
    restore_backup(restore_check)  # the later checkpoint is a prefix of the log now


def test_restored_alone_it_goes_on_where_nothing_was_published_since(
    story: Story, tmp_path: Path
) -> None:
    data = tmp_path / "restored"
    restore_backup(Restore(story.backup, data, newest=story.then))
    finish(data, story)
    assert verify_log(data).unpublished == 0


def test_older_than_what_others_hold_is_refused_as_a_fork(
    story: Story, tmp_path: Path
) -> None:
    with pytest.raises(TrustError, match="STO-B067"):
        restore_backup(Restore(story.backup, tmp_path / "no", newest=story.later))
    assert list(tmp_path.iterdir()) == []


def test_another_history_is_refused(story: Story, tmp_path: Path) -> None:
    """The control: told a lie, the restored log grows into a fork, which then shows."""
    data = tmp_path / "liar"
    restore_backup(Restore(story.backup, data, nothing_newer=True))
    finish(data, story)
    with pytest.raises(TrustError, match="STO-B067"):
        restore_backup(
            Restore(story.backup, tmp_path / "no", log=data, newest=story.later)
        )
    with pytest.raises(TrustError, match="STO-B067"):
        restore_backup(Restore(story.late, tmp_path / "no", log=data))


def test_surviving_log_that_is_older_than_the_backup_is_refused(
    story: Story, tmp_path: Path
) -> None:
    with pytest.raises(TrustError, match="STO-B067"):
        restore_backup(
            Restore(story.late, tmp_path / "no", log=story.place / "at-rest")
        )
    assert list(tmp_path.iterdir()) == []


def test_surviving_log_of_another_project_is_refused(
    story: Story, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    with working(other, 0) as client:
        client.submit()
    with pytest.raises(TrustError, match="STO-B067"):
        restore_backup(Restore(story.backup, tmp_path / "no", log=other))
    assert not (tmp_path / "no").exists()


def test_restore_that_fails_after_its_tables_leaves_the_database_empty(
    story: Story, tmp_path: Path, mariadb: MariaServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_draft: Path) -> None:
        raise OSError(errno.ENOSPC, "no room")

    wish = Restore(
        story.backup,
        tmp_path / "moved",
        newest=story.then,
        database=mariadb.create_database(),
    )
    with monkeypatch.context() as patch:
        patch.setattr("stoilo.server.backup.restoring._settle", refuse)
        with pytest.raises(InternalError, match="STO-U006"):
            restore_backup(wish)
    restore_backup(wish)
    with closing(Store.open(wish.database)) as store, store.read() as connection:
        assert rows.find_task(connection, story.ended) is not None


def test_without_evidence_nothing_is_restored(story: Story, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="STO-B066"):
        restore_backup(Restore(story.backup, tmp_path / "no"))


def test_checkpoint_of_another_log_is_no_evidence(story: Story, tmp_path: Path) -> None:
    forged = story.then.replace(b"stoilo.local", b"stoilo.other")
    with pytest.raises(UsageError, match="STO-B066"):
        restore_backup(Restore(story.backup, tmp_path / "no", newest=forged))


@pytest.mark.parametrize(
    "name", ["server.sqlite", "audit/log.sqlite", "keys/root.json"]
)
def test_flipped_byte_is_refused(story: Story, tmp_path: Path, name: str) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(story.backup, copy)
    file = copy / "files" / name
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    with pytest.raises(TrustError, match="STO-B065"):
        restore_backup(Restore(copy, tmp_path / "no", newest=story.then))
    assert not (tmp_path / "no").exists()


def test_no_data_directory_is_written_over(story: Story) -> None:
    with pytest.raises(UsageError, match="STO-B063"):
        restore_backup(Restore(story.backup, story.data, nothing_newer=True))


def test_offline_keys_are_left_out_unless_asked(story: Story, tmp_path: Path) -> None:
    at_rest = story.place / "at-rest"
    made = run("backup", "--data", at_rest, "--output", tmp_path / "small")
    assert made["offline_keys"] is False
    assert made["development"] is True
    restore_backup(Restore(tmp_path / "small", tmp_path / "out", newest=story.then))
    assert not (tmp_path / "out" / "keys" / "offline").exists()
    assert (tmp_path / "out" / "keys" / "online").is_dir()
