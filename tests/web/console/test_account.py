"""The account's page: one's own tokens, made, saved and removed; nothing of others."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import msgspec
import pytest

from stoilo.server.admission import tokens
from stoilo.server.data_directory import ConnectionFile
from stoilo.server.operations import access, accounts

if TYPE_CHECKING:
    from tests.support.console import Answer, ConsoleBench, Visitor

ACCOUNT = "/console/account"


def make_token(served: ConsoleBench, visitor: Visitor, **fields: str) -> Answer:
    """Ask for a token on a server that has run before."""
    file = ConnectionFile("127.0.0.1:1", served.url, None, "", "CA")
    (served.bench.directory / "connection.json").write_bytes(msgspec.json.encode(file))
    given = {"label": "laptop", "days": "30"} | fields
    return visitor.press(ACCOUNT, f"{ACCOUNT}/token", **given)


def test_token_is_saved_as_a_connection_file_and_works(served: ConsoleBench) -> None:
    visitor = served.visitor()
    answer = make_token(served, visitor)
    saved = answer.headers["content-disposition"]
    assert (answer.status, saved) == (200, 'attachment; filename="connection.json"')
    token = json.loads(answer.body)["token"]
    with served.bench.store.read() as connection:
        owner = tokens.find_owner(connection, token, served.bench.clock())
    assert (owner.name, owner.role, owner.scope) == ("ada", "researcher", "*")
    assert "laptop" in visitor.ask(ACCOUNT).words
    assert token not in visitor.ask(ACCOUNT).text


def test_session_of_a_reviewer_makes_no_token(served: ConsoleBench) -> None:
    answer = make_token(served, served.reviewer())
    assert (answer.status, "STO-R002" in answer.words) == (403, True)


def test_removed_token_opens_nothing(served: ConsoleBench) -> None:
    visitor = served.visitor()
    token = json.loads(make_token(served, visitor).body)["token"]
    named = tokens.token_digest(token)[: access.ID_CHARS]
    form = visitor.ask(ACCOUNT).forms()[f"{ACCOUNT}/remove"]
    assert visitor.post(f"{ACCOUNT}/remove", form | {"token": named}).status == 303
    assert (
        served.nobody()
        .press("/console/sign-in", "/console/sign-in", secret=token)
        .status
        == 401
    )
    assert "laptop" not in visitor.ask(ACCOUNT).words


def test_token_of_another_account_is_not_found(served: ConsoleBench) -> None:
    mine, eve = served.bench.token, served.visitor("eve")
    make_token(served, eve)
    named = tokens.token_digest(mine)[: access.ID_CHARS]
    assert named not in eve.ask(ACCOUNT).text
    form = eve.ask(ACCOUNT).forms()[f"{ACCOUNT}/remove"]
    answer = eve.post(f"{ACCOUNT}/remove", form | {"token": named})
    assert (answer.status, "STO-R003" in answer.words) == (404, True)
    assert named in served.visitor().ask(ACCOUNT).text  # control


@pytest.mark.parametrize(
    "fields",
    [
        *({"days": one} for one in ("0", "366", "²", "1" * 99, "")),
        {"label": "x" * 65},
    ],
    ids=str,
)
def test_odd_token_is_not_made(served: ConsoleBench, fields: dict[str, str]) -> None:
    visitor = served.visitor()
    assert make_token(served, visitor, **fields).status == 400
    assert make_token(served, visitor).status == 200  # control


def test_suspended_account_removes_and_makes_nothing(served: ConsoleBench) -> None:
    visitor = served.visitor()
    page = visitor.ask(ACCOUNT).forms()
    accounts.suspend(served.bench.store, "ada", "", served.bench.clock())
    assert f"{ACCOUNT}/token" not in visitor.ask(ACCOUNT).forms()
    answer = visitor.post(f"{ACCOUNT}/token", page[f"{ACCOUNT}/token"])
    assert "STO-R009" in answer.words
    assert visitor.press(ACCOUNT, f"{ACCOUNT}/remove").status == 303


def test_session_makes_no_token_over_grpc(served: ConsoleBench) -> None:
    with served.bench.store.write() as connection:
        now = served.bench.clock()
        session = tokens.open_session(connection, served.bench.token, now)
        owner = tokens.find_owner(connection, session, now)
    with pytest.raises(tokens.DeniedError, match="STO-R002"):
        tokens.check_own(owner, "IssueToken")
