from __future__ import annotations

import json
from pathlib import Path

import pytest

from stoilo.client.address import ENVIRONMENT, Address, is_loopback, resolve_address
from stoilo.core.errors import UsageError

GOOD = {"grpc": "127.0.0.1:57010", "token": "secret-token", "ca": "PEM", "http": "x"}


@pytest.fixture
def connection_file(tmp_path: Path) -> Path:
    path = tmp_path / "connection.json"
    path.write_text(json.dumps(GOOD))
    return path


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ENVIRONMENT, raising=False)


def test_a_path_names_a_connection_file(connection_file: Path) -> None:
    for where in (connection_file, str(connection_file)):
        address = resolve_address(where)
        assert (address.target, address.token) == ("127.0.0.1:57010", "secret-token")
        assert address.ca == b"PEM"


def test_an_address_takes_credentials_from_the_environment(
    connection_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ENVIRONMENT, str(connection_file))
    assert resolve_address("localhost:1234").target == "localhost:1234"
    assert resolve_address("[::1]:1234").token == "secret-token"
    assert resolve_address(None).target == "127.0.0.1:57010"


@pytest.mark.parametrize("where", ["localhost:57010", None])
def test_without_credentials_the_error_says_how_to_get_them(where: str | None) -> None:
    with pytest.raises(UsageError, match="STO-C045") as error:
        resolve_address(where)
    assert "STOILO_CONNECTION" in error.value.hint


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        "{",
        '{"grpc": 5}',
        '{"grpc": "no port"}',
        '{"grpc": "h:1", "token": 5}',
        '{"grpc": "h:1", "ca": []}',
        '{"grpc": "h:1"}' + " " * 70_000,
    ],
)
def test_files_that_are_no_connection_are_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "connection.json"
    path.write_text(text)
    with pytest.raises(UsageError, match="STO-C045"):
        resolve_address(path)


def test_a_missing_file_is_named_whole(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="STO-C045") as error:
        resolve_address(tmp_path / "nothing.json")
    assert str(tmp_path) in str(error.value)


def test_plain_text_leaves_this_machine_never(tmp_path: Path) -> None:
    path = tmp_path / "connection.json"
    path.write_text(
        json.dumps(GOOD | {"grpc": "project.example.org:57010", "ca": None})
    )
    with pytest.raises(UsageError, match="STO-C045"):
        resolve_address(path)
    path.write_text(json.dumps(GOOD | {"grpc": "project.example.org:57010"}))
    assert resolve_address(path).ca


@pytest.mark.parametrize(
    ("target", "here"),
    [
        ("localhost:1", True),
        ("127.8.0.1:1", True),
        ("[::1]:1", True),
        ("localhost.example.org:1", False),
        ("10.0.0.1:1", False),
        ("0.0.0.0:1", False),
    ],
)
def test_loopback_is_this_machine_only(target: str, here: bool) -> None:
    assert is_loopback(target) is here


def test_secrets_are_in_no_repr(connection_file: Path) -> None:
    address = resolve_address(connection_file)
    assert "secret-token" not in repr(address)
    assert "PEM" not in repr(address)


PAGES = "http://127.0.0.1:57080/"


@pytest.mark.parametrize("said", [PAGES, PAGES.rstrip("/")])
def test_pages_of_a_connection_file_are_where_links_lead(
    tmp_path: Path, said: str
) -> None:
    address = read_with(tmp_path, said)
    assert address.page_of("task", "a1") == f"{PAGES}console/task/a1"
    assert address.page_of("label", "a/b '<ü") == (
        f"{PAGES}console/label/a%2Fb%20%27%3C%C3%BC"
    )
    assert "secret-token" not in address.page_of("task", "a1")


@pytest.mark.parametrize(
    "said",
    [
        *(None, 5, "", "x", "http://", "http://[", "http://h/\n", "ftp://h/"),
        *("javascript:alert(1)", "http://me:secret@h/", "http://h/?token=1", "//h/"),
    ],
)
def test_without_a_plain_address_there_is_no_link(tmp_path: Path, said: object) -> None:
    assert read_with(tmp_path, said).page_of("task", "a1") == ""


def read_with(tmp_path: Path, http: object) -> Address:
    path = tmp_path / "connection.json"
    path.write_text(json.dumps(GOOD | {"http": http}))
    return resolve_address(path)
