"""What people ask for themselves: accounts, login, preferences; pages and BOINC's calls.

BOINC's account calls answer 200 with an error number inside, or clients could not read
it. Bodies are small and bounded in time; nothing that came in is echoed or logged.

A login makes no session and no cookie. The page that follows holds a token of the
account and a time, good for half an hour, and only who has that page can send it back: so
no other site can choose for somebody. Keys and passwords travel in form bodies alone and
are not logged or put into an address; new keys are shown once, on the page that made
them. Tokens name the keys in force, so that a page of the time before is of no use.
"""

from __future__ import annotations

import hmac
import re
from typing import TYPE_CHECKING, Final, TypeAlias
from urllib.parse import parse_qs

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from stoilo.core.errors import DeniedError, UsageError
from stoilo.server.engines.embedded.accounts.accounts import check_email
from stoilo.server.engines.embedded.accounts.passwords import (
    check_password,
    password_digest,
)
from stoilo.server.engines.embedded.accounts.preferences import (
    NAME_CHARS,
    ProjectPreferences,
    check_name,
)
from stoilo.server.engines.embedded.web.body_limit import (
    BodyPace,
    read_bounded,
    read_pieces,
)
from stoilo.server.engines.embedded.web.people_pages import (
    Html,
    render_html,
    render_page,
)
from stoilo.server.engines.embedded.web.replies import (
    render_account,
    render_account_error,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from stoilo.server.engines.embedded.accounts.accounts import Account
    from stoilo.server.engines.embedded.engine import EmbeddedEngine
    from stoilo.server.engines.embedded.web.rate_limit import CallRates
    from stoilo.server.engines.embedded.web.refusal_log import RefusalLog

# What a browser says of a form that comes from our own page, or that it does not say
_SAME_SITE: Final = frozenset({"", "none", "same-origin"})
_LEVELS: Final = {
    "pure": "Plain Python: numbers, text, dates. One processor, little memory.",
    "numeric": "Also arrays (numpy): more memory, several processors.",
    "tensor": "Also training of models on the processor (torch): much memory, long tasks.",
    "gpu": "Reserved for graphics processors; there are no such tasks yet.",
}


Form: TypeAlias = "Mapping[str, Sequence[str]]"  # fields by name; untrusted

FORM_LIFE_S: Final = 1800
TOKEN: Final = re.compile(r"(\d{1,18})\.(\d{1,18})\.[0-9a-f]{64}", re.ASCII)
_PURPOSE: Final = "preferences form"
FORM_BYTES: Final = 16 * 1024
FORM_FIELDS: Final = 64
# All of a form within some 20 s; a pause inside it is no error of its own.
FORM_PACE: Final = BodyPace(pause_s=60.0, first_s=20.0)
XML: Final = "text/xml; charset=utf-8"
# BOINC's numbers (lib/error_numbers.h)
ERR_PROJECT_DOWN: Final = -183  # clients show it as: try again later
ERR_XML_PARSE: Final = -112
ERR_BAD_EMAIL_ADDR: Final = -205
ERR_BAD_PASSWD: Final = -206
ERR_BAD_USER_NAME: Final = -188
_TOO_MANY: Final = "too many calls, try again in a minute [STO-E068]"


def first(form: Form, name: str) -> str:
    """Return the first value of a field, empty without one."""
    values = form.get(name) or ("",)
    return values[0]


def parse_choices(form: Form) -> ProjectPreferences:
    """Return what a form says, not yet checked."""
    return ProjectPreferences(
        levels=tuple(form.get("level", ())),
        require_review=first(form, "require_review") == "1",
        require_public_source=first(form, "require_public_source") == "1",
        topics=tuple(first(form, "topics").split()),
        name=first(form, "name"),
    )


def people_routes(
    engine: EmbeddedEngine,  # the project
    project: str,  # its name
    rates: CallRates,  # of calls by address
    refusals: RefusalLog,  # where refused calls are noted
) -> list[Route]:
    """Return the routes of everything that people ask for themselves."""
    face = _PeopleFace(engine, project, rates, refusals)
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
    ) -> None:
        self._engine = engine
        self._roster = engine.roster
        self._project = project
        self._rates = rates
        self._refusals = refusals

    async def look_up(self, request: Request) -> Response:
        """GET or POST /lookup_account.php: the weak key for address and password."""
        return await self._account_call(request, make=False)

    async def create(self, request: Request) -> Response:
        """GET or POST /create_account.php: the weak key of a new account."""
        return await self._account_call(request, make=True)

    async def preferences(self, request: Request) -> Response:
        """GET /preferences: the login. POST: what follows a form."""
        if request.method != "POST":
            return render_html(render_page(self._project, "login"))
        if request.headers.get("sec-fetch-site", "") not in _SAME_SITE:
            self._refusals.note(request, "STO-E016")
            said = "this form comes from another site [STO-E016]"
            return render_html(render_page(self._project, "problem", said), 400)
        if not self._rates.allow_account_call(_address(request)):
            self._refusals.note(request, "STO-E068")
            return render_html(render_page(self._project, "problem", _TOO_MANY), 429)
        try:
            form = await _read_form(request)
            page = await run_in_threadpool(self._answer, form, self._engine.now())
        except DeniedError as error:
            self._refusals.note(request, error.code)
            return render_html(render_page(self._project, "login", str(error)), 403)
        except UsageError as error:
            self._refusals.note(request, error.code)
            return render_html(render_page(self._project, "problem", str(error)), 400)
        return render_html(page)

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

    async def _key(self, form: Form, *, make: bool) -> str:
        """Return the weak key: all that a client needs (it ends in every slot)."""
        accounts = self._engine.accounts
        email, password = first(form, "email_addr"), first(form, "passwd_hash")
        if not make:
            return (await run_in_threadpool(accounts.find, email, password)).weak_key
        if not self._rates.allow_new_account():
            raise DeniedError("STO-E068", "too many new accounts at the moment")
        name, now = first(form, "user_name"), self._engine.now()
        made = await run_in_threadpool(
            lambda: accounts.create(email, password, now, name=name)
        )
        return made.weak_key

    def _answer(self, form: Form, now: int) -> str:
        """Return the page that follows a form.

        Raises:
            DeniedError: ``STO-E016`` for a wrong login or token.
            UsageError: ``STO-E015``; nothing was stored.
        """
        match first(form, "step"):
            case "login":
                return self._show(self._log_in(form), now)
            case "save":
                account = self._check(form, now)
                self._roster.choose(account.user_id, parse_choices(form))
                return self._show(account, now, news="Saved.")
            case "keys":
                return self._change_keys(self._check(form, now), form)
            case _:
                return render_page(self._project, "login")

    def _log_in(self, form: Form) -> Account:
        accounts = self._engine.accounts
        key = first(form, "key").strip()
        if key:
            return accounts.open_by_key(key)
        email = first(form, "email")
        digest = password_digest(first(form, "password"), email.strip().lower())
        return accounts.find(email, digest)

    def _change_keys(self, account: Account, form: Form) -> str:
        if first(form, "sure") != "1":
            raise UsageError("STO-E015", "tick that the old keys shall stop")
        fresh = self._engine.accounts.change_keys(account.user_id)
        return render_page(
            self._project,
            "keys",
            "The old keys have stopped.",
            email=fresh.email,
            key=fresh.key,
            weak_key=fresh.weak_key,
        )

    def _show(self, account: Account, now: int, *, news: str = "") -> str:
        """Return the page with an account's choices."""
        chosen = self._roster.load(account.user_id)
        ticked = {True: Html(" checked"), False: Html("")}
        levels = "\n".join(
            f'<label><input type="checkbox" name="level" value="{level}"'
            f"{ticked[level in chosen.levels]}> {level}<small>{said}</small></label>"
            for level, said in _LEVELS.items()
        )
        return render_page(
            self._project,
            "choices",
            news,
            email=account.email,
            token=self._token(account, now + FORM_LIFE_S),
            levels=Html(levels),
            review=ticked[chosen.require_review],
            public=ticked[chosen.require_public_source],
            topics=" ".join(chosen.topics),
            name=chosen.name,
            name_chars=str(NAME_CHARS),
        )

    def _token(self, account: Account, until: int) -> str:
        """Return what only this project can make for an account and a time, s."""
        text = f"{account.user_id}.{until}"
        stamped = f"{text}.{account.key_number}"
        return f"{text}.{self._engine.accounts.stamp(_PURPOSE, stamped)}"

    def _check(self, form: Form, now: int) -> Account:
        """Return the account of a form's token; raises ``STO-E016``."""
        given = TOKEN.fullmatch(first(form, "token"))
        if given is not None and int(given[2]) >= now:
            account = self._engine.accounts.open_by_id(int(given[1]))
            mine = self._token(account, int(given[2]))
            if hmac.compare_digest(mine.encode(), given[0].encode()):
                return account
        raise DeniedError("STO-E016", "this form is too old or not from here")


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
