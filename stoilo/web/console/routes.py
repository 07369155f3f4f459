"""The console's routes below ``/console/``: one table, one way in, one way out.

Every page asks as a call of its visitor would: whose token, which role, which scope, then
the function that gRPC has behind the same call. What belongs to another account is not
found. Answers are never cached; what cannot be answered is a page with a code.
"""

from __future__ import annotations

import re
import secrets
import time
from dataclasses import dataclass
from functools import partial
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import quote

import anyio
import anyio.to_thread
from starlette.responses import Response
from starlette.routing import Route

from stoilo.core.errors import StoiloError
from stoilo.server.admission import tokens
from stoilo.web.console import wording
from stoilo.web.console.account import Account
from stoilo.web.console.asking import HEADERS, WITH_SCRIPT, Asked, go
from stoilo.web.console.entrances import Entrances
from stoilo.web.console.live import AGAIN, SCRIPTED, Pace, Parts
from stoilo.web.console.operation import Operation
from stoilo.web.console.progress import Progress
from stoilo.web.console.research import Research
from stoilo.web.console.reviewing import Reviewing
from stoilo.web.console.sessions import Sessions, Visitor
from stoilo.web.console.tickets import Tickets
from stoilo.web.console.volunteering import CALL, PAGE, SIGN_IN, Volunteering
from stoilo.web.language import FOLDER, Languages
from stoilo.web.pages import load_assets, open_templates

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from starlette.requests import Request

    from stoilo.server.app.task_server import ServerPlace
    from stoilo.server.db.records import Owner

AT_ONCE: Final = 4  # pages made side by side: the project's own calls come first
_STATUS: Final = {
    "STO-R001": 401,
    "STO-R003": 404,
    "STO-R027": 404,
    "STO-E012": 413,
    "STO-E068": 429,
}
# Pages that notebooks lead to, as they stand in an address
_LED_TO: Final = re.compile(r"/console/(task|label)/[A-Za-z0-9%._~/-]{0,1600}")
_WITH_FILE: Final = frozenset({"console/account.html", "console/sign_in.html"})
_BY_FAMILY: Final = {"usage": 400, "policy": 409, "denied": 403, "trust": 400}
_CHECKS: Final[dict[str, Callable[[Owner, str], None]]] = {
    "Operate": tokens.check_operator,
    "ListReviews": tokens.check_reviewer,
    "GetReview": tokens.check_reviewer,
}


@dataclass(frozen=True, slots=True)
class Page:
    """One route. A handler gets `Asked` and returns an answer, or what to wait for."""

    path: str
    handler: Callable[[Asked], Response | Awaitable[Response]]
    # whose permission it needs, a key of `_CHECKS` for a role's own; empty: nobody's
    call: str
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
        self._languages = Languages(place.data / FOLDER)
        self._dispatcher = place.config.dispatcher
        self._templates.globals.update(words=wording, dispatcher=self._dispatcher)
        self._turns = anyio.CapacityLimiter(AT_ONCE)
        self._pace = Pace(steady)
        parts, load = Parts(steady), self._templates.get_template
        research, operation = Research(place.tasks, load), Operation(place)
        progress = Progress(place.tasks, parts, load, clock)
        tickets = Tickets(steady)
        self.entrances = Entrances(place, self.sessions, tickets, steady)
        account = Account(place, tickets, self.entrances.ceremonies)
        reviewing = Reviewing(place.tasks)
        volunteering = Volunteering(place, self.sessions, steady)
        self.volunteers, self._stock = volunteering.volunteers, place.roster is None
        task, review = "/console/task/{task_id}", "/console/review/{task_id}"
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
            Page("/console/traffic", self._traffic, "Operate"),
            Page("/console/accounts", operation.accounts, "Operate"),
            Page("/console/settings", operation.settings, "Operate"),
            Page("/console/account", account.page, ""),
            Page("/console/account/passkey", account.add_passkey, "", "POST"),
            Page("/console/account/token", account.add_token, "", "POST"),
            Page("/console/account/remove", account.remove, "", "POST"),
            Page("/console/reviews", reviewing.queue, "ListReviews"),
            Page(review, reviewing.review, "GetReview"),
            Page(f"{review}/folder.zip", reviewing.folder, "GetReview"),
            Page(PAGE, volunteering.show, CALL),
            Page(f"{PAGE}/leave", volunteering.leave, CALL, "POST"),
            Page(f"{PAGE}/delete", volunteering.delete, CALL, "POST"),
            Page(f"{PAGE}/sign-out", volunteering.sign_out, CALL, "POST"),
            Page("/console/sign-out", self._sign_out, "", "POST"),
        )

    def routes(self) -> list[Route]:
        """Return starlette's routes."""
        found = [
            Route("/console/sign-in", self._sign_in_page, methods=["GET"]),
            *(
                Route(path, partial(self._sign_in, way), methods=["POST"])
                for path, way in (
                    ("/console/sign-in", self._by_secret),
                    ("/console/sign-in/passkey", self.entrances.by_passkey),
                    (SIGN_IN, self._by_volunteer),
                )
            ),
            Route(SIGN_IN, self._sign_in_page, methods=["GET"]),
            *self.entrances.routes(self._refuse, self._let_in),
            *(
                Route(one.path, partial(self._serve, one), methods=[one.method])
                for one in self.pages
            ),
        ]
        return self._languages.speak(found)

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
            visitor = self._find(page, request, by_itself=live)
            home = wording.home_of(visitor.owner.role)
            if page.path == "/console/" != home:
                return go(home)
            _check(page, visitor)
            headers = SCRIPTED if page.live else None
            render = partial(self._render, visitor, headers=headers)
            answer = page.handler(Asked(request, visitor, {}, render, live))
            if live:
                cast("Response", answer).headers[AGAIN] = f"{self._pace.next_s():.1f}"
        except StoiloError as error:
            if live:  # nobody would read a page
                return Response(status_code=status_of(error), headers=HEADERS)
            return self._problem(error, visitor, request)
        return cast("Response", answer)

    def _admit(self, page: Page, request: Request) -> Visitor:
        visitor = self._find(page, request)
        _check(page, visitor)
        return visitor

    def _find(
        self, page: Page, request: Request, *, by_itself: bool = False
    ) -> Visitor:
        if page.call == CALL:
            return self.volunteers.find(request)
        return self.sessions.find(request, by_itself=by_itself)

    async def _in_turn(self, work: Callable[[Any], Any], value: object) -> Any:  # noqa: ANN401
        return await anyio.to_thread.run_sync(work, value, limiter=self._turns)

    async def _sign_in_page(self, request: Request) -> Response:
        """Show the form; that a link's address was fetched changes nothing."""
        link = request.query_params.get("link", "")[:256]
        return self._ask_to_sign_in(request, link)

    def _ask_to_sign_in(
        self, request: Request, link: str = "", problem: str = "", status: int = 200
    ) -> Response:
        to = quote(request.scope["path"])
        cookie = secrets.token_urlsafe(16)
        stamp = self.sessions.stamp(cookie)
        page = self._render(
            None,
            f"console/{'volunteer_' * _of_volunteers(request)}sign_in.html",
            status,
            link=link,
            problem=problem,
            to=to if _LED_TO.fullmatch(to) else "",
            form=stamp,
            ways=self.entrances.offer(cookie),
            stock=self._stock,
        )
        self.sessions.keep(page, self.sessions.form_cookie, cookie)
        return page

    def _by_secret(self, _cookie: str, address: str, fields: Mapping[str, str]) -> str:
        return self.sessions.sign_in(fields.get("secret", ""), address)

    def _by_volunteer(
        self, _cookie: str, address: str, fields: Mapping[str, str]
    ) -> str:
        return self.volunteers.sign_in(fields, address)

    async def _sign_in(
        self, way: Callable[[str, str, Mapping[str, str]], str], request: Request
    ) -> Response:
        """Open a session by one way; what was wrong is not told apart."""
        cookie = request.cookies.get(self.sessions.form_cookie, "")[:64]
        address = request.client.host if request.client else ""
        try:
            fields = await self.sessions.read_form(request, cookie)
            token = await self._in_turn(partial(way, cookie, address), fields)
        except StoiloError as error:
            return self._refuse(error, request)
        is_theirs = _of_volunteers(request)
        answer = go(PAGE if is_theirs else "/console/")
        if not is_theirs and _LED_TO.fullmatch(fields.get("to", "")):
            answer.headers["location"] = fields["to"]
        guard = self.volunteers if is_theirs else self.sessions
        self.sessions.keep(answer, guard.cookie, token)
        self.sessions.keep(answer, self.sessions.form_cookie, "")
        return answer

    def _refuse(self, error: StoiloError, request: Request) -> Response:
        said = wording.describe_problem(error)
        return self._ask_to_sign_in(request, problem=said, status=status_of(error))

    def _let_in(self, token: str) -> Response:
        answer = self._go_on("/console/")
        self.sessions.keep(answer, self.sessions.cookie, token)
        return answer

    def _go_on(self, to: str) -> Response:
        """Return a page that goes on by itself: the cookie is not sent from elsewhere."""
        answer = self._render(None, "console/signed_in.html", to=to)
        answer.headers["refresh"] = f"0; url={to}"
        return answer

    def _traffic(self, asked: Asked) -> Response:
        from stoilo.web.console.traffic import show  # noqa: PLC0415 - loads numpy

        return show(asked, self._dispatcher)

    def _sign_out(self, asked: Asked) -> Response:
        self.sessions.sign_out(asked.visitor)
        answer = go("/console/sign-in")
        self.sessions.keep(answer, self.sessions.cookie, "")
        return answer

    def _problem(
        self, error: StoiloError, visitor: Visitor | None, request: Request
    ) -> Response:
        if visitor is None and error.code == "STO-R001":
            to = quote(request.scope["path"])
            from_elsewhere = request.headers.get("sec-fetch-site") == "cross-site"
            if from_elsewhere and request.method == "GET" and _LED_TO.fullmatch(to):
                return self._go_on(to)
            # Only a page that was asked for by hand: a form's answer has no use for one.
            said = wording.describe_problem(error) if request.cookies else ""
            return self._ask_to_sign_in(request, problem=said, status=401)
        return self._render(
            visitor, "console/problem.html", status_of(error), error=error
        )

    def _render(
        self,
        visitor: Visitor | None,
        template: str,
        status: int = 200,
        headers: Mapping[str, str] | None = None,
        **values: object,
    ) -> Response:
        owner = visitor.owner if visitor else None
        form = self.sessions.stamp(visitor.token) if visitor else ""
        common = {"owner": owner, "form": form}
        html = self._templates.get_template(template).render(common | values)
        own = HEADERS | WITH_SCRIPT if template in _WITH_FILE else HEADERS
        return Response(html, status, headers or own, "text/html; charset=utf-8")


def _check(page: Page, visitor: Visitor) -> None:
    if page.call not in {"", CALL}:  # whose session it is was all there is to ask
        check = _CHECKS.get(page.call, tokens.check_permission)
        check(visitor.owner, page.call)


def _of_volunteers(request: Request) -> bool:
    """Say whether a page is for volunteers, who sign in by a door of their own."""
    return f"{request.url.path}/".startswith(f"{PAGE}/")


def status_of(error: StoiloError) -> int:
    """Return the HTTP status that goes with one of our errors."""
    return _STATUS.get(error.code, _BY_FAMILY.get(error.family, 503))
