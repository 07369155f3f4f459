"""A review from end to end: real server, volunteers and jail; the reviewer signs offline."""

import contextlib
import io
import json
import os
import sqlite3
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from stoilo.cli.main import main
from stoilo.core.codec.skeleton import decode, encode
from stoilo.core.rpc import tasks_pb2 as pb
from stoilo.core.statement import parse_statement
from stoilo.executor.verifier.statements import REVIEW_PAYLOAD
from stoilo.server.admission import tokens
from stoilo.server.db.store import Store
from stoilo.testing.deployment import Deployment
from tests.support.wire import RawClient

POLICY = """
format = 1
name = "reviewed"
[levels.pure]
open_to = ["researcher"]
review = "manual"
[levels.numeric]
open_to = ["researcher"]
[quotas.researcher]
"""
SERVICE = "/stoilo.v1.ReviewService/"
SOURCE = b"def task(kwargs):\n    return kwargs['x'] * 2\n"


@dataclass
class Project:
    """A running project, its researcher and its reviewer."""

    data: Path
    client: RawClient
    home: Path
    deployment: Deployment

    @property
    def connection(self) -> str:
        return str(self.home / "ann.json")

    @property
    def key(self) -> str:
        return str(self.home / "ann.pem")

    def submit(self, x: int, source: bytes = SOURCE) -> str:
        return self.client.submit(task_module=source, arguments=encode({"x": x}))

    def wait_for(self, task_id: str, state: str) -> Any:
        deadline = time.monotonic() + 60
        while (answer := self.client.poll(task_id)).state != state:
            assert time.monotonic() < deadline, answer
            time.sleep(0.05)
        return answer

    def wait_for_copies(self, task_id: str, count: int) -> None:
        """Wait until so many copies have come back and agree."""
        deadline = time.monotonic() + 60
        while count > sum(
            copy.outcome == "success" for copy in self.client.poll(task_id).copies
        ):
            assert time.monotonic() < deadline, self.client.poll(task_id)
            time.sleep(0.05)

    def review(self, *words: str, code: int = 0) -> Any:
        return cli("policy", "review", *words, code=code)

    def sign(self, task_id: str, *more: str) -> str:
        folder = self.home / f"{task_id}-{time.monotonic_ns()}"
        self.review(
            "show", task_id, "--output", str(folder), "--connection", self.connection
        )
        signed = self.review("sign", str(folder), "--key", self.key, *more)
        return str(signed["file"])

    def hand_in(self, task_id: str, file: str, code: int = 0) -> Any:
        words = ("submit", task_id, file, "--connection", self.connection)
        return self.review(*words, code=code)


def cli(*words: str, code: int = 0) -> Any:
    """Run a command as people do; returns its JSON, or its error's."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        ended = main([*words, "--json"])
    assert ended == code, err.getvalue()
    return json.loads(out.getvalue() or err.getvalue())


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    home = tmp_path_factory.mktemp("review")
    data = home / "data"
    data.mkdir(mode=0o700)
    (home / "policy.toml").write_text(POLICY)
    (data / "stoilo.toml").write_text(f'policy = "{home / "policy.toml"}"\n')
    with Deployment(data, volunteers=2) as deployment:
        assert deployment.line is not None
        with RawClient(Path(deployment.line.connection)) as client:
            made = Project(data, client, home, deployment)
            enroll(made)
            yield made


def enroll(project: Project) -> str:
    made = project.review("keygen", "--output", project.key)
    place = ("--data", str(project.data), "--connection", project.connection)
    cli("account", "add", "ann", *place, "--for", "review", "--key", made["public_key"])
    return str(made["public_key"])


def statement_of(project: Project, task_id: str) -> Any:
    with sqlite3.connect(project.data / "server.sqlite") as database:
        query = "SELECT statement FROM attempt WHERE task_id = ? ORDER BY number DESC"
        [data] = database.execute(query, (task_id,)).fetchone()
    database.close()
    return parse_statement(data)


def test_task_runs_once_a_reviewer_has_signed(project: Project) -> None:
    task_id = project.submit(21)
    parked = project.wait_for(task_id, "waiting_review")
    assert (parked.code, parked.logged) == ("STO-R022", False)
    assert "waits for a reviewer" in parked.explanation
    listed = project.review("show", "--connection", project.connection)
    assert [row["task_id"] for row in listed["tasks"]] == [task_id]
    taken = project.hand_in(task_id, project.sign(task_id))
    assert taken["released"] == 1
    assert decode(project.wait_for(task_id, "succeeded").value) == 42
    [text] = statement_of(project, task_id).reviewers
    assert json.loads(text)["payloadType"] == REVIEW_PAYLOAD
    assert project.review("show", "--connection", project.connection)["waiting"] == 0


def test_review_of_one_task_admits_no_other_arguments(project: Project) -> None:
    """The negative control of the test below."""
    first, second = project.submit(1), project.submit(2)
    for task_id in (first, second):
        project.wait_for(task_id, "waiting_review")
    file = project.sign(first)
    assert project.hand_in(second, file, code=4)["error"]["code"] == "STO-R023"
    assert project.hand_in(first, file)["released"] == 1
    project.wait_for(first, "succeeded")
    assert project.client.poll(second).state == "waiting_review"


def test_review_for_any_arguments_admits_later_tasks(project: Project) -> None:
    source = SOURCE + b"# any\n"
    first = project.submit(3, source)
    project.wait_for(first, "waiting_review")
    project.hand_in(first, project.sign(first, "--any-arguments"))
    later = project.submit(4, source)
    assert decode(project.wait_for(later, "succeeded").value) == 8


def test_refused_task_tells_its_submitter_why(project: Project) -> None:
    task_id = project.submit(5)
    project.wait_for(task_id, "waiting_review")
    words = ("submit", task_id, "--refuse", "mines \x1b[31m coins")
    said = project.review(*words, "--connection", project.connection)
    assert said["state"] == "system_error"
    answer = project.client.poll(task_id)
    assert answer.code == "STO-R064"
    assert "mines \\x1b[31m coins" in answer.error_text


def test_changed_bytes_make_a_signature_for_nothing(project: Project) -> None:
    """A reviewer who read other bytes than would run signs nothing that helps."""
    task_id = project.submit(6)
    project.wait_for(task_id, "waiting_review")
    folder = project.home / "changed"
    words = ("show", task_id, "--output", str(folder))
    project.review(*words, "--connection", project.connection)
    with (folder / "task_module.py").open("ab") as stream:
        stream.write(b"#\n")
    signed = project.review("sign", str(folder), "--key", project.key)
    refused = project.hand_in(task_id, signed["file"], code=4)
    assert refused["error"]["code"] == "STO-R023"


def test_stranger_and_researcher_cannot_review(project: Project) -> None:
    task_id = project.submit(7)
    project.wait_for(task_id, "waiting_review")
    own = str(project.data / "connection.json")
    denied = project.review("show", "--connection", own, code=8)
    assert denied["error"]["code"] == "STO-R002"
    stranger = project.home / "stranger.pem"
    project.review("keygen", "--output", str(stranger))
    folder = project.home / "by-stranger"
    words = ("show", task_id, "--output", str(folder))
    project.review(*words, "--connection", project.connection)
    signed = project.review("sign", str(folder), "--key", str(stranger))
    refused = project.hand_in(task_id, signed["file"], code=4)
    assert refused["error"]["code"] == "STO-R023"


def test_nobody_reviews_himself(project: Project) -> None:
    """`ann` reviews; a task of her own account waits for somebody else."""
    store = Store.open(f"sqlite:///{project.data / 'server.sqlite'}")
    with store.write() as connection:
        token = tokens.issue_token(
            connection, "ann", tokens.Role.RESEARCHER, int(time.time())
        )
    store.close()
    page = json.loads((project.data / "connection.json").read_text())
    own = project.home / "ann-researcher.json"
    own.write_text(json.dumps(page | {"token": token}))
    with RawClient(own) as ann:
        task_id = ann.submit(task_module=SOURCE, arguments=encode({"x": 8}))
        while ann.poll(task_id).state != "waiting_review":
            time.sleep(0.05)
    [row] = [
        row
        for row in project.review("show", "--connection", project.connection)["tasks"]
        if row["task_id"] == task_id
    ]
    assert row["own"]
    refused = project.hand_in(task_id, project.sign(task_id), code=3)
    assert refused["error"]["code"] == "STO-R025"


def test_bytes_that_are_no_request_end_in_a_code(project: Project) -> None:
    token = json.loads(Path(project.connection).read_text())["token"]
    for name in ("ListReviews", "GetReview", "SubmitReview", "RefuseTask"):
        for body in (b"\xff" * 9, b"\x0a\xff\xff\xff\xff\x0f", os.urandom(40)):
            rpc = project.client._channel.unary_unary(f"{SERVICE}{name}")
            answer = project.client._outcome(
                lambda rpc=rpc, body=body: rpc(
                    body, metadata=[("authorization", f"Bearer {token}")], timeout=60
                )
            )
            assert answer.status in {"OK", "INVALID_ARGUMENT"}, answer
            assert answer.status == "OK" or answer.code.startswith("STO-R")
    assert "Traceback" not in (project.data.parent / "data.log").read_text()


def test_parked_task_survives_kill_9(project: Project) -> None:
    task_id = project.submit(11)
    project.wait_for(task_id, "waiting_review")
    project.deployment.kill()
    project.deployment.start()
    project.wait_for(task_id, "waiting_review")
    project.hand_in(task_id, project.sign(task_id))
    assert decode(project.wait_for(task_id, "succeeded").value) == 22


def test_withdrawn_reviewer_lets_nothing_more_through(project: Project) -> None:
    """Last: it ends what the tests above rely on."""
    source = SOURCE + b"# any\n"
    assert project.wait_for(project.submit(9, source), "succeeded")
    many = pb.RedundancyOptions(
        min_quorum=3,
        target_results=3,
        max_error=3,
        max_total=4,
        max_success=4,
        delay_bound_s=600,
    )
    words = {"task_module": source, "arguments": encode({"x": 1})}
    running = project.client.submit(redundancy=many, **words)
    project.wait_for_copies(running, 2)  # it needs more users than there are
    held = project.submit(11, SOURCE + b"# another\n")
    signed = project.sign(held)
    data = ("--data", str(project.data))
    listed = cli("account", "list", "--reviewers", *data)
    [key] = [one["key"] for one in listed["reviewers"]]
    cli("account", "role", "--withdraw", key, *data)
    task_id = project.submit(10, source)
    project.wait_for(task_id, "waiting_review")
    project.wait_for(running, "waiting_review")
    refused = project.hand_in(held, signed, code=8)  # nor what he signed before
    assert refused["error"]["code"] == "STO-R001"
