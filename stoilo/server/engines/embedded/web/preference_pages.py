"""Login, preferences and accounts over the web, as decisions without sockets.

A login makes no session and no cookie. The page that follows holds a token of the
account and a time, good for half an hour, and only who has that page can send it back: so
no other site can choose for somebody. Keys and passwords travel in form bodies alone and
are not logged or put into an address; new keys are shown once, on the page that made
them. Tokens name the keys in force, so that a page of the time before is of no use.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from dataclasses import dataclass
from functools import cache
from html import escape
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Final, TypeAlias

from stoilo.core.errors import DeniedError, UsageError
from stoilo.server.engines.embedded.accounts.host_filter import LEVELS
from stoilo.server.engines.embedded.accounts.passwords import password_digest
from stoilo.server.engines.embedded.accounts.preferences import (
    NAME_CHARS,
    ProjectPreferences,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from stoilo.server.engines.embedded.accounts.accounts import Account
    from stoilo.server.engines.embedded.accounts.roster import Roster

_PAGES: Final = Path(__file__).parent / "pages"
_STYLE: Final = (_PAGES / "style.css").read_text("utf-8")
_DIGEST = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
# Our style, our forms, nothing else: no page of ours runs a script.
POLICY: Final = (
    f"default-src 'none'; style-src 'sha256-{_DIGEST}'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
_LEVELS: Final = {
    "pure": "Plain Python: numbers, text, dates. One processor, little memory.",
    "numeric": "Also arrays (numpy): more memory, several processors.",
    "tensor": "Also training of models on the processor (torch): much memory, long tasks.",
    "gpu": "Reserved for graphics processors; there are no such tasks yet.",
}


class _Html(str):
    """Text that is HTML already; any other that goes into a page is escaped."""

    __slots__ = ()


def _render(project: str, page: str, note: str = "", **values: str) -> str:
    """Return one of `pages`; `note` says what went well, or wrong."""
    kind = "bad" if page in {"login", "problem"} else "note"
    said = f'<p class="{kind}" role="status">{escape(note)}</p>\n' if note else ""
    body = _template(page).substitute(
        {
            key: one if isinstance(one, _Html) else escape(one)
            for key, one in values.items()
        },
        note=said,
    )
    return _template("page").substitute(
        project=escape(project), style=_STYLE, body=body
    )


@cache
def _template(name: str) -> Template:
    return Template((_PAGES / f"{name}.html").read_text("utf-8"))


def render_login(project: str, problem: str = "") -> str:
    """Return the page that asks who somebody is."""
    return _render(project, "login", problem)


def render_problem(project: str, problem: str) -> str:
    """Return a page that says what went wrong."""
    return _render(project, "problem", problem)


def render_choices(
    project: str,
    account: Account,
    chosen: ProjectPreferences,
    token: str,  # lets the page be sent back
    *,
    news: str = "",
) -> str:
    """Return the page with an account's choices."""
    ticked = {True: _Html(" checked"), False: _Html("")}
    levels = "\n".join(
        f'<label><input type="checkbox" name="level" value="{level}"'
        f"{ticked[level in chosen.levels]}> {level}<small>{_LEVELS[level]}</small></label>"
        for level in LEVELS
    )
    return _render(
        project,
        "choices",
        news,
        email=account.email,
        token=token,
        levels=_Html(levels),
        review=ticked[chosen.require_review],
        public=ticked[chosen.require_public_source],
        topics=" ".join(chosen.topics),
        name=chosen.name,
        name_chars=str(NAME_CHARS),
    )


Form: TypeAlias = "Mapping[str, Sequence[str]]"  # fields by name; untrusted

FORM_LIFE_S: Final = 1800
TOKEN_DIGITS: Final = 18
_PURPOSE: Final = "preferences form"


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


@dataclass(frozen=True, slots=True)
class VolunteerDesk:
    """Answers the preferences page's forms."""

    roster: Roster  # of the project
    project: str  # its name

    def answer(self, form: Form, now: int) -> str:
        """Return the page that follows a form.

        Raises:
            DeniedError: ``STO-E016`` for a wrong login or token.
            UsageError: ``STO-E015``; nothing was stored.
        """
        match first(form, "step"):
            case "login":
                return self._show(self._log_in(form), now)
            case "save":
                return self._save(form, now)
            case "keys":
                return self._change_keys(form, now)
            case _:
                return render_login(self.project)

    def _log_in(self, form: Form) -> Account:
        accounts = self.roster.accounts
        key = first(form, "key").strip()
        if key:
            return accounts.open_by_key(key)
        email = first(form, "email")
        digest = password_digest(first(form, "password"), email.strip().lower())
        return accounts.find(email, digest)

    def _save(self, form: Form, now: int) -> str:
        account = self._check(form, now)
        self.roster.choose(account.user_id, parse_choices(form))
        return self._show(account, now, news="Saved.")

    def _change_keys(self, form: Form, now: int) -> str:
        account = self._check(form, now)
        if first(form, "sure") != "1":
            raise UsageError("STO-E015", "tick that the old keys shall stop")
        fresh = self.roster.accounts.change_keys(account.user_id)
        return _render(
            self.project,
            "keys",
            "The old keys have stopped.",
            email=fresh.email,
            key=fresh.key,
            weak_key=fresh.weak_key,
        )

    def _show(self, account: Account, now: int, *, news: str = "") -> str:
        chosen = self.roster.load(account.user_id)
        token = self._token(account, now + FORM_LIFE_S)
        return render_choices(self.project, account, chosen, token, news=news)

    def _token(self, account: Account, until: int) -> str:
        """Return what only this project can make for an account and a time, s."""
        text = f"{account.user_id}.{until}"
        stamped = f"{text}.{account.key_number}"
        return f"{text}.{self.roster.accounts.stamp(_PURPOSE, stamped)}"

    def _check(self, form: Form, now: int) -> Account:
        """Return the account of a form's token; raises ``STO-E016``."""
        given = first(form, "token")[:200]
        text, _, _ = given.rpartition(".")
        user, _, until = text.partition(".")
        usable = all(
            one.isascii() and one.isdigit() and len(one) <= TOKEN_DIGITS
            for one in (user, until)
        )
        if usable and int(until) >= now:
            account = self.roster.accounts.open_by_id(int(user))
            mine = self._token(account, int(until))
            if hmac.compare_digest(mine.encode(), given.encode()):
                return account
        raise DeniedError("STO-E016", "this form is too old or not from here")


def check_same_site(fetch_site: str) -> None:
    """Refuse a form that a browser says comes from another site; ``STO-E016``."""
    if fetch_site not in {"", "none", "same-origin"}:
        raise UsageError("STO-E016", "this form comes from another site")
