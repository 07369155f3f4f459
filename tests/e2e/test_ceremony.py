"""From people with keys to a running server, and a second ceremony beside it: by commands."""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner

from stoilo.cli.main import cli
from stoilo.core.codec.skeleton import decode
from stoilo.testing.deployment import Deployment
from tests.support.wire import RawClient

pytestmark = pytest.mark.slow

PEOPLE = {
    "root": ("ada", "bo", "cy"),
    "targets": ("ada", "bo", "cy"),
    "gate": ("gil",),
    "policy": ("pia",),
    "reviewers": ("rex",),
    "revocation": ("vera",),
}
SECRET = b"six words that nobody guesses"
WAIT_S = 60.0


def stoilo(*words: object, secret: bool = False) -> str:
    """Run a command that must succeed; `secret` hands it the passphrase."""
    texts = [str(word) for word in words]
    out = -1
    if secret:
        out, into = os.pipe()
        os.write(into, SECRET)
        os.close(into)
        texts += ["--passphrase-fd", str(out)]
    try:
        result = CliRunner().invoke(cli, texts)
    finally:
        if secret:
            os.close(out)
    assert result.exit_code == 0, (texts, result.output, result.exception)
    return result.stdout


def wait_for(sight: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not sight():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def sign(home: Path, folder: Path, *roles: str) -> None:
    for role in roles:
        for name in PEOPLE[role][:2]:
            key = home / name / f"{name}.{role}.key"
            stoilo("release", "sign", folder, "--key", key, "--yes", secret=True)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """People's keys, a first release signed and published into a data directory."""
    home = tmp_path_factory.mktemp("home")
    online = ("--data", home / "data", "--out", home / "online.json")
    stoilo("release", "online-keys", *online, "--origin", "project.example/log")
    named: list[object] = []
    for role, names in PEOPLE.items():
        for name in names:
            words = ("--role", role, "--name", name, "--output", home / name)
            stoilo("release", "keygen", *words, "--rehearsal", secret=True)
            named += [f"--{role}", home / name / f"{name}.{role}.pub"]
    more = ("--online", home / "online.json", "--rehearsal")
    stoilo("release", "init", home / "first", *named, *more)
    sign(home, home / "first", *PEOPLE)
    stoilo("release", "publish", home / "first", "--data", home / "data")
    return home


@pytest.fixture(scope="module")
def server(home: Path) -> Iterator[Deployment]:
    with Deployment(home / "data", volunteers=2) as deployment:
        yield deployment


def record(home: Path) -> dict[str, object]:
    try:
        text = (home / "data" / "keys" / "release.record.json").read_text()
    except FileNotFoundError:
        return {"metadata": []}
    found: dict[str, object] = json.loads(text)
    return found


def names_of(home: Path) -> set[str]:
    return {one["name"] for one in record(home)["metadata"]}  # type: ignore[attr-defined]


def test_server_works_under_the_root_that_people_signed(
    home: Path, server: Deployment
) -> None:
    assert server.line is not None
    with RawClient(Path(server.line.connection)) as client:
        answer = client.wait(client.submit())
    assert (answer.state, decode(answer.value)) == ("succeeded", 42)
    wait_for(lambda: "1.root.json" in names_of(home))
    assert record(home)["transcript"]


def test_anybody_can_check_what_the_running_server_publishes(
    home: Path, server: Deployment
) -> None:
    assert server.line is not None
    wait_for(lambda: "1.root.json" in names_of(home))
    told = json.loads(stoilo("release", "verify", home / "data", "--json"))
    root = home / "data" / "keys" / "root.json"
    url = f"{server.line.http}release/"
    far = json.loads(stoilo("release", "verify", url, "--root", root, "--json"))
    assert told["rehearsal"]
    assert told["log"]
    assert far["log"] == told["log"]
    assert far["roles"] == told["roles"]
    state = json.loads(stoilo("release", "review", home / "data", "--json"))
    assert state["state"] == "ok"


def test_epochs_certified_beside_the_running_server_are_used(
    home: Path, server: Deployment
) -> None:
    assert server.line is not None
    online = ("--data", home / "data", "--out", home / "more.json")
    stoilo("release", "online-keys", *online, "--replace", "gate")
    stick = home / "second"
    asked = ("--release", home / "data", "--online", home / "more.json")
    stoilo("release", "request", stick, *asked)
    sign(home, stick, "gate")
    stoilo("release", "publish", stick, "--data", home / "data")
    wait_for(lambda: "2.gate.json" in names_of(home))
    with RawClient(Path(server.line.connection)) as client:
        task = client.submit()
        assert client.wait(task).state == "succeeded"
    database = home / "data" / "server.sqlite"
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as rows:
        query = "SELECT statement FROM attempt WHERE task_id = ?"
        (statement,) = rows.execute(query, [task]).fetchone()
    assert b'"epoch":5' in statement.replace(b" ", b"")
