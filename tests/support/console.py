"""The console of a server among stand-ins, on a port, and a visitor with a cookie jar."""

from __future__ import annotations

import asyncio
import contextlib
import html
import http.client
import re
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast
from urllib.parse import urlencode

import uvicorn
from starlette.applications import Starlette

from stoilo.server.admission import tokens
from stoilo.server.app.task_server import ServerPlace
from stoilo.server.config import ServerConfig
from stoilo.server.engines.interface import EngineFigures
from stoilo.server.watching.metrics import Sources
from stoilo.server.watching.readiness import Check, LogFigures, Readiness
from stoilo.signer.ceremony.release_status import judge_release
from stoilo.signer.roles import RoleExpiry
from stoilo.web.console.routes import Console
from stoilo.web.routes import audit_pages

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator

    from starlette.types import Receive, Scope, Send

    from stoilo.server.engines.embedded.accounts.roster import Roster
    from tests.support.serverbench import Bench

VOLUNTEERS = "/console/volunteer/sign-in"
ResultT = TypeVar("ResultT")
FORM = re.compile(r'<form action="([^"]+)" method="post"[^>]*>(.*?)</form>', re.DOTALL)
FIELD = re.compile(r'<input type="hidden" name="([^"]+)" value="([^"]*)">')


def run(work: Coroutine[Any, Any, ResultT]) -> ResultT:
    """Return what `work` comes to, in a thread: a browser's loop runs in this one."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, work).result()


@dataclass(frozen=True)
class Answer:
    """What came back for one request."""

    status: int
    headers: http.client.HTTPMessage
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def words(self) -> str:
        """What a reader of a page reads."""
        plain = html.unescape(re.sub(r"<[^>]*>", " ", self.text))
        return re.sub(r" (?=[,:.;])", "", re.sub(r"\s+", " ", plain))

    def forms(self) -> dict[str, dict[str, str]]:
        """Return the page's forms: hidden fields by the action."""
        return {
            path: {name: html.unescape(value) for name, value in FIELD.findall(inner)}
            for path, inner in FORM.findall(self.text)
        }


@dataclass
class Visitor:
    """A browser as far as a server sees one: a cookie jar, and an origin for forms."""

    url: str
    cookies: dict[str, str] = field(default_factory=dict)
    seen: list[str] = field(default_factory=list)  # Set-Cookie headers
    home: str = "/console/"

    def ask(
        self, path: str, method: str = "GET", body: bytes | None = None, **more: str
    ) -> Answer:
        headers = {key.replace("_", "-"): value for key, value in more.items()}
        if self.cookies:
            headers["cookie"] = "; ".join(f"{k}={v}" for k, v in self.cookies.items())
        host = self.url.removeprefix("http://").rstrip("/")
        connection = http.client.HTTPConnection(host, timeout=60)
        with contextlib.closing(connection):
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            found = Answer(answer.status, answer.headers, answer.read())
        for text in found.headers.get_all("set-cookie") or ():
            self.seen.append(text)
            name, _, value = text.partition(";")[0].partition("=")
            self.cookies[name] = value.strip('"')
            if not self.cookies[name]:
                del self.cookies[name]
        return found

    def post(self, path: str, fields: dict[str, str] | bytes, **more: str) -> Answer:
        body = fields if isinstance(fields, bytes) else urlencode(fields).encode()
        headers = {
            "content_type": "application/x-www-form-urlencoded",
            "origin": self.url.rstrip("/"),
        }
        return self.ask(path, "POST", body, **(headers | more))

    def press(self, page: str, action: str, **fields: str) -> Answer:
        """Send the form with this action that stands on `page`."""
        return self.post(action, self.ask(page).forms()[action] | fields)

    def sign_in(self, secret: str) -> Self:
        answer = self.press(f"/console/sign-in?link={secret}", "/console/sign-in")
        assert answer.status == 303, answer.words
        return self


@dataclass
class ConsoleBench:
    """A console on a port, and the server behind it."""

    bench: Bench
    console: Console
    url: str
    steady: SimpleNamespace  # `now`, s: the console's clock that is never set

    def link(self, name: str = "ada", role: str = "researcher") -> str:
        with self.bench.store.write() as connection:
            return tokens.issue_link(
                connection, name, tokens.Role(role), self.bench.clock()
            )

    def visitor(self, name: str = "ada", role: str = "researcher") -> Visitor:
        """Return somebody who has signed in by a link; a minute passes for each."""
        self.steady.now += 60  # else many are too many
        return Visitor(self.url).sign_in(self.link(name, role))

    def reviewer(self, name: str = "ann") -> Visitor:
        """Return a reviewer who has signed in with the token of his connection file."""
        self.steady.now += 60
        with self.bench.store.write() as connection:
            role, now = tokens.Role.REVIEWER, self.bench.clock()
            token = tokens.issue_token(connection, name, role, now)
        return Visitor(self.url, home="/console/reviews").sign_in(token)

    def volunteer(self, email: str = "vera@example.org") -> Visitor:
        """Return a volunteer who has signed in with the strong key of an account."""
        self.steady.now += 60
        accounts = self.console.volunteers.roster.accounts
        key, page = accounts.ensure(email, self.bench.clock()).key, VOLUNTEERS
        visitor = Visitor(self.url, home="/console/volunteer")
        answer = visitor.press(page, page, key=key)
        assert answer.status == 303, answer.words
        return visitor

    def nobody(self) -> Visitor:
        return Visitor(self.url)


def make_sources(bench: Bench) -> Sources:
    """Return figures of a quiet server."""
    figures = EngineFigures(3, {("unsent", "none"): 2}, 5, 0, 0, 0, 1, {"1d": 4}, 0)
    role = RoleExpiry("root", 1, bench.clock() + 86_400, "urgent")
    return Sources(
        store=bench.store,
        engine=cast("Any", SimpleNamespace(figures=lambda: figures)),
        log=lambda: LogFigures(9, 7, 1.5),
        pipeline=bench.server.pipeline,
        release=lambda: judge_release((role,), bench.clock()),
        epoch_rate=lambda: 60,
        readiness=lambda: Readiness((Check("database"), Check("disk", "full"))),
        places={"data": bench.directory},
        clock=bench.clock,
        validators=lambda: 0,
    )


class Door:
    """One port of the loopback for many consoles, one after another."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._app = Starlette()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)

    def show(
        self,
        bench: Bench,
        roster: Roster | None = None,
        **settings: Any,  # of the server, beside the usual
    ) -> ConsoleBench:
        """Show the console of `bench` from now on."""
        steady = SimpleNamespace(now=1000.0)
        config = ServerConfig(
            bench.directory, database="mysql://stoilo:secret@db/x", **settings
        )
        watch = cast("Any", SimpleNamespace(sources=make_sources(bench)))
        place = ServerPlace(
            bench.directory, self.url, bench.server, watch, config, roster
        )
        console = Console(place, lambda: steady.now)
        self._app = Starlette(routes=[*console.routes(), *audit_pages(place)])
        return ConsoleBench(bench, console, self.url, steady)


@contextlib.contextmanager
def open_door() -> Iterator[Door]:
    """Listen on a port of the loopback."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        door = Door(f"http://127.0.0.1:{listener.getsockname()[1]}/")
        config = uvicorn.Config(door, log_level="warning", lifespan="off", ws="none")
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        while not server.started:
            time.sleep(0.01)
        try:
            yield door
        finally:
            server.should_exit = True
            thread.join()
