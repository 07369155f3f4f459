"""What is counted of calls, and that strangers cannot make series."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoilo.server.watching.calls import (
    BOUNDS_S,
    ROUTES,
    CallMeter,
    MeteredApp,
    route_of,
)


def test_observations_fall_into_their_buckets() -> None:
    meter = CallMeter()
    for took in (0.0, BOUNDS_S[0], 0.003, 99.0):
        meter.note("PollTask", "OK", took)
    value = meter.read()["PollTask", "OK"]
    assert value.counts[:2] == (2, 1)
    assert value.counts[-1] == 1
    assert value.total == pytest.approx(99.005)


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

    meter = CallMeter()
    metered = MeteredApp(app, meter)
    asyncio.run(call(metered, "/upload/x"))
    with pytest.raises(RuntimeError):
        asyncio.run(call(metered, "/sched"))
    assert sorted(meter.read()) == [("sched", "none"), ("upload", "4xx")]
