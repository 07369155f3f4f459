"""The console's routes below ``/console/``: one table, one way in, one way out.

Every page asks as a call of its visitor would: whose token, which role, which scope, then
the function that gRPC has behind the same call. What belongs to another account is not
found. Answers are never cached; what cannot be answered is a page with a code.
"""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass
from functools import partial
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, Final, cast

import anyio
import anyio.to_thread
from starlette.responses import Response
from starlette.routing import Route

from stoilo.core.errors import StoiloError
from stoilo.server.admission import tokens
from stoilo.web.console import wording
from stoilo.web.console.asking import HEADERS, Asked, go
from stoilo.web.console.live import SCRIPTED, Parts
from stoilo.web.console.operation import Operation
from stoilo.web.console.progress import Progress
from stoilo.web.console.research import Research
from stoilo.web.console.sessions import Sessions, Visitor
from stoilo.web.pages import load_assets, open_templates

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from starlette.requests import Request

    from stoilo.server.app.task_server import ServerPlace

AT_ONCE: Final = 4  # pages made side by side: the project's own calls come first
_STATUS: Final = {
    "STO-R001": 401,
    "STO-R003": 404,
    "STO-E012": 413,
    "STO-E068": 429,
}
_BY_FAMILY: Final = {"usage": 400, "policy": 409, "denied": 403, "trust": 400}


@dataclass(frozen=True, slots=True)
class Page:
    """One route. A handler gets `Asked` and returns an answer, or what to wait for."""

    path: str
    handler: Callable[[Asked], Response | Awaitable[Response]]
    call: str  # whose permission it needs, `Operate` for an operator's; empty: nobody's
    method: str = "GET"
    live: bool = False  # a part of it refreshes itself


def console_pages(place: ServerPlace) -> list[Route]:
    """Return the console's routes, for `run_server`."""
    return Console(place).routes()


class Console:
    """The pages of one server.

    Attributes:
        pages: every route but those for nobody, in one table.
    """

    def __init__(
        self, place: ServerPlace, steady: Callable[[], float] = time.monotonic
    ) -> None:
        clock = place.watch.sources.clock
        self.sessions = Sessions(place.tasks.store, place.url, clock, steady)
        self._templates = open_templates(place.url, load_assets())
        self._templates.globals.update(words=wording)
        self._turns = anyio.CapacityLimiter(AT_ONCE)
        parts, load = Parts(steady), self._templates.get_template
        research, operation = Research(place.tasks, load), Operation(place)
        progress = Progress(place.tasks, parts, load, clock)
        task = "/console/task/{task_id}"
        self.pages = (
            Page("/console/", research.tasks, "ListTasks"),
            Page("/console/labels", progress.labels, "ListTasks", live=True),
            Page("/console/label/{name:path}", progress.label, "ListTasks", live=True),
            Page(task, research.task, "PollTask", live=True),
            Page(f"{task}/source.py", research.source, "PollTask"),
            Page(f"{task}/result/{{name}}", research.result, "DownloadBlob"),
            Page(f"{task}/cancel", research.cancel, "CancelTask", "POST"),
            Page(f"{task}/resubmit", research.resubmit, "CreateTask", "POST"),
            Page("/console/project", operation.project, "Operate"),
            Page("/console/hosts", operation.hosts, "Operate"),
            Page("/console/accounts", operation.accounts, "Operate"),
            Page("/console/settings", operation.settings, "Operate"),
            Page("/console/sign-out", self._sign_out, "", "POST"),
        )

    def routes(self) -> list[Route]:
        """Return starlette's routes."""
        return [
            Route("/console/sign-in", self._sign_in_page, methods=["GET"]),
            Route("/console/sign-in", self._sign_in, methods=["POST"]),
            *(
                Route(one.path, partial(self._serve, one), methods=[one.method])
                for one in self.pages
            ),
        ]

    async def _serve(self, page: Page, request: Request) -> Response:
        """Answer for one page: who, whether he may, then what."""
        if page.method == "GET":  # in one turn: what refreshes itself comes often
            found = await self._in_turn(partial(self._show, page), request)
            return cast("Response", found)
        visitor = None
        try:
            visitor = await self._in_turn(partial(self._admit, page), request)
            fields = await self.sessions.read_form(request, visitor.token)
            self.sessions.count_form(visitor.owner)
            asked = Asked(request, visitor, fields, partial(self._render, visitor))
            found = await self._in_turn(page.handler, asked)
            answer: Response = await found if isawaitable(found) else found
        except StoiloError as error:
            answer = self._problem(error, visitor, request)
        return answer

    def _show(self, page: Page, request: Request) -> Response:
        live = page.live and request.headers.get("hx-request") == "true"
        visitor = None
        try:
            visitor = self._admit(page, request, by_itself=live)
            headers = SCRIPTED if page.live else HEADERS
            render = partial(self._render, visitor, headers=headers)
            answer = page.handler(Asked(request, visitor, {}, render, live))
        except StoiloError as error:
            if live:  # nobody would read a page
                return Response(status_code=status_of(error), headers=HEADERS)
            return self._problem(error, visitor, request)
        return cast("Response", answer)

    def _admit(
        self, page: Page, request: Request, *, by_itself: bool = False
    ) -> Visitor:
        visitor = self.sessions.find(request, by_itself=by_itself)
        is_operators = page.call == "Operate"
        check = tokens.check_operator if is_operators else tokens.check_permission
        if page.call:
            check(visitor.owner, page.call)
        return visitor

    async def _in_turn(self, work: Callable[[Any], Any], value: object) -> Any:  # noqa: ANN401
        return await anyio.to_thread.run_sync(work, value, limiter=self._turns)

    async def _sign_in_page(self, request: Request) -> Response:
        """Show the form; that a link's address was fetched changes nothing."""
        return self._ask_to_sign_in(request.query_params.get("link", "")[:256])

    def _ask_to_sign_in(
        self, link: str = "", problem: str = "", status: int = 200
    ) -> Response:
        cookie = secrets.token_urlsafe(16)
        stamp = self.sessions.stamp(cookie)
        page = self._render(
            None,
            "console/sign_in.html",
            status,
            link=link,
            problem=problem,
            form=stamp,
        )
        self.sessions.keep(page, self.sessions.form_cookie, cookie)
        return page

    async def _sign_in(self, request: Request) -> Response:
        """Open a session for a link or token; what was wrong is not told apart."""
        cookie = request.cookies.get(self.sessions.form_cookie, "")[:64]
        address = request.client.host if request.client else ""
        try:
            fields = await self.sessions.read_form(request, cookie)
            secret = fields.get("secret", "")
            token = await self._in_turn(
                lambda given: self.sessions.sign_in(given, address), secret
            )
        except StoiloError as error:
            said = wording.describe_problem(error)
            return self._ask_to_sign_in(problem=said, status=status_of(error))
        answer = go("/console/")
        self.sessions.keep(answer, self.sessions.cookie, token)
        self.sessions.keep(answer, self.sessions.form_cookie, "")
        return answer

    def _sign_out(self, asked: Asked) -> Response:
        self.sessions.sign_out(asked.visitor)
        answer = go("/console/sign-in")
        self.sessions.keep(answer, self.sessions.cookie, "")
        return answer

    def _problem(
        self, error: StoiloError, visitor: Visitor | None, request: Request
    ) -> Response:
        if visitor is None and error.code == "STO-R001":
            # Only a page that was asked for by hand: a form's answer has no use for one.
            said = wording.describe_problem(error) if request.cookies else ""
            return self._ask_to_sign_in(problem=said, status=401)
        return self._render(
            visitor, "console/problem.html", status_of(error), error=error
        )

    def _render(
        self,
        visitor: Visitor | None,
        template: str,
        status: int = 200,
        headers: Mapping[str, str] = HEADERS,
        **values: object,
    ) -> Response:
        owner = visitor.owner if visitor else None
        form = self.sessions.stamp(visitor.token) if visitor else ""
        common = {"owner": owner, "form": form}
        html = self._templates.get_template(template).render(common | values)
        return Response(html, status, headers, "text/html; charset=utf-8")


def status_of(error: StoiloError) -> int:
    """Return the HTTP status that goes with one of our errors."""
    return _STATUS.get(error.code, _BY_FAMILY.get(error.family, 503))
