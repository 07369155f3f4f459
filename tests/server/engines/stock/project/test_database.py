"""A project has one server at a time, and one server's tasks."""

from __future__ import annotations

import subprocess
import sys

import pytest

from stoilo.core.errors import InternalError, UsageError
from stoilo.server.engines.stock.engine import StockEngine
from stoilo.server.engines.stock.project.database import FolderLock, owner_name
from tests.support.engine import BodyValidation, OutcomeRecorder
from tests.support.stocktools.project import make_fake_project

HOLDER = """
import sys
from pathlib import Path
from stoilo.server.engines.stock.project.database import FolderLock
held = FolderLock(Path(sys.argv[1]))
print(flush=True)
sys.stdin.read()
"""


@pytest.fixture
def fake(tmp_path):
    return make_fake_project(tmp_path / "p")


def open_engine(fake, owner=""):
    return StockEngine(fake.project, database_url=fake.database_url, owner=owner)


def test_second_engine_is_refused_and_takes_nothing_from_the_first(fake):
    first = open_engine(fake)
    first.listen(BodyValidation(), OutcomeRecorder())
    with pytest.raises(InternalError, match="STO-B095"):
        open_engine(fake)
    assert fake.project.socket.exists()
    first.close()
    open_engine(fake).close()


def test_lock_ends_with_a_killed_process(fake):
    command = [sys.executable, "-c", HOLDER, fake.project.own]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        holder.stdout.readline()
        with pytest.raises(InternalError, match="STO-B095"):
            FolderLock(fake.project.own)
        holder.kill()
    FolderLock(fake.project.own).release()


@pytest.mark.parametrize("other", ["b", ""])
def test_project_of_another_server_is_refused_while_that_is_away(fake, other):
    open_engine(fake, "a").close()
    with pytest.raises(UsageError, match="STO-B095"):
        open_engine(fake, other)
    open_engine(fake, "a").close()


def test_engine_without_a_name_leaves_the_project_to_the_first_that_has_one(fake):
    open_engine(fake).close()
    open_engine(fake, "a").close()


def test_server_of_the_same_log_is_the_same_owner(fake):
    assert owner_name("") == ""
    open_engine(fake, owner_name("log+1")).close()
    open_engine(fake, owner_name("log+1")).close()
    with pytest.raises(UsageError, match="STO-B095"):
        open_engine(fake, owner_name("log+2"))


def test_folder_that_cannot_be_made_is_said(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(InternalError, match="STO-U006"):
        FolderLock(tmp_path / "file")


def test_closing_late_leaves_the_successors_socket(fake):
    first = open_engine(fake)
    first.listen(BodyValidation(), OutcomeRecorder())
    fake.project.socket.unlink()
    fake.project.socket.touch()  # another's: not the one that was bound
    first.close()
    assert fake.project.socket.exists()
