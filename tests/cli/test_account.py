from __future__ import annotations

import io
import json
import time
from pathlib import Path

import msgspec
import pytest

from stoilo.cli.main import main
from stoilo.core.errors import DeniedError
from stoilo.server.admission import tokens
from stoilo.server.data_directory import CONNECTION_FILE, ConnectionFile
from stoilo.server.db.store import Store
from stoilo.server.operations import sign_ins


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Return the data directory of a server that has run."""
    (tmp_path / "keys" / "metadata").mkdir(parents=True)
    Store.open(f"sqlite:///{tmp_path / 'server.sqlite'}").close()
    connection = ConnectionFile("127.0.0.1:1", "http://127.0.0.1/", None, "old", "ca")
    (tmp_path / CONNECTION_FILE).write_bytes(msgspec.json.encode(connection))
    return tmp_path


def run(
    capsys: pytest.CaptureFixture[str], data: Path, words: str, *more: str
) -> dict[str, object]:
    assert main(["account", *words.split(), "--data", str(data), *more, "--json"]) == 0
    return dict(json.loads(capsys.readouterr().out))


@pytest.fixture
def token(data: Path, capsys: pytest.CaptureFixture[str]) -> str:
    place = data / "eve.json"
    run(capsys, data, "add", "eve", "--connection", str(place))
    assert place.stat().st_mode & 0o777 == 0o600
    return msgspec.json.decode(place.read_bytes(), type=ConnectionFile).token


def is_good(data: Path, token: str) -> bool:
    store = Store.open(f"sqlite:///{data / 'server.sqlite'}")
    try:
        with store.read() as connection:
            tokens.find_owner(connection, token, int(time.time()))
    except DeniedError:
        return False
    finally:
        store.close()
    return True


def test_added_account_is_listed_with_its_token(
    data: Path, token: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert is_good(data, token)
    (line,) = run(capsys, data, "list")["accounts"]
    assert (line["name"], line["tokens"], line["suspended_at"]) == ("eve", 1, 0)
    (one,) = run(capsys, data, "show", "eve")["tokens"]
    assert tokens.token_digest(token).startswith(one["token"])


@pytest.mark.parametrize("how", ["all", "id", "leaked"])
def test_token_is_revoked_by_each_way(
    data: Path,
    token: str,
    how: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(token + "\n"))
    named = tokens.token_digest(token)[:12]
    words = {
        "all": ("eve", "--all"),
        "id": ("eve", "--token", named),
        "leaked": ("--leaked", "-"),
    }
    assert run(capsys, data, "token revoke", *words[how]) == {"revoked": 1}
    assert not is_good(data, token)


@pytest.mark.parametrize(
    "words", [(), ("eve",), ("eve", "--all", "--token", "x"), ("eve", "--leaked", "-")]
)
def test_revoke_says_what_exactly(data: Path, words: tuple[str, ...]) -> None:
    assert main(["account", "token", "revoke", "--data", str(data), *words]) == 2


def test_account_is_suspended_and_resumed(
    data: Path, token: str, capsys: pytest.CaptureFixture[str]
) -> None:
    del token
    said = run(capsys, data, "suspend", "eve", "--reason", "coins", "--cancel")
    assert said == {"name": "eve", "suspended": True, "cancelled": 0}
    (line,) = run(capsys, data, "list")["accounts"]
    assert line["reason"] == "coins"
    assert run(capsys, data, "suspend", "eve", "--undo") == {
        "name": "eve",
        "resumed": True,
    }


def test_person_reads_tables(
    data: Path, token: str, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["account", "suspend", "--data", str(data), "eve", "--reason", "coins"])
    main(["account", "list", "--data", str(data)])
    main(["account", "show", "--data", str(data), "eve"])
    main(["account", "token", "revoke", "--data", str(data), "eve", "--all"])
    main(["account", "suspend", "--data", str(data), "eve", "--undo"])
    said = capsys.readouterr().out
    words = ("suspended", "coins", "researcher", "1 revoked", "resumed")
    assert all(word in said for word in words)
    assert token not in said


@pytest.mark.parametrize(
    "words", [(), ("eve",), ("eve", "--for", "review"), ("eve", "--key", "00")]
)
def test_access_without_what_it_needs_is_a_usage_error(
    data: Path, words: tuple[str, ...]
) -> None:
    assert main(["account", "add", "--data", str(data), *words]) == 2


def test_directory_of_no_server_is_a_usage_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["account", "list", "--data", str(tmp_path / "none")]) == 2
    assert "STO-U004" in capsys.readouterr().err


def test_key_of_mirrors_is_made_once_and_for_a_server_only(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["account", "add", "--for", "mirrors", "--data", str(tmp_path)]
    assert main(words) == 2
    (tmp_path / "engine").mkdir()
    keys = set()
    for _ in range(2):
        capsys.readouterr()
        assert main(words) == 0
        keys.add(capsys.readouterr().out)
    assert len(keys) == 1
    assert len(keys.pop()) == 65


@pytest.mark.parametrize(
    ("what", "role"), [("console", "researcher"), ("operation", "operator")]
)
def test_link_is_good_for_one_session_of_its_role(
    data: Path, what: str, role: str, capsys: pytest.CaptureFixture[str]
) -> None:
    link = str(run(capsys, data, "add", "eve", "--for", what)["link"])
    place, _, secret = link.partition("?link=")
    assert place == "http://127.0.0.1/console/sign-in"
    store, now = Store.open(f"sqlite:///{data / 'server.sqlite'}"), int(time.time())
    with store.write() as connection:
        session = tokens.open_session(connection, secret, now)
        owner = tokens.find_owner(connection, session, now)
        with pytest.raises(DeniedError, match="STO-R001"):
            tokens.open_session(connection, secret, now)
    store.close()
    assert (owner.name, owner.role, owner.scope) == ("eve", role, tokens.SESSION_SCOPE)


def test_passkey_is_shown_and_removed_as_a_token(
    data: Path, token: str, capsys: pytest.CaptureFixture[str]
) -> None:
    store, now = Store.open(f"sqlite:///{data / 'server.sqlite'}"), int(time.time())
    made = sign_ins.Credential(b"i" * 32, b"d", 0)
    with store.write() as connection:
        owner = tokens.find_owner(connection, token, now)
        sign_ins.add_passkey(connection, owner, made, "blue key", now)
    store.close()
    shown = run(capsys, data, "show", owner.name)["tokens"][-1]
    assert (shown["name"], shown["scope"]) == ("blue key", tokens.PASSKEY_SCOPE)
    words = ("token revoke", owner.name, "--token", shown["token"])
    assert run(capsys, data, *words)["revoked"] == 1


def test_link_leads_to_the_server_as_people_reach_it(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (data / "stoilo.toml").write_text('project_url = "https://a.example/"\n')
    link = str(run(capsys, data, "add", "eve", "--for", "console")["link"])
    assert link.startswith("https://a.example/console/sign-in?link=sto_")


def test_link_for_nobody_is_not_made(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["account", "add", "--data", str(data), "--for", "console"]) != 0
    assert "with NAME" in capsys.readouterr().err
    assert run(capsys, data, "list")["accounts"] == []


def test_account_has_group_quota_role_and_tokens_by_name(
    data: Path, token: str, capsys: pytest.CaptureFixture[str]
) -> None:
    place = str(data / "laptop.json")
    made = run(
        *(capsys, data, "token new", "eve", "--to", place, "--label", "laptop"),
        *("--days", "9"),
    )
    assert made["days"] == 9
    said = run(capsys, data, "quota", "eve", "--open", "4", "--join", "bio")
    assert (said["open_tasks"], said["share"]) == (4, None)
    run(capsys, data, "quota", "bio", "--group", "--day", "7", "--share", "3")
    assert run(capsys, data, "role", "eve", "operator")["changed"] == 2
    shown = run(capsys, data, "show", "eve")
    assert (shown["group"], shown["share"]) == ("bio", 3)
    uses = [(one["whose"], one["most"]) for one in shown["uses"]]
    assert (uses[0], uses[-1]) == (("", 4), ("group bio", 7))
    assert [one["name"] for one in shown["tokens"]] == ["", "laptop"]
    assert token not in json.dumps(shown)
    assert run(capsys, data, "quota", "eve", "--open", "-1")["open_tasks"] is None


def test_tokens_expire_by_word(
    data: Path, token: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(capsys, data, "token expire", "eve", "--days", "0")["changed"] == 1
    assert not is_good(data, token)


def test_list_of_people_is_imported_and_imported_again(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    listed, folder = data / "people.csv", data / "files"
    listed.write_text("name,group\nben,bio\ncleo,\n")
    words = ("--file", str(listed), "--to", str(folder))
    counts = [len(run(capsys, data, "add", *words)["made"]) for _ in range(2)]
    assert counts == [2, 0]
    assert sorted(one.name for one in folder.iterdir()) == ["ben.json", "cleo.json"]


@pytest.mark.parametrize("content", [b"\xff\xfe", b"name\n" + b"#" * 300_000])
def test_list_that_is_no_text_or_too_long_is_refused(
    data: Path, content: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    (data / "people.csv").write_bytes(content)
    words = ["--file", str(data / "people.csv"), "--to", str(data / "files")]
    assert main(["account", "add", "--data", str(data), *words]) == 2
    assert "STO-U004" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        ("show", "eve"),
        ("token", "new", "eve", "--to", "x"),
        ("token", "revoke", "eve", "--all"),
        ("token", "revoke"),
        ("token", "revoke", "--leaked", "-"),
    ],
)
def test_name_without_data_directory_is_a_usage_error(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["account", *words]) == 2
    assert "STO-U003" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words", [("eve",), (), ("eve", "auditor", "--withdraw", "00"), ("eve", "reviewer")]
)
def test_role_says_what_exactly(data: Path, words: tuple[str, ...]) -> None:
    assert main(["account", "role", "--data", str(data), *words]) == 2
