"""Attach, status, suspend, detach: against a real project server, as a person types it."""

from __future__ import annotations

import hashlib
import io
import json
import os
import pty
import select
import signal
import subprocess
import sys

import pytest
import urllib3

from stoilo.cli.main import main
from stoilo.core.errors import DeniedError
from stoilo.executor.volunteer.attachments import Attachments
from stoilo.executor.volunteer.attachments import make_account as make_account_of
from stoilo.executor.volunteer.history import PastRun, note_run
from stoilo.executor.volunteer.ledger import Ledger, ResultRecord
from stoilo.executor.volunteer.status import read_control
from stoilo.executor.volunteer.transfer import Transfer
from stoilo.server.engines.embedded.engine import EmbeddedEngine
from tests.support.engine import (
    BodyValidation,
    OutcomeRecorder,
    ProjectServer,
    make_spec,
)

EMAIL = "ann@example.org"


@pytest.fixture
def project(tmp_path):
    engine = EmbeddedEngine(tmp_path / "engine")
    engine.start(BodyValidation(), OutcomeRecorder())
    with ProjectServer(engine) as server:
        server.engine = engine
        server.key = engine.accounts.ensure(EMAIL, engine.now()).weak_key
        yield server
    engine.close()


@pytest.fixture
def run(tmp_path, capsys, project):
    (tmp_path / "key").write_text(project.key)
    (tmp_path / "root.json").write_text("{}")

    def call(*words):
        code = main(["volunteer", *words, "--data", str(tmp_path / "data")])
        said = capsys.readouterr()
        return code, said.out, said.err

    call.data, call.key = tmp_path / "data", tmp_path / "key"
    call.root = tmp_path / "root.json"
    call.attach = lambda *more: call(
        "attach",
        project.url,
        *(more or ("--key", f"@{tmp_path / 'key'}", "--trust-project-programs")),
    )
    return call


def test_attached_project_is_listed_with_what_may_run(run, project):
    assert run.attach()[0] == 0
    code, out, _ = run("status", "--json")
    status = json.loads(out)
    assert code == 0
    assert status["volunteers"][0]["project"] == project.url
    assert status["volunteers"][0]["running"] is False
    assert "level pure at most" in status["allowed"]


def test_key_and_directory_are_nobody_elses(run, tmp_path):
    run.attach()
    (place,) = (tmp_path / "data").iterdir()
    assert (tmp_path / "data").stat().st_mode & 0o77 == 0
    assert place.stat().st_mode & 0o77 == 0
    assert (place / "key").stat().st_mode & 0o77 == 0


def test_open_directory_is_refused(run, tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data").chmod(0o755)
    code, _, err = run.attach()
    assert (code, "STO-X047" in err) == (4, True)


def test_second_attachment_to_one_project_is_refused(run):
    run.attach()
    code, _, err = run.attach()
    assert (code, "STO-X045" in err) == (2, True)


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("--key", "k"), 2),
        (("--trust-project-programs",), 2),
        (("--key", "k", "--email", "e", "--trust-project-programs"), 2),
        (("--key", "k", "--root", "/none"), 2),
        (("--key", "k", "--project-programs"), 2),
    ],
)
def test_half_an_attachment_is_a_usage_error(run, tmp_path, words, code):
    assert run.attach(*words)[0] == code
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("key", ["nonsense", "0" * 32, ""])
def test_key_that_the_project_does_not_know_attaches_nothing(run, tmp_path, key):
    code, _, err = run.attach("--key", key, "--trust-project-programs")
    assert (code, "STO-E016" in err) == (8, True)
    assert not list((tmp_path / "data").glob("*"))
    assert run.attach()[0] == 0  # control: the right one, and nothing is in its way


def test_attaching_makes_one_host_that_runs_later(run, project):
    run.attach()
    (place,) = Attachments(run.data).every()
    ledger = Ledger(place.project_directory, project.url)
    assert ledger.host.host_id > 0
    ledger.close()


def test_new_account_is_made_with_a_piped_password(run, project, monkeypatch):
    words = ("--email", "new+one@example.org", "--trust-project-programs")
    monkeypatch.setattr(sys, "stdin", io.StringIO("right password\n"))
    assert run.attach("--new-account", *words)[0] == 0
    assert run("detach", project.url)[0] == 0
    monkeypatch.setattr(sys, "stdin", io.StringIO("right password\n"))
    assert run.attach(*words)[0] == 0  # the account is there


def test_person_at_a_terminal_is_offered_an_account(run, project, tmp_path):
    """As a person types it: a terminal of its own, the password not shown."""
    words = ["attach", project.url, "--trust-project-programs", "--data"]
    pid, terminal = pty.fork()
    if not pid:
        command = [sys.executable, "-m", "stoilo.cli.main", "volunteer", *words]
        os.execv(sys.executable, [*command, str(tmp_path / "data")])  # noqa: S606 - a terminal's child
    said = b""
    for asked, answer in (
        (b"E-mail", b"typed@example.org"),
        (b"Password", b"right password"),
        (b"Repeat", b"right password"),
        (b"next: stoilo", b""),
    ):
        while asked not in said:
            assert select.select([terminal], [], [], 60.0)[0], said
            said += os.read(terminal, 1024)
        said = said.partition(asked)[2]
        os.write(terminal, answer + b"\n")
        assert b"right password" not in said
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert len(Attachments(run.data).every()) == 1


def test_project_that_makes_no_accounts_is_told_so(monkeypatch):
    closed = b"<project_config><account_creation_disabled/></project_config>"
    monkeypatch.setattr(Transfer, "get", lambda *_: closed)
    transfer = Transfer("http://127.0.0.1:9/")
    with pytest.raises(DeniedError, match="lets nobody make an account"):
        make_account_of(transfer, "a@example.org", "right password")


ROOT = b'{"signed": {}}'
PRINT = hashlib.sha256(ROOT).hexdigest()


@pytest.fixture
def rooted(monkeypatch):
    """Let the project have a root; all else is as it was."""
    get = Transfer.get

    def give(self, url, *most):
        return ROOT if url == "release/root.json" else get(self, url, *most)

    monkeypatch.setattr(Transfer, "get", give)


@pytest.mark.parametrize(
    ("typed", "code"),
    [
        (PRINT, 0),
        (f" {PRINT[:32].upper()} {PRINT[32:]}", 0),
        (PRINT[:-1] + ("0" if PRINT[-1] != "0" else "1"), 4),
        (hashlib.sha256(b"another").hexdigest(), 4),
        (PRINT[:16], 2),
        (PRINT[:-1], 2),
        (PRINT + "0", 2),
        ("", 2),
    ],
)
@pytest.mark.usefixtures("rooted")
def test_root_is_taken_by_its_whole_fingerprint_only(run, typed, code):
    found = run.attach("--key", f"@{run.key}", "--fingerprint", typed)
    assert found[0] == code
    roots = [one.directory / "root.json" for one in Attachments(run.data).every()]
    assert [root.read_bytes() for root in roots] == [ROOT] * (code == 0)


@pytest.mark.usefixtures("rooted")
def test_nothing_is_trusted_that_was_not_said(run):
    code, _, err = run.attach("--key", f"@{run.key}")
    assert (code, "--fingerprint HEX" in err) == (2, True)
    words = ("--root", str(run.root), "--fingerprint", PRINT)
    assert run.attach("--key", f"@{run.key}", *words)[0] == 2


def test_project_that_is_not_there_is_not_attached(run):
    words = ("--key", "k", "--trust-project-programs")
    code, _, err = run("attach", "http://127.0.0.1:9/", *words)
    assert (code, "STO-X001" in err) == (7, True)


def test_password_is_piped_and_gives_the_key(run, project, tmp_path, monkeypatch):
    made = f"{project.url}create_account.php?email_addr=bob%40example.org&passwd_hash="
    words = ("--email", "bob@example.org", "--trust-project-programs")
    monkeypatch.setattr(sys, "stdin", io.StringIO("wrong password\n"))
    code, _, err = run.attach(*words)
    assert (code, "STO-E016" in err) == (8, True)
    make_account(made, "right password")
    monkeypatch.setattr(sys, "stdin", io.StringIO("right password\n"))
    assert run.attach(*words)[0] == 0
    (place,) = (tmp_path / "data").iterdir()
    assert len((place / "key").read_text().strip()) >= 16


def test_password_does_not_travel_in_the_clear(run, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO("secret\n"))
    words = ("--email", EMAIL, "--trust-project-programs")
    code, _, err = run("attach", "http://project.example/", *words)
    assert (code, "https only" in err) == (2, True)
    assert sys.stdin.read() == "secret\n"  # it was not even asked for


def test_programs_are_not_trusted_in_the_clear(run):
    words = ("--key", "k", "--trust-project-programs")
    code, _, err = run("attach", "http://project.example/", *words)
    assert (code, "https only" in err) == (2, True)


def make_account(url, password):
    text = f"{password}bob@example.org".encode()
    hashed = hashlib.md5(text, usedforsecurity=False).hexdigest()
    answer = urllib3.request("GET", f"{url}{hashed}&user_name=bob")
    assert b"authenticator" in answer.data


def test_suspend_and_update_are_written_for_who_runs(run, tmp_path):
    run.attach()
    (place,) = (tmp_path / "data").iterdir()
    assert run("suspend")[0] == run("status", "--update")[0] == 0
    control = read_control(place / "project")
    assert (control.suspended, control.updates) == (True, 1)
    assert "suspended" in run("status")[1]
    run("suspend", "--undo")
    assert read_control(place / "project").suspended is False


def test_unknown_project_is_named(run):
    for command in ("suspend", "detach", "run"):
        code, _, err = run(command, "http://other.example/")
        assert (code, "STO-X045" in err) == (2, True)


def test_detached_project_leaves_nothing(run, project, tmp_path):
    run.attach()
    assert run("detach", project.url)[0] == 0
    assert list((tmp_path / "data").iterdir()) == []


def test_unfinished_task_is_given_back_at_detaching(run, project, tmp_path):
    run.attach()
    (place,) = (tmp_path / "data").iterdir()
    ledger = Ledger(place / "project", project.url)
    ledger.add(ResultRecord("w_1_0", "w_1", "pure", 2**31, (), "up", "u", 1))
    ledger.close()
    code, _, err = run("detach", project.url)
    assert (code, "STO-X045" in err) == (2, True)
    code, out, _ = run("detach", project.url, "--abort-tasks")
    assert (code, "could not" in out) == (0, False)
    assert list((tmp_path / "data").iterdir()) == []


def test_attached_computer_runs_until_it_is_stopped(run, project, tmp_path, wait_until):
    project.engine.create_workunits([make_spec("w_1")])
    run.attach()
    words = ["volunteer", "run", "--data", str(tmp_path / "data")]
    child = subprocess.Popen([sys.executable, "-m", "stoilo.cli.main", *words])
    try:
        wait_until(
            lambda: json.loads(run("status", "--json")[1])["volunteers"][0][
                "last_contact"
            ]
        )
        status = json.loads(run("status", "--json")[1])["volunteers"][0]
        assert (status["running"], status["host_id"] > 0) == (True, True)
    finally:
        os.kill(child.pid, signal.SIGTERM)
        assert child.wait() == 0
    assert json.loads(run("status", "--json")[1])["volunteers"][0]["running"] is False


def test_each_project_has_a_process_of_its_own(run, project, tmp_path, wait_until):
    second = EmbeddedEngine(tmp_path / "second")
    second.start(BodyValidation(), OutcomeRecorder())
    with ProjectServer(second) as other:
        run.attach()
        key = second.accounts.ensure(EMAIL, second.now()).weak_key
        run("attach", other.url, "--key", key, "--trust-project-programs")
        (place,) = (tmp_path / "data").glob(f"*{other.url.split(':')[2].strip('/')}*")
        (place / "key").write_text("0" * 32)  # as if the account were gone since
        words = ["volunteer", "run", "--data", str(tmp_path / "data")]
        child = subprocess.Popen([sys.executable, "-m", "stoilo.cli.main", *words])

        def standings():
            found = json.loads(run("status", "--json")[1])["volunteers"]
            return {one["project"]: one for one in found}

        try:  # the one whose key is unknown ends alone
            wait_until(lambda: standings()[project.url]["last_contact"])
            wait_until(lambda: "STO-E016" in standings()[other.url]["last_error"])
            assert not standings()[other.url]["running"]
            assert standings()[project.url]["running"]
        finally:
            child.send_signal(signal.SIGTERM)
            assert child.wait() == 8
    second.close()


TASK = "da678c841ec6b62c71b49ee1572c932c"


def test_history_names_what_ran_and_its_page(run, project):
    assert run("history") == (0, "nothing ran here yet\n", "")
    run.attach()
    (place,) = Attachments(run.data).every()
    place.project_directory.mkdir(exist_ok=True)
    for at, function in ((10, "first"), (1e9, "\x1b[31msecond")):
        note_run(
            place.project_directory,
            PastRun(int(at), f"{TASK}_1", "pure", "ok", "", 1.25, function, "numeric"),
        )
    code, out, _ = run("history", project.url)
    assert code == 0
    newest, page, oldest, _ = out.splitlines()
    assert newest == "2001-09-09 01:46 UTC  \\x1b[31msecond  numeric  1.2 s  ok"
    assert page == f"  {project.url}audit/task/{TASK}"
    assert "first" in oldest
    (shown,) = json.loads(run("history", "--json", "--most", "1")[1])
    assert shown["page"] == page.strip()
    assert shown["run"]["function"] == "\x1b[31msecond"
