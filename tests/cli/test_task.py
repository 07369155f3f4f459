"""`stoilo task` against a real `stoilo up`."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from stoilo.cli import task as task_commands
from stoilo.client.status import TaskStatus, read_status
from stoilo.core.errors import UnreachableError
from stoilo.core.rpc import tasks_pb2 as pb
from stoilo.testing.deployment import Deployment

GOOD = """
def helper(x):
    return x * x


def task(kwargs):
    return {"r": helper(kwargs["x"])}
"""
HOSTILE = "import os\n\n\ndef task(kwargs):\n    return os.getcwd()\n"


@pytest.fixture(scope="module")
def connection(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    data = tmp_path_factory.mktemp("task") / "data"
    with Deployment(data, volunteers=2) as deployment:
        assert deployment.line is not None
        yield deployment.line.connection


def stoilo(connection: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "stoilo", "task", *arguments]
    return subprocess.run(
        [*command, "--connection", connection],
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )


def write(tmp_path: Path, source: str) -> str:
    page = tmp_path / "f.py"
    page.write_text(source)
    return str(page)


def test_submitted_file_returns_its_value_as_json(
    connection: str, tmp_path: Path
) -> None:
    done = stoilo(
        connection,
        *("submit", write(tmp_path, GOOD), "--kwargs", '{"x": 4}', "--wait", "--json"),
    )
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout)
    assert record.pop("task_id")
    assert record == {
        "state": "succeeded",
        "value": {"r": 16},
        **dict.fromkeys(["error", "error_type", "code"]),
        "output": "",
    }


def test_same_key_finds_the_same_task_from_another_process(
    connection: str, tmp_path: Path
) -> None:
    page = write(tmp_path, GOOD)
    arguments = ("submit", page, "--kwargs", '{"x": 2}', "--key", "once")
    first, second = stoilo(connection, *arguments), stoilo(connection, *arguments)
    assert first.stdout == second.stdout != ""
    task_id = first.stdout.strip()
    assert stoilo(connection, "status", task_id, "--wait").stdout == "{'r': 4}\n"
    status = json.loads(stoilo(connection, "status", task_id, "--json").stdout)
    assert (status["state"], status["logged"]) == ("succeeded", True)


def test_tasks_own_error_exits_5(connection: str, tmp_path: Path) -> None:
    done = stoilo(connection, "submit", write(tmp_path, GOOD), "--wait")
    assert done.returncode == 5
    assert "KeyError" in done.stdout


def test_refused_source_exits_3_with_places(connection: str, tmp_path: Path) -> None:
    done = stoilo(connection, "submit", write(tmp_path, HOSTILE))
    assert done.returncode == 3
    assert "1:8:" in done.stderr
    assert "STO-P" in done.stderr


def test_open_tasks_are_listed_until_they_are_cancelled(
    connection: str, tmp_path: Path
) -> None:
    file = write(tmp_path, "def f(call):\n    while True:\n        pass\n")
    task_id = stoilo(connection, "submit", file, "--label", "stuck").stdout.strip()
    asked = ("list", "--state", "open", "--label", "stuck", "--json")
    (row,) = json.loads(stoilo(connection, *asked).stdout)["tasks"]
    assert (row["task_id"], row["level"]) == (task_id, "pure")
    stoilo(connection, "cancel", task_id)
    assert json.loads(stoilo(connection, *asked).stdout) == {"tasks": []}
    assert task_id in stoilo(connection, "list").stdout


def test_followed_task_is_told_of_until_its_end(
    connection: str, tmp_path: Path
) -> None:
    file = write(tmp_path, "def f(call):\n    while True:\n        pass\n")
    task_id = stoilo(connection, "submit", file).stdout.strip()
    words = ["status", task_id, "--follow", "--json", "--connection", connection]
    with subprocess.Popen(
        [sys.executable, "-m", "stoilo", "task", *words],
        stdout=subprocess.PIPE,
        text=True,
    ) as following:
        assert following.stdout is not None
        first = json.loads(following.stdout.readline())
        assert "task_id" not in first
        assert first["state"] in {"admitting", "running"}
        stoilo(connection, "cancel", task_id)
        rest = [json.loads(line) for line in following.stdout]
    assert (rest[-1]["task_id"], rest[-1]["state"]) == (task_id, "cancelled")
    assert following.returncode == 1


def test_processor_time_of_the_volunteers_is_told(
    connection: str, tmp_path: Path
) -> None:
    source = "def f(call):\n    return sum(i * i for i in range(2_000_000))\n"
    done = stoilo(connection, "submit", write(tmp_path, source), "--wait", "--json")
    task_id = json.loads(done.stdout)["task_id"]
    status = json.loads(stoilo(connection, "status", task_id, "--json").stdout)
    spent = sum(copy["cpu_s"] for copy in status["copies"])
    assert status["cpu_s"] == spent > 0
    assert "processor time" in stoilo(connection, "status", task_id).stdout


def test_unknown_task_exits_8(connection: str) -> None:
    done = stoilo(connection, "status", "0" * 32, "--json")
    assert done.returncode == 8
    assert json.loads(done.stderr)["error"]["code"] == "STO-R003"


def test_server_that_is_gone_exits_7(tmp_path: Path) -> None:
    page = tmp_path / "connection.json"
    page.write_text('{"grpc": "127.0.0.1:9", "token": "x", "ca": null}')
    assert stoilo(str(page), "status", "x").returncode in {2, 7}


def test_file_without_a_function_is_a_usage_error(
    connection: str, tmp_path: Path
) -> None:
    done = stoilo(connection, "submit", write(tmp_path, "x = 1\n"))
    assert done.returncode == 2
    assert "STO-U003" in done.stderr


class WaitingTask:
    """A task that a hostile server explains, until it is asked a third time."""

    def __init__(self, end: asyncio.Future[None]) -> None:
        self.end, self.asked = end, 0

    async def status(self) -> TaskStatus:
        self.asked += 1
        if self.asked == 3:
            self.end.set_result(None)
        if self.asked == 2:
            raise UnreachableError("STO-C050", "nobody answers")
        text = "needs 2 users\x1b]0;title\x07" + "x" * 500
        answer = pb.PollTaskResponse(state="running", explanation=text)
        return read_status(answer)


def test_progress_is_one_line_that_is_emptied(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_commands, "POLL_S", 0.0)

    async def body() -> None:
        end: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        await task_commands._show_progress(WaitingTask(end), end)

    asyncio.run(body())
    shown = capsys.readouterr()
    lines = shown.err.split(
        "\r"
    )  # colours and the like are left out of what is no terminal
    assert lines[0] == lines[-1] == shown.out == ""
    assert lines[1].startswith("0 s: needs 2 users\\x1b]0;title\\x07xxx")
    assert lines[2] == "0 s: nobody answers"
    assert all(len(line) < 250 and "\n" not in line for line in lines)
