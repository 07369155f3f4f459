"""Login, preferences and accounts over the web, as decisions without sockets.

A login makes no session and no cookie. The page that follows holds a token of the
account and a time, good for half an hour, and only who has that page can send it back: so
no other site can choose for somebody. Keys and passwords travel in form bodies alone and
are not logged or put into an address; new keys are shown once, on the page that made
them. Tokens name the keys in force, so that a page of the time before is of no use.
"""

from __future__ import annotations

import hmac
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from stoilo.core.errors import DeniedError, UsageError
from stoilo.server.engines.embedded.people.passwords import password_digest
from stoilo.server.engines.embedded.people.people import Person
from stoilo.server.engines.embedded.people.preferences import ProjectPreferences
from stoilo.server.engines.embedded.people.volunteerpages import (
    render_choices,
    render_keys,
    render_login,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from stoilo.server.engines.embedded.people.accounts import Account
    from stoilo.server.engines.embedded.people.roster import Roster

    Form = Mapping[str, Sequence[str]]  # fields by name; untrusted

__all__ = ["VolunteerDesk", "check_same_site", "first", "parse_choices"]

FORM_LIFE_S: Final = 1800
TOKEN_DIGITS: Final = 18
_PURPOSE: Final = "preferences form"


def first(form: Form, name: str) -> str:
    """Return the first value of a field, empty without one."""
    values = form.get(name) or ("",)
    return values[0]


def parse_choices(
    form: Form,
) -> tuple[ProjectPreferences, Person]:
    """Return what a form says, not yet checked."""
    chosen = ProjectPreferences(
        levels=tuple(form.get("level", ())),
        require_review=first(form, "require_review") == "1",
        require_public_source=first(form, "require_public_source") == "1",
        topics=tuple(first(form, "topics").split()),
    )
    person = Person(
        name=first(form, "name"),
        venue=first(form, "venue"),
        exported=first(form, "exported") == "1",
    )
    return chosen, person


@dataclass(frozen=True, slots=True)
class VolunteerDesk:
    """Answers the preferences page's forms.

    Attributes:
        roster: of the project.
        project: its name.
    """

    roster: Roster
    project: str

    def answer(self, form: Form, now: int) -> str:
        """Return the page that follows a form.

        Raises:
            DeniedError: ``STO-E016`` for a wrong login, ``STO-E061`` for a wrong token.
            UsageError: ``STO-E060`` or ``STO-E064``; nothing was stored.
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
        """Return whose key or password the form holds."""
        accounts = self.roster.accounts
        key = first(form, "key").strip()
        if key:
            return accounts.open_by_key(key)
        email = first(form, "email")
        digest = password_digest(first(form, "password"), email.strip().lower())
        return accounts.find(email, digest)

    def _save(self, form: Form, now: int) -> str:
        """Store what the form says and show it again."""
        account = self._check(form, now)
        chosen, person = parse_choices(form)
        self.roster.choose(account.user_id, chosen, person, now)
        return self._show(account, now, news="Saved.")

    def _change_keys(self, form: Form, now: int) -> str:
        """Give the account new keys and show them, this once."""
        account = self._check(form, now)
        if first(form, "sure") != "1":
            raise UsageError("STO-E060", "tick that the old keys shall stop")
        return render_keys(
            self.project, self.roster.accounts.change_keys(account.user_id, now)
        )

    def _show(self, account: Account, now: int, *, news: str = "") -> str:
        """Return the page with an account's choices."""
        chosen, person = self.roster.load(account.user_id)
        token = self._token(account, now + FORM_LIFE_S)
        return render_choices(self.project, account, chosen, person, token, news=news)

    def _token(self, account: Account, until: int) -> str:
        """Return what only this project can make for an account and a time, s."""
        text = f"{account.user_id}.{until}"
        stamped = f"{text}.{account.key_number}"
        return f"{text}.{self.roster.accounts.stamp(_PURPOSE, stamped)}"

    def _check(self, form: Form, now: int) -> Account:
        """Return the account of a form's token; raises ``STO-E061``."""
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
        raise DeniedError("STO-E061", "this form is too old or not from here")


def check_same_site(fetch_site: str) -> None:
    """Refuse a form that a browser says comes from another site; ``STO-E061``."""
    if fetch_site not in {"", "none", "same-origin"}:
        raise UsageError("STO-E061", "this form comes from another site")
