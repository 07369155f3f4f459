"""I1: no workunit without a leaf under a published checkpoint; leaves never change; live."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from stoilo.core.signatures import parse_envelope
from stoilo.core.statement import statement_digest
from stoilo.testing.deployment import Deployment
from tests.support.wire import RawClient

SOCKETS = shutil.ignore_patterns("*.sock")


def select(database: Path, query: str) -> list[tuple]:
    with sqlite3.connect(f"file:{database}?mode=ro", uri=True) as found:
        return found.execute(query).fetchall()


def unlogged_workunits(data: Path) -> list[str]:
    """Return workunits whose admission is no leaf under the published checkpoint."""
    checkpoint = (data / "audit" / "log" / "checkpoint").read_text().splitlines()
    size = int(checkpoint[1])
    leaves = dict(select(data / "audit" / "log.sqlite", "select idx, leaf from leaves"))
    attempts = {
        f"{task}_{number}": (index, envelope)
        for task, number, index, envelope in select(
            data / "server.sqlite",
            "select task_id, number, log_index, envelope from attempt",
        )
    }
    missing = []
    for (name,) in select(
        data / "engine" / "engine.sqlite", "select name from engine_workunit"
    ):
        index, envelope = attempts.get(name, (None, None))
        if index is None or envelope is None or index >= size:
            missing.append(name)
            continue
        digest = statement_digest(parse_envelope(envelope).payload)
        if digest.encode() not in leaves[index]:
            missing.append(name)
    return missing


def stop_running(data: Path) -> subprocess.CompletedProcess[str]:
    """Start `stoilo up`, which is expected to refuse."""
    command = [sys.executable, "-m", "stoilo", "up", "--data", str(data)]
    ports = ["--grpc", "127.0.0.1:0", "--http", "127.0.0.1:0"]
    return subprocess.run(
        [*command, *ports], capture_output=True, text=True, check=False, timeout=200
    )


@pytest.fixture(scope="module")
def used(tmp_path_factory) -> Path:
    """A stopped data directory with a few tasks in it."""
    data = tmp_path_factory.mktemp("i1") / "data"
    with Deployment(data, volunteers=2) as deployment:
        assert deployment.line is not None
        with RawClient(Path(deployment.line.connection)) as client:
            tasks = [client.submit() for _ in range(6)]
            while not all(client.poll(task_id).logged for task_id in tasks):
                assert not unlogged_workunits(data)  # also in the middle
                time.sleep(0.02)
            for task_id in tasks:
                client.wait(task_id)
    return data


@pytest.fixture
def data(used, tmp_path) -> Path:
    return Path(shutil.copytree(used, tmp_path / "data", ignore=SOCKETS))


def test_every_workunit_has_its_leaf_under_the_checkpoint(data):
    assert (
        len(select(data / "engine" / "engine.sqlite", "select 1 from engine_workunit"))
        == 6
    )
    assert unlogged_workunits(data) == []


def test_workunit_of_another_statement_would_be_noticed(data):
    with sqlite3.connect(data / "server.sqlite") as changed:
        query = "select task_id, envelope from attempt order by task_id limit 2"
        (first, envelope), (second, _) = changed.execute(query).fetchall()
        changed.execute(
            "update attempt set envelope = ? where task_id = ?", [envelope, second]
        )
    assert unlogged_workunits(data) == [f"{second}_1"]
    assert first != second


def test_acknowledged_leaves_stay_the_same_over_kill_and_restart(data):
    query = "select idx, leaf from leaves order by idx"
    before = select(data / "audit" / "log.sqlite", query)
    deployment = Deployment(data)
    deployment.start()
    assert deployment.line is not None
    with RawClient(Path(deployment.line.connection)) as client:
        task_id = client.submit()
        while not client.poll(task_id).logged:
            time.sleep(0.05)
    deployment.kill()
    after = select(data / "audit" / "log.sqlite", query)
    assert before
    assert after[: len(before)] == before
    assert len(after) > len(before)


@pytest.mark.parametrize(
    "lost",
    [
        ["audit/log.sqlite*"],
        ["audit-head"],
        ["audit/log.sqlite*", "audit-head"],
        ["audit", "audit-head"],
    ],
    ids=str,
)
def test_loss_of_the_logs_memory_is_told_at_the_start(data, lost):
    for pattern in lost:
        for path in list(data.glob(pattern)):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    refused = stop_running(data)
    assert refused.returncode == 4, refused.stderr
    assert refused.stdout == ""
    assert "[STO-" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_whole_directory_starts(data):
    """The negative control: without a loss the same directory starts."""
    with Deployment(data) as deployment:
        assert deployment.line is not None
