"""Who is signed in: one-time links, sessions that end, forms that only our pages can send.

A session is a token of the account, of a scope of its own, that lives in one cookie: the
server keeps its digest, `stoilo account list NAME` shows it and `revoke` ends it, and a
suspension counts from the next page on. When it was last used is kept in memory only, so
a restart of the server ends every session. Nothing that a visitor sends is believed
before it was looked up; no secret is in an address but a link's, which opens nothing by
being fetched: its page holds a form, and only the form uses it up.
"""

from __future__ import annotations

import hmac
import secrets
import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal
from urllib.parse import parse_qsl, urlsplit

from stoilo.core.errors import DeniedError, PolicyRefusal, UsageError
from stoilo.core.rate_limit import TokenBuckets
from stoilo.server.admission import tokens
from stoilo.server.engines.embedded.web.body_limit import (
    BodyPace,
    read_bounded,
    read_pieces,
)
from stoilo.server.engines.embedded.web.rate_limit import CallLimits, CallRates

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Connection
    from starlette.requests import Request
    from starlette.responses import Response

    from stoilo.server.db.records import Owner
    from stoilo.server.db.store import Store

FRESH_S: Final = 900.0  # only so young a session makes tokens and passkeys, s
IDLE_S: Final = 3600.0  # a session that nobody uses for so long is over, s
MOST_SESSIONS: Final = 4096  # in memory; the one used least lately makes room
FORM_BYTES: Final = 4096  # of one form
FORM_FIELDS: Final = 8
FORM_PACE: Final = BodyPace(pause_s=10.0, first_s=20.0)
# in a minute: a secret has 256 bits, so this bounds work, not guesses
SIGN_INS: Final = 10  # of one address
FORMS: Final = 60  # of one account
PAGES: Final = 240  # of one account
PARTS: Final = 2400  # of one account: pages that refresh themselves, 200 at once
# What a browser says of a form of our own page, or that it does not say
_OWN: Final = frozenset({"", "none", "same-origin"})


@dataclass(frozen=True, slots=True)
class Visitor:
    """Who asks for a page, and with which cookie."""

    owner: Owner
    token: str  # the session's; also what its calls are made with
    fresh: bool = False  # whether he signed in a moment ago


class Sessions:
    """Sessions of one server; thread-safe, blocks on the database."""

    def __init__(
        self,
        store: Store,
        url: str,  # of the server as people reach it; https makes cookies secure
        clock: Callable[[], int],  # seconds since 1970
        steady: Callable[[], float],  # seconds of a clock that is never set
    ) -> None:
        self._store, self._clock, self._steady = store, clock, steady
        parts = urlsplit(url)
        self._origin = f"{parts.scheme}://{parts.netloc}"
        self._secure = parts.scheme == "https"
        # Cookies know no ports: two servers of one machine must not sign each other out.
        name = "__Host-stoilo" if self._secure else f"stoilo-{parts.port}"
        self.cookie, self.form_cookie = name, f"{name}-form"
        self._stamp_key = secrets.token_bytes(32)
        # digest → when it was used last and when it began, monotonic
        self._used: OrderedDict[str, tuple[float, float]] = OrderedDict()
        self._lock = threading.Lock()
        self._addresses = CallRates(CallLimits(account_calls=SIGN_INS), steady)
        self._forms = TokenBuckets(FORMS, clock=steady)
        self._pages = TokenBuckets(PAGES, clock=steady)
        self._parts = TokenBuckets(PARTS, clock=steady)

    def sign_in(self, secret: str, address: str) -> str:
        """Return a new session's token for an (untrusted) secret; raises ``STO-R001``.

        Raises ``STO-E068`` for an address that tries too often.
        """
        self.count_sign_in(address)
        return self.open(
            lambda connection, now: tokens.open_session(connection, secret.strip(), now)
        )

    def open(self, enter: Callable[[Connection, int], str]) -> str:
        """Return the session's token that `enter` makes in a writing transaction."""
        with self._store.write() as connection:
            token = enter(connection, self._clock())
        now = self._steady()
        with self._lock:
            self._used[tokens.token_digest(token)] = now, now
            while len(self._used) > MOST_SESSIONS:
                self._used.popitem(last=False)
        return token

    def find(self, request: Request, *, by_itself: bool = False) -> Visitor:
        """Return who asks, or raise ``STO-R001``; ``STO-E068`` when too often.

        `by_itself`: a page asks, not a person. That keeps no session alive, and takes
        nothing of what a person may ask for.
        """
        token = request.cookies.get(self.cookie, "")
        digest, now = tokens.token_digest(token), self._steady()
        with self._lock:
            used, since = self._used.pop(digest, (float("-inf"), 0.0))
            if now - used <= IDLE_S:
                self._used[digest] = used if by_itself else now, since
        if now - used > IDLE_S:
            if used > float("-inf"):  # it was one
                self._end(token)
            raise DeniedError("STO-R001", "you are not signed in, or no longer")
        with self._store.read() as connection:
            owner = tokens.find_owner(connection, token, self._clock())
        _bound(self._parts if by_itself else self._pages, str(owner.account_id))
        return Visitor(owner, token, now - since <= FRESH_S)

    def sign_out(self, visitor: Visitor) -> None:
        """End a session at once."""
        with self._lock:
            self._used.pop(tokens.token_digest(visitor.token), None)
        self._end(visitor.token)

    def _end(self, token: str) -> None:
        with self._store.write() as connection:
            tokens.revoke_token(connection, token, self._clock())

    def stamp(self, cookie: str) -> str:
        """Return what a form of ours carries beside a cookie, which no other site knows."""
        return hmac.new(self._stamp_key, cookie.encode(), "sha256").hexdigest()

    def keep(
        self,
        response: Response,
        name: str,
        value: str,
        same_site: Literal["strict", "lax"] = "strict",
    ) -> None:
        """Set a cookie that no script reads and no other site's form sends.

        Nor does another site's link, unless it is a lax one.
        """
        response.set_cookie(
            name,
            value,
            max_age=tokens.SESSION_S if value else 0,
            path="/",
            secure=self._secure,
            httponly=True,
            samesite=same_site,
        )

    async def read_form(self, request: Request, cookie: str) -> dict[str, str]:
        """Return a form's fields (untrusted), sent by a page of ours to who has `cookie`.

        Raises:
            DeniedError: ``STO-E016`` it is from another site, or of another session.
            UsageError: ``STO-R010`` no form, ``STO-E012`` too large or too slow.
            InternalError: ``STO-E034`` it did not arrive.
        """
        # The body comes first: who is refused while he still sends never sees why.
        pieces = read_pieces(request, FORM_PACE)
        fields = parse_form(await read_bounded(pieces, FORM_BYTES, FORM_PACE), request)
        own = {self._origin, f"{request.url.scheme}://{request.url.netloc}"}
        if (
            request.headers.get("origin") not in own
            or request.headers.get("sec-fetch-site", "") not in _OWN
        ):
            raise DeniedError("STO-E016", "this form comes from another site")
        given, wanted = fields.get("form", ""), self.stamp(cookie)
        if not cookie or not hmac.compare_digest(given.encode(), wanted.encode()):
            raise DeniedError(
                "STO-E016",
                "this form is of another session",
                hint="open its page again",
            )
        return fields

    def count_sign_in(self, address: str) -> None:
        """Count one try of an address; raises ``STO-E068`` when there are too many."""
        if not self._addresses.allow_account_call(address):
            raise _too_often()

    def count_page(self, owner: Owner) -> None:
        """Count one page of an account; raises ``STO-E068`` when there are too many."""
        _bound(self._pages, str(owner.account_id))

    def count_form(self, owner: Owner) -> None:
        """Count one form of an account; raises ``STO-E068`` when there are too many."""
        _bound(self._forms, str(owner.account_id))


def parse_form(body: bytes, request: Request) -> dict[str, str]:
    """Return the fields of an (untrusted) form, each once; raises ``STO-R010``."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/x-www-form-urlencoded":
        raise UsageError("STO-R010", "this is no form of ours")
    try:
        pairs = parse_qsl(
            body.decode("ascii"),
            keep_blank_values=True,
            strict_parsing=bool(body),
            errors="strict",
            max_num_fields=FORM_FIELDS,
        )
    except ValueError as error:  # UnicodeDecodeError is one
        raise UsageError(
            "STO-R010", "the form is not UTF-8, or has too many fields"
        ) from error
    fields = dict(pairs)
    if len(fields) < len(pairs) or not all(
        text.isprintable() for text in fields.values()
    ):
        raise UsageError(
            "STO-R010", "a field of the form is there twice, or is no text"
        )
    return fields


def _bound(buckets: TokenBuckets, account: str) -> None:
    if not buckets.allow(account):
        raise _too_often()


def _too_often() -> PolicyRefusal:
    return PolicyRefusal("STO-E068", "this is too often", hint="try again in a minute")
