"""Who calls: the one who connects, or the one of whom a trusted proxy says so."""

import asyncio
from pathlib import Path

import pytest
import urllib3
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from stoilo.core.listen import listen
from stoilo.server.config import ServerConfig
from stoilo.server.http.web_server import (
    stop_web,
    wait_until_started,
    web_server,
)


async def caller(request: Request) -> PlainTextResponse:
    assert request.client is not None
    return PlainTextResponse(request.client.host)


async def seen_by_server(config: ServerConfig) -> str:
    app = Starlette(routes=[Route("/", caller)])
    listener, web = listen("127.0.0.1:0"), web_server(config, app)
    serving = asyncio.create_task(web.serve(sockets=[listener]))
    await wait_until_started(web, serving)
    url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
    headers = {"X-Forwarded-For": "192.0.2.7"}
    answer = await asyncio.to_thread(urllib3.request, "GET", url, headers=headers)
    await stop_web(web, serving)
    listener.close()
    return answer.data.decode()


@pytest.mark.parametrize(
    ("proxy", "seen"),
    [("", "127.0.0.1"), ("127.0.0.1", "192.0.2.7"), ("192.0.2.1", "127.0.0.1")],
)
def test_only_a_trusted_proxy_says_who_calls(
    tmp_path: Path, proxy: str, seen: str
) -> None:
    config = ServerConfig(data=tmp_path, trusted_proxy=proxy)
    assert asyncio.run(seen_by_server(config)) == seen
