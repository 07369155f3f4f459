"""An auditor runs admitted tasks again: from a case and the public log, and on the server."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stoilo.audit.read.case import Case, parse_case
from stoilo.audit.read.reader import open_log
from stoilo.audit.read.search import parse_query, search_log
from stoilo.cli.main import main
from stoilo.core.codec.skeleton import encode
from stoilo.core.errors import TrustError
from stoilo.sandbox.process import channel
from stoilo.server.db import rows
from stoilo.server.log import public_records
from stoilo.server.operations.access import open_accounts
from stoilo.testing.deployment import Deployment
from tests.support.wire import RawClient

DARTS = b"""\
import random

def darts(kwargs):
    inside = sum(random.random() < 0.5 for _ in range(kwargs["n"]))
    return {"inside": inside, "next": random.random()}  # another seed, another number
"""
ITEMS = b"""\
def divide(kwargs):
    return 10 // kwargs["by"]
"""
FAILS = b"""\
def fail(kwargs):
    raise KeyError(kwargs["n"])
"""
PAGE = Path(__file__).parents[2] / "docs/howto/audit-a-task.md"
SNIPPET = re.compile(
    r"^\$ stoilo (audit show .*--again.*)\n((?:[^`$\n].*\n)+)", re.MULTILINE
)
LARGE = b"""\
def large(kwargs):
    return b"0123456789" * 200_000
"""


@dataclass
class Server:
    """A running server with finished tasks, and its key as taken from elsewhere."""

    url: str
    policy: str
    data: Path
    tasks: dict[str, str]  # entry → id

    def case(self, entry: str) -> Case:
        with open_accounts(self.data, {}) as store, store.read() as connection:
            task = rows.find_task(connection, self.tasks[entry])
            assert task is not None
            return public_records.make_case(connection, task)

    def run(
        self, capsys: pytest.CaptureFixture[str], folder: Path, case: Case, *more: str
    ) -> tuple[int, dict[str, Any]]:
        """Run a case again as an auditor far away does; returns exit code and record."""
        place = folder / "task.case.json"
        place.write_bytes(msgspec.json.encode(case))
        words = ["--data", self.url, "--policy", self.policy, "--case", str(place)]
        return say(capsys, "--again", *words, *more)


def say(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict[str, Any]]:
    capsys.readouterr()
    code = main(["audit", "show", *words, "--json"])
    printed = capsys.readouterr()
    record: dict[str, Any] = json.loads(printed.out or printed.err)
    return code, record


@pytest.fixture(scope="module")
def server(
    tmp_path_factory: pytest.TempPathFactory, wait_until: Callable[..., object]
) -> Iterator[Server]:
    data = tmp_path_factory.mktemp("again") / "data"
    deployment = Deployment(data, volunteers=2)
    with deployment, RawClient(data / "connection.json") as client:
        calls = encode([{"by": 2}, {"by": 0}, {"by": 5}])
        asked = {
            "darts": (DARTS, encode({"n": 1000}), 0),
            "divide": (ITEMS, calls, 3),
            "fail": (FAILS, encode({"n": 1}), 0),
            "large": (LARGE, encode({}), 0),
        }
        tasks = {
            entry: client.submit(
                task_module=source, entry=entry, arguments=given, map_items=count
            )
            for entry, (source, given, count) in asked.items()
        }
        for one in tasks.values():
            client.wait(one)
        assert deployment.line is not None
        policy = data.with_name("policy.txt")
        policy.write_bytes((data / "audit/log/policy.txt").read_bytes())
        url, query = deployment.line.http, parse_query(["kind:result"])
        wait_until(lambda: len(search_log(open_log(url), query).found) == len(tasks))
        yield Server(url, str(policy), data, tasks)


@pytest.mark.parametrize("entry", ["darts", "divide", "fail", "large"])
def test_same_from_a_case_far_away_and_on_the_server(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str], entry: str
) -> None:
    code, record = server.run(capsys, tmp_path, server.case(entry))
    assert (code, record["verdict"]) == (0, "same"), record
    assert record["entry"] == entry
    assert record["agreeing"] == (0 if entry == "divide" else 2)  # a map's calls: each
    here = ["--data", str(server.data), "--policy", server.policy]
    assert say(capsys, "--again", server.tasks[entry], *here) == (0, record)


def test_public_log_alone_says_what_is_missing(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ["--data", server.url, "--policy", server.policy]
    code, record = say(capsys, "--again", server.tasks["darts"], *where)
    assert (code, record["error"]["code"]) == (2, "STO-U003")
    assert "--case FILE" in record["error"]["hint"]


@pytest.mark.parametrize(
    "part", ["task_module", "arguments", "statement", "result", "validator_module"]
)
def test_case_that_is_not_what_the_log_names_is_not_believed(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str], part: str
) -> None:
    case, other = server.case("darts"), server.case("fail")
    value = getattr(other, part) or b"def f(x):\n    return True\n"
    forged = msgspec.structs.replace(case, **{part: value})
    code, record = server.run(capsys, tmp_path, forged)
    assert (code, record["error"]["code"]) == (4, "STO-L141")


def test_arguments_that_are_withheld_are_passed_and_checked(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    case = msgspec.structs.replace(server.case("darts"), arguments=b"")
    assert server.run(capsys, tmp_path, case)[0] == 2
    right = server.run(capsys, tmp_path, case, "--kwargs", '{"n": 1000}')
    assert (right[0], right[1]["verdict"]) == (0, "same")
    code, record = server.run(capsys, tmp_path, case, "--kwargs", '{"n": 1001}')
    assert (code, record["error"]["code"]) == (4, "STO-L141")


def test_lie_of_volunteers_is_different(
    server: Server,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The log holds what they agreed on; here another seed stands for their lie."""
    honest = channel.TaskRequest
    monkeypatch.setattr(
        channel,
        "TaskRequest",
        lambda **fields: honest(**(fields | {"seed": "11" * 32})),
    )
    code, record = server.run(capsys, tmp_path, server.case("darts"))
    assert (code, record["verdict"], record["code"]) == (4, "different", "STO-L144")
    assert record["different"] == [0]


@pytest.mark.parametrize("at", [0, 1])
def test_how_to_s_commands_do_what_it_says(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str], at: int
) -> None:
    case = tmp_path / "task.case.json"
    case.write_bytes(msgspec.json.encode(server.case("darts")))
    command, printed = SNIPPET.findall(PAGE.read_text(encoding="utf-8"))[at]
    for said, meant in (
        ("http://127.0.0.1:57080/", server.url),
        ("policy.txt", server.policy),
        ("task.case.json", str(case)),
        ("66eefc430403a8a117dd2a09020d1a85", server.tasks["darts"]),
        ("stoilo-data", str(server.data)),
    ):
        command = command.replace(said, meant)
    assert main(command.split()) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [one.split()[0] for one in lines] == [
        one.split()[0] for one in printed.splitlines()
    ]
    assert lines[-1] == printed.splitlines()[-1]


def test_no_case_is_one_short_error() -> None:
    with pytest.raises(TrustError, match="STO-L010"):
        parse_case(b'{"format": "stoilo-case/2"}')
