"""One's own account over the wire: no data directory, only a connection file."""

from __future__ import annotations

import asyncio
import datetime as dt
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from stoilo.cli.main import main
from stoilo.server.api.grpc_server import bind_grpc
from stoilo.server.data_directory import ConnectionFile
from stoilo.server.operations import access, accounts
from stoilo.server.tls import ensure_tls
from tests.support.serverbench import Bench, make_bench

Run = Callable[..., dict[str, Any]]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return make_bench(tmp_path)


@pytest.fixture
def connection(bench: Bench, tmp_path: Path) -> Iterator[Path]:
    """Return Ada's connection file to a server that answers meanwhile."""
    tls = ensure_tls(tmp_path / "tls", dt.datetime.now(dt.UTC))
    loop, ready = asyncio.new_event_loop(), threading.Event()
    ports, ended = [], asyncio.Event()

    async def serve() -> None:
        service = bench.server.service
        own = bench.server.account_service
        server, port = bind_grpc(service, "127.0.0.1:0", tls, accounts=own)
        await server.start()
        ports.append(port)
        ready.set()
        await ended.wait()
        await server.stop(None)

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    assert ready.wait(60)
    ca = tls.ca.decode()
    made = ConnectionFile(f"localhost:{ports[0]}", "http://x/", None, bench.token, ca)
    made.write(tmp_path / "ada.json")
    yield tmp_path / "ada.json"
    loop.call_soon_threadsafe(ended.set)
    thread.join(60)
    loop.close()


@pytest.fixture
def run(connection: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    def inner(words: str, *more: str, place: Path = connection) -> dict[str, Any]:
        asked = ["account", *words.split(), "--connection", str(place), *more, "--json"]
        assert main(asked) == 0
        return dict(json.loads(capsys.readouterr().out))

    return inner


def test_holder_sees_what_he_may_use_and_has_used(bench: Bench, run: Run) -> None:
    asyncio.run(bench.submit())
    accounts.join_group(bench.store, "ada", "bio", bench.clock())
    accounts.allow(
        bench.store, "ada", {"open_tasks": 40, "share": 2}, bench.clock(), group=False
    )
    found = run("show")
    assert (found["name"], found["group"], found["suspended_at"]) == ("ada", "bio", 0)
    assert found["uses"][0] == {
        "whose": "",
        "what": "unfinished tasks",
        "used": 1,
        "most": 40,
    }
    assert bench.token not in json.dumps(found)


def test_holder_makes_a_token_uses_it_and_ends_it(
    run: Run, connection: Path, tmp_path: Path
) -> None:
    place = tmp_path / "laptop.json"
    run("token new", "--to", str(place), "--label", "laptop", "--days", "5")
    assert place.stat().st_mode & 0o777 == 0o600
    _, made = run("show", place=place)["tokens"]
    assert made["name"] == "laptop"
    assert run("token revoke", "--token", made["token"]) == {"revoked": 1}
    assert main(["account", "show", "--connection", str(place)]) != 0
    assert run("token revoke", "--token", made["token"]) == {"revoked": 0}
    assert run("show", place=connection)["name"] == "ada"


def test_token_that_is_not_ones_own_is_not_found(
    bench: Bench, run: Run, connection: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (own,) = run("show")["tokens"]
    words = ["account", "token", "revoke", "--connection", str(connection)]
    assert main([*words, "--token", own["token"][::-1]]) != 0
    assert "STO-R003" in capsys.readouterr().err
    assert access.list_tokens(bench.store, "ada")[0].revoked_at == 0


def test_suspended_holder_sees_it_and_revokes_and_makes_nothing(
    bench: Bench, run: Run, connection: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    accounts.suspend(bench.store, "ada", "mines coins", bench.clock())
    found = run("show")
    assert found["suspended_at"] == bench.clock()
    assert "mines coins" not in json.dumps(found)
    words = ["account", "token", "new", "--connection", str(connection)]
    assert main([*words, "--to", str(connection.with_name("x.json"))]) != 0
    assert "STO-R009" in capsys.readouterr().err
    assert run("token revoke", "--token", found["tokens"][0]["token"])["revoked"] == 1


def test_holder_makes_only_so_many_tokens(
    run: Run, connection: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = connection.with_name("x.json")
    for number in range(access.MOST_OWN - 1):
        run("token new", "--to", str(place), "--label", str(number), "--days", "1")
    words = ["account", "token", "new", "--connection", str(connection)]
    assert main([*words, "--to", str(place)]) != 0
    assert "up to 16 tokens" in capsys.readouterr().err
