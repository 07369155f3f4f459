from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from sqlalchemy import update

from stoilo.cli.main import main
from stoilo.core.boinc.messages import HostInfo, SchedulerRequest
from stoilo.core.errors import DeniedError
from stoilo.server.engines.embedded.db import schema
from stoilo.server.engines.embedded.engine import EmbeddedEngine
from tests.support.engine import make_spec

EMAIL = "a@example.org"
FIELDS = {
    "user_id",
    "email",
    "key",
    "weak_key",
    "max_level",
    "name",
    "url",
    "account_file",
    "verified",
    "key_number",
}


@pytest.fixture
def data(tmp_path):
    EmbeddedEngine(tmp_path / "engine").close()
    return str(tmp_path)


def account(data, *more):
    return main(["boinc", "account", "--data", data, "--email", EMAIL, *more])


def shown(capsys, data, command, *more):
    """Return the JSON object of `stoilo boinc COMMAND`."""
    code = main(["boinc", command, "--data", data, "--json", *more])
    return json.loads(capsys.readouterr().out) if code == 0 else code


def call(engine, email=EMAIL, number=1, host=None):
    key = engine.accounts.ensure(email, 1).weak_key
    host = host or HostInfo(domain_name="anna\x1b[31m", os_name="Linux")
    request = SchedulerRequest(key, 0, 1, f"{number:032x}", host=host, own_program=True)
    return engine.scheduler.handle(request, "http://x/", engine.now())


@pytest.fixture
def engine(data):
    engine = EmbeddedEngine(Path(data) / "engine")
    yield engine
    engine.close()


# ------------------------------------------------------------------ account


def test_account_prints_its_weak_key_alone(data, capsys):
    assert account(data) == 0
    first = capsys.readouterr().out
    assert account(data) == 0
    assert capsys.readouterr().out == first
    assert len(first.strip()) == 32


def test_account_as_json_is_complete_and_shows_no_strong_key(data, capsys):
    assert account(data, "--json", "--max-level", "numeric") == 0
    found = json.loads(capsys.readouterr().out)
    assert set(found) == FIELDS
    assert (found["max_level"], found["url"]) == ("numeric", None)
    assert found["key"] == found["weak_key"]
    assert account(data, "--strong") == 0
    assert capsys.readouterr().out.strip() not in json.dumps(found)


def test_key_works_beside_the_running_server(data, engine, capsys):
    account(data)
    key = capsys.readouterr().out.strip()
    assert engine.accounts.knows(key)


def test_account_file_attaches_a_client_with_the_weak_key(data, tmp_path, capsys):
    client = tmp_path / "boinc"
    client.mkdir()
    more = ("--account-file", str(client), "--url", "http://127.0.0.1:18093")
    assert account(data, *more, "--json", "--strong") == 0
    found = json.loads(capsys.readouterr().out)
    file = client / "account_127.0.0.1_18093.xml"
    assert found["account_file"] == str(file)
    assert f"<authenticator>{found['weak_key']}</authenticator>" in file.read_text()
    assert found["key"] not in file.read_text()
    assert file.stat().st_mode & 0o777 == 0o600


def test_account_file_needs_an_address(data, tmp_path, capsys):
    assert account(data, "--account-file", str(tmp_path)) == 2
    assert "STO-E070" in capsys.readouterr().err


def test_directory_without_a_server_is_a_usage_error(tmp_path, capsys):
    assert account(str(tmp_path / "none")) == 2
    assert "STO-U004" in capsys.readouterr().err


def test_bad_level_is_a_usage_error(data, capsys):
    assert account(data, "--max-level", "root") == 2
    assert "STO-E015" in capsys.readouterr().err


# ------------------------------------------------------------------ lists, bans


def test_new_key_ends_the_old_one_and_the_password_of_whoever_made_it(
    data, engine, capsys
):
    old = engine.accounts.create(EMAIL, "a" * 32, 1)
    assert account(data, "--json") == 0
    said = capsys.readouterr()
    assert not json.loads(said.out)["verified"]
    assert "--new-key" in said.err
    assert account(data, "--new-key") == 0
    new = capsys.readouterr().out.strip()
    assert not engine.accounts.knows(old.weak_key)
    assert engine.accounts.open_by_id(old.user_id).weak_key == new
    assert engine.accounts.knows(new)
    with pytest.raises(DeniedError, match="STO-E016"):
        engine.accounts.find(EMAIL, "a" * 32)
    assert account(data, "--trust") == 0


def test_unverified_account_is_listed_as_such(data, engine, capsys):
    engine.accounts.create(EMAIL, "a" * 32, 1)
    assert main(["boinc", "account", "--data", data]) == 0
    assert "unverified" in capsys.readouterr().out


def test_accounts_are_listed_without_keys(data, engine, capsys):
    key = engine.accounts.ensure(EMAIL, 1).weak_key
    (found,) = shown(capsys, data, "account")["accounts"]
    assert (found["email"], found["hosts"], found["banned"]) == (EMAIL, 0, False)
    assert main(["boinc", "account", "--data", data]) == 0
    out = capsys.readouterr().out
    assert EMAIL in out
    assert key not in out


def test_hosts_are_listed_and_cannot_command_the_terminal(data, engine, capsys):
    call(engine)
    call(engine, "b@example.org", 2)
    assert len(shown(capsys, data, "hosts")["hosts"]) == 2
    (found,) = shown(capsys, data, "hosts", "--email", EMAIL)["hosts"]
    assert (found["os_name"], found["host_id"]) == ("Linux", 1)
    assert main(["boinc", "hosts", "--data", data]) == 0
    assert "\x1b" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("ban", "lift"),
    [
        (["hosts", "--ban", "1"], ["hosts", "--lift", "1"]),
        (
            ["account", "--email", EMAIL, "--ban"],
            ["account", "--email", EMAIL, "--lift"],
        ),
    ],
)
def test_banned_caller_is_told_until_it_is_lifted(data, engine, ban, lift):
    call(engine)
    assert main(["boinc", *ban, "--data", data]) == 0
    assert "STO-E041" in call(engine).messages[0]
    assert call(engine, "b@example.org", 2).messages == ()
    assert main(["boinc", *lift, "--data", data]) == 0
    assert call(engine).messages == ()


@pytest.mark.parametrize(
    "words",
    [
        ["hosts", "--ban", "7"],
        ["hosts", "--ban", "1", "--lift", "1"],
        ["account", "--email", "x@example.org", "--ban"],
        ["account", "--ban"],
        ["account", "--no-trust"],
    ],
)
def test_judging_nobody_is_a_usage_error(data, words):
    assert main(["boinc", *words, "--data", data]) == 2


def test_trusted_account_is_known_and_forgotten(data, engine):
    engine.accounts.ensure(EMAIL, 1)
    words = ["boinc", "account", "--data", data, "--email"]
    for more, trusted in (("--trust", True), ("--no-trust", False)):
        assert main([*words, EMAIL.upper(), more]) == 0
        assert engine.roster.trusted() == ([EMAIL] if trusted else [])
    assert main([*words, "x@example.org", "--trust"]) == 2


def test_account_that_somebody_made_over_the_web_is_not_trusted(data, engine, capsys):
    engine.accounts.create(EMAIL, "a" * 32, 1)
    assert account(data, "--trust") == 2
    assert "STO-R029" in capsys.readouterr().err
    assert shown(capsys, data, "account")["trusted"] == []


def test_trusted_accounts_are_listed(data, engine, capsys):
    for name in (EMAIL, "b@example.org"):
        engine.accounts.ensure(name, 1)
        words = ["boinc", "account", "--data", data, "--email", name, "--trust"]
        assert main(words) == 0
    capsys.readouterr()
    listed = shown(capsys, data, "account")["trusted"]
    assert listed == sorted([EMAIL, "b@example.org"])


def add_check(engine, workunit, verdict, ended_at):
    engine.create_workunits([make_spec(workunit)])
    table = schema.results
    with engine._database.write() as connection:
        mine = update(table).where(table.c.name == f"{workunit}_0")
        values = {"recheck": verdict, "check_ended_at": ended_at}
        connection.execute(mine.values(values))


def test_ended_spot_checks_are_listed(data, engine, capsys):
    assert shown(capsys, data, "hosts", "--checks", "30")["checks"] == []
    add_check(engine, "w_1", "different", int(time.time()))
    (found,) = shown(capsys, data, "hosts", "--checks", "30")["checks"]
    assert (found["workunit"], found["verdict"]) == ("w_1", "different")
    add_check(engine, "w_2", "same", 1)
    assert (
        len(shown(capsys, data, "hosts", "--checks", "30")["checks"]) == 1
    )  # the other is long ago
