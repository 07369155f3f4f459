"""What is counted of calls, and that strangers cannot make series."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoilo.server.watching.calls import ROUTES, MeteredApp, route_of
from stoilo.server.watching.metrics import call_times


@pytest.mark.parametrize(
    ("path", "prefix", "name"),
    [
        ("/", "/", "master"),
        ("/sched", "/", "sched"),
        ("/download/abc", "/", "download"),
        ("/stoilo/upload/abc", "/stoilo/", "upload"),
        ("/whatever/../metrics", "/", "other"),
    ],
)
def test_routes_are_named(path: str, prefix: str, name: str) -> None:
    assert route_of(path, prefix) == name


@given(st.text(max_size=40))
def test_any_path_has_a_name_of_ours(path: str) -> None:
    assert route_of(path) in {*ROUTES.values(), "other"}


async def call(app: MeteredApp, path: str) -> None:
    async def receive() -> Any:
        return {"type": "http.request"}

    async def send(message: Any) -> None:
        del message

    await app({"type": "http", "path": path}, receive, send)


def test_calls_that_fail_are_counted_too() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        if scope["path"] == "/sched":
            raise RuntimeError
        await send({"type": "http.response.start", "status": 404})

    times = call_times("stoilo_http_seconds")
    metered = MeteredApp(app, times)
    asyncio.run(call(metered, "/upload/x"))
    with pytest.raises(RuntimeError):
        asyncio.run(call(metered, "/sched"))
    (family,) = times.collect()
    counted = {
        tuple(one.labels.values())
        for one in family.samples
        if one.name.endswith("count")
    }
    assert counted == {("sched", "none"), ("upload", "4xx")}
