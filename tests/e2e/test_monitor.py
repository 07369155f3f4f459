"""A monitor of a real project: what executors saw comes back, and a fork does not pass."""

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from stoilo.audit.format.merkle import Checkpoint, parse_checkpoint, render_checkpoint
from stoilo.audit.format.note import Note, parse_note, render_note, sign_note
from stoilo.audit.log.seen import SeenRow, SeenStore
from stoilo.cli.main import main
from stoilo.core.codec.skeleton import encode
from stoilo.signer.key_files import read_private_key
from stoilo.testing.deployment import Deployment
from tests.support.wire import RawClient

SOURCE = b"def task(kwargs):\n    return kwargs['x'] * 2\n"
HARMLESS = {"submitter", "key", "status"}


@dataclass
class Watched:
    """A running project that has finished tasks, and its log's verifier key."""

    deployment: Deployment
    vkey: str
    tasks: list[str]

    @property
    def url(self) -> str:
        assert self.deployment.line is not None
        return self.deployment.line.http

    def rows(self) -> list[SeenRow]:
        store = SeenStore.below(self.deployment.data, read_only=True)
        rows = store.rows(0, 1000)
        store.close()
        return rows

    def monitor(
        self, state: Path, capsys: pytest.CaptureFixture[str], *more: str
    ) -> tuple[int, list[dict[str, Any]]]:
        given = ["--policy", self.vkey, "--state", str(state), "--once", "--json"]
        code = main(["audit", "monitor", self.url, *given, *more])
        return code, [json.loads(line) for line in capsys.readouterr().out.splitlines()]


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    data = tmp_path_factory.mktemp("monitor") / "data"
    deployment = Deployment(data, volunteers=2)
    vkey = deployment.log_key()
    with deployment, RawClient(data / "connection.json") as client:
        tasks = [
            client.submit(task_module=SOURCE, arguments=encode({"x": x}))
            for x in range(2)
        ]
        for task in tasks:
            client.wait(task)
        yield Watched(deployment, vkey, tasks)


def test_honest_project_raises_no_alarm(
    watched: Watched, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, found = watched.monitor(tmp_path, capsys, "--explain-within", "60")
    assert {one["kind"] for one in found} <= HARMLESS
    assert (code, found[-1]["size"] > 4) == (0, True)


def test_all_that_happened_to_a_task_can_be_watched(
    watched: Watched, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wanted = {"workunit", "result", ""}  # the last: what executors saw
    deadline = time.monotonic() + 90
    told: set[str] = set()
    while told != wanted and time.monotonic() < deadline:
        watch = ["--watch", f"task:{watched.tasks[0]}"]
        _, found = watched.monitor(tmp_path, capsys, *watch)
        told |= {one["leaf"] for one in found if one["kind"] == "match"}
    assert told == wanted


def test_each_executor_s_checkpoint_is_published_and_copies_saw_one_leaf(
    watched: Watched,
) -> None:
    rows = watched.rows()
    assert len({row.result for row in rows}) == len(rows) >= 4
    by_task = {row.task: row.admission for row in rows}
    assert len(by_task) == 2
    assert all(row.admission == by_task[row.task] for row in rows)
    sizes = {
        parse_checkpoint(parse_note(row.checkpoint.encode()).text).size for row in rows
    }
    assert min(sizes) > 0


def test_own_result_can_be_watched(
    watched: Watched, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = watched.rows()[0]
    watch = ["--watch", f"commitment:{mine.result}"]
    _, found = watched.monitor(tmp_path, capsys, *watch)
    assert [one["watch"] for one in found if one["kind"] == "match"] == [watch[1]]


def test_fork_for_one_volunteer_is_proven_by_what_he_saw(
    watched: Watched, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert watched.monitor(tmp_path, capsys)[0] == 0
    key = read_private_key(watched.deployment.data / "keys/online/log.pem").key
    origin = watched.vkey.partition("+")[0]
    body = render_checkpoint(Checkpoint(origin, 3, b"\7" * 32))
    note = render_note(Note(body, (sign_note(body, origin, key),)))
    row = watched.rows()[0]
    shown = SeenRow("f" * 64, row.task, 1, row.admission, note.decode())
    store = SeenStore.below(watched.deployment.data)
    store.put(shown)
    store.close()
    code, found = watched.monitor(tmp_path, capsys)
    assert (code, found[0]["kind"]) == (4, "fork")
    check = ["audit", "check", found[0]["file"], "--policy", watched.vkey]
    assert main(check) == 0
