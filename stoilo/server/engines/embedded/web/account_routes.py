"""HTTP of accounts and preferences, mounted by `app.create_project_app`.

BOINC's account calls answer 200 with an error number inside, or clients could not read
it. Bodies are small and bounded in time; nothing that came in is echoed or logged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qs

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from stoilo.core.errors import DeniedError, UsageError
from stoilo.server.engines.embedded.accounts.accounts import check_email
from stoilo.server.engines.embedded.accounts.passwords import check_password
from stoilo.server.engines.embedded.accounts.preferences import check_name
from stoilo.server.engines.embedded.web.body_limit import (
    BodyPace,
    read_bounded,
    read_pieces,
)
from stoilo.server.engines.embedded.web.preference_pages import (
    POLICY,
    VolunteerDesk,
    check_same_site,
    first,
    render_login,
    render_problem,
)
from stoilo.server.engines.embedded.web.replies import (
    render_account,
    render_account_error,
)

if TYPE_CHECKING:
    from stoilo.server.engines.embedded.engine import EmbeddedEngine
    from stoilo.server.engines.embedded.web.rate_limit import CallRates
    from stoilo.server.engines.embedded.web.refusal_log import RefusalLog

FORM_BYTES: Final = 16 * 1024
FORM_FIELDS: Final = 64
# All of a form within some 20 s; a pause inside it is no error of its own.
FORM_PACE: Final = BodyPace(pause_s=60.0, first_s=20.0)
XML: Final = "text/xml; charset=utf-8"
ERR_PROJECT_DOWN: Final = -183  # clients show it as: try again later
ERR_XML_PARSE: Final = -112
ERR_CREATION_DISABLED: Final = -208
ERR_BAD_EMAIL_ADDR: Final = -205
ERR_BAD_PASSWD: Final = -206
ERR_BAD_USER_NAME: Final = -188
_STRICT: Final = {
    "cache-control": "no-store",
    "content-security-policy": POLICY,
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}


def people_routes(
    engine: EmbeddedEngine,  # the project
    project: str,  # its name
    rates: CallRates,  # of calls by address
    refusals: RefusalLog,  # where refused calls are noted
    *,
    creation: bool = True,  # whether accounts can be made over the web
) -> list[Route]:
    """Return the routes of everything that people ask for themselves."""
    face = _PeopleFace(engine, project, rates, refusals, creation=creation)
    both = ["GET", "POST"]
    return [
        Route("/lookup_account.php", face.look_up, methods=both),
        Route("/create_account.php", face.create, methods=both),
        Route("/preferences", face.preferences, methods=both),
    ]


class _PeopleFace:
    """The handlers."""

    def __init__(
        self,
        engine: EmbeddedEngine,
        project: str,
        rates: CallRates,
        refusals: RefusalLog,
        *,
        creation: bool,
    ) -> None:
        self._engine = engine
        self._project = project
        self._rates = rates
        self._refusals = refusals
        self._creation = creation
        self._desk = VolunteerDesk(engine.roster, project)

    async def look_up(self, request: Request) -> Response:
        """GET or POST /lookup_account.php: the weak key for address and password."""
        return await self._account_call(request, make=False)

    async def create(self, request: Request) -> Response:
        """GET or POST /create_account.php: the weak key of a new account."""
        if not self._creation:
            said = "accounts are made by the project's operator"
            return _xml(render_account_error(ERR_CREATION_DISABLED, said))
        return await self._account_call(request, make=True)

    async def preferences(self, request: Request) -> Response:
        """GET /preferences: the login. POST: what follows a form."""
        if request.method != "POST":
            return _html(render_login(self._project))
        try:
            check_same_site(request.headers.get("sec-fetch-site", ""))
            if not self._rates.allow_account_call(_address(request)):
                self._refusals.note(request, "STO-E068")
                return _html(render_problem(self._project, _TOO_MANY), 429)
            form = await _read_form(request)
            page = await run_in_threadpool(self._desk.answer, form, self._engine.now())
        except DeniedError as error:
            self._refusals.note(request, error.code)
            return _html(render_login(self._project, str(error)), 403)
        except UsageError as error:
            self._refusals.note(request, error.code)
            return _html(render_problem(self._project, str(error)), 400)
        return _html(page)

    async def _account_call(self, request: Request, *, make: bool) -> Response:
        if not self._rates.allow_account_call(_address(request)):
            self._refusals.note(request, "STO-E068")
            return _xml(render_account_error(ERR_PROJECT_DOWN, _TOO_MANY))
        number = ERR_XML_PARSE  # what to say of what is refused next
        try:
            form = await _read_form(request)
            if make:
                number = ERR_BAD_EMAIL_ADDR
                address = check_email(first(form, "email_addr"))
                number = ERR_BAD_PASSWD
                check_password(first(form, "passwd_hash"), address)
                number = ERR_BAD_USER_NAME
                check_name(first(form, "user_name"))
            number = ERR_BAD_PASSWD
            return _xml(render_account(await self._key(form, make=make)))
        except (UsageError, DeniedError) as error:
            self._refusals.note(request, error.code)
            number = ERR_PROJECT_DOWN if error.code == "STO-E068" else number
            return _xml(render_account_error(number, str(error)))

    async def _key(self, form: dict[str, list[str]], *, make: bool) -> str:
        """Return the weak key: all that a client needs (it ends in every slot)."""
        accounts = self._engine.accounts
        email, password = first(form, "email_addr"), first(form, "passwd_hash")
        if not make:
            found = await run_in_threadpool(accounts.find, email, password)
            return found.weak_key
        if not self._rates.allow_new_account():
            raise DeniedError("STO-E068", "too many new accounts at the moment")
        name, now = first(form, "user_name"), self._engine.now()
        made = await run_in_threadpool(
            lambda: accounts.create(email, password, now, name=name)
        )
        return made.weak_key


_TOO_MANY: Final = "too many calls, try again in a minute [STO-E068]"


async def _read_form(request: Request) -> dict[str, list[str]]:
    """Return the fields of a query, or of a small body that comes in time.

    Raises:
        UsageError: ``STO-E012``.
        InternalError: ``STO-E034`` when the connection is lost.
    """
    text = request.url.query
    if request.method == "POST":
        pieces = read_pieces(request, FORM_PACE)
        body = await read_bounded(pieces, FORM_BYTES, FORM_PACE)
        text = body.decode("utf-8", "replace")
    if len(text) > FORM_BYTES:
        raise UsageError("STO-E012", "the request is too large")
    try:
        return parse_qs(text, max_num_fields=FORM_FIELDS)
    except ValueError as error:
        raise UsageError("STO-E012", "the request has too many fields") from error


def _address(request: Request) -> str:
    return request.client.host if request.client else ""


def _xml(body: bytes) -> Response:
    return Response(body, media_type=XML, headers={"cache-control": "no-store"})


def _html(page: str, status: int = 200) -> Response:
    return Response(page, status, media_type="text/html", headers=_STRICT)
