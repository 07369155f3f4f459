"""Who sees what: nobody without the operator's token sees a figure or a reason."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.types import ASGIApp, Message

from stoilo.core.errors import DeniedError
from stoilo.server.admission import tokens
from stoilo.server.db.store import Store
from stoilo.server.watching.readiness import Check, Readiness
from stoilo.server.watching.watch import (
    METRICS_SCOPE,
    may_watch,
    watch_app,
    watch_routes,
)

NOT_READY = Readiness((Check("disk", "5 bytes are free"), Check("log")))


@dataclass
class Answer:
    status_code: int = 0
    body: bytes = b""

    def json(self) -> dict:
        return json.loads(self.body)


class Caller:
    """GETs from an application, without a socket."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    def get(self, path: str, headers: dict[str, str] | None = None) -> Answer:
        answer = Answer()

        async def receive() -> Message:
            return {"type": "http.request", "body": b""}

        async def send(message: Message) -> None:
            answer.status_code = message.get("status", answer.status_code)
            answer.body += message.get("body", b"")

        pairs = [(k.lower().encode(), v.encode()) for k, v in (headers or {}).items()]
        scope = {"type": "http", "method": "GET", "path": path, "headers": pairs}
        scope |= {"query_string": b"", "root_path": ""}
        asyncio.run(self._app(scope, receive, send))
        return answer


class Text:
    def render(self) -> bytes:
        return b"stoilo_ready 0\n"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    found = Store.open(f"sqlite:///{tmp_path / 'server.sqlite'}")
    yield found
    found.close()


def token(
    store: Store, role: tokens.Role, scope: str = "*", lifetime_s: int = 60
) -> str:
    with store.write() as connection:
        return tokens.issue_token(
            connection, "p", role, int(time.time()), scope=scope, lifetime_s=lifetime_s
        )


@pytest.fixture
def public(store: Store) -> Caller:
    routes = watch_routes(Text(), lambda: NOT_READY, may_watch(store))
    return Caller(Starlette(routes=list(routes)))


def bearer(text: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {text}"}


def test_health_says_only_that_it_lives(public: Caller) -> None:
    assert public.get("/healthz").json() == {"alive": True}


def test_stranger_learns_ready_or_not_and_no_reason(public: Caller) -> None:
    answer = public.get("/readyz")
    assert answer.status_code == 503
    assert answer.json() == {"ready": False}


def test_stranger_finds_no_metrics(public: Caller) -> None:
    assert public.get("/metrics").status_code == 404


@pytest.mark.parametrize("text", ["", "x", "sto_guessed", "sto_" + "a" * 9999])
def test_guessed_token_opens_nothing(public: Caller, text: str) -> None:
    assert public.get("/metrics", headers=bearer(text)).status_code == 404


@pytest.mark.parametrize(
    ("role", "scope", "lifetime_s", "status"),
    [
        (tokens.Role.OPERATOR, METRICS_SCOPE, 60, 200),
        (tokens.Role.OPERATOR, "*", 60, 200),
        (tokens.Role.OPERATOR, METRICS_SCOPE, -1, 404),
        (tokens.Role.OPERATOR, "PollTask", 60, 404),
        (tokens.Role.RESEARCHER, "*", 60, 404),
        (tokens.Role.REVIEWER, "*", 60, 404),
        (tokens.Role.VOLUNTEER, METRICS_SCOPE, 60, 404),
    ],
)
def test_only_the_operator_reads_figures(
    public, store, role, scope, lifetime_s, status
) -> None:
    given = bearer(token(store, role, scope, lifetime_s))
    assert public.get("/metrics", headers=given).status_code == status


def test_operator_reads_reasons(public: Caller, store: Store) -> None:
    given = bearer(token(store, tokens.Role.OPERATOR, METRICS_SCOPE))
    checks = public.get("/readyz", headers=given).json()["checks"]
    assert checks[0] == {"name": "disk", "ok": False, "reason": "5 bytes are free"}


def test_token_for_metrics_calls_nothing_else(store: Store) -> None:
    made = token(store, tokens.Role.OPERATOR, METRICS_SCOPE)
    with store.read() as connection:
        owner = tokens.find_owner(connection, made, 0)
    with pytest.raises(DeniedError, match="STO-R002"):
        tokens.check_permission(owner, "CreateTask")


def test_watch_address_asks_for_no_token() -> None:
    client = Caller(watch_app(Text(), lambda: NOT_READY))
    assert client.get("/metrics").status_code == 200
    assert "checks" in client.get("/readyz").json()


def test_database_that_is_away_denies(store: Store) -> None:
    given = token(store, tokens.Role.OPERATOR, METRICS_SCOPE)
    allowed = may_watch(store)
    assert allowed(given)
    store.close()
    with store.write() as connection:
        connection.exec_driver_sql("DROP TABLE token")
    assert not allowed(given)
