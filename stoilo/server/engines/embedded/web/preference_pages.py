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
from html import escape
from typing import TYPE_CHECKING, Final

from stoilo.core.errors import DeniedError, UsageError
from stoilo.server.engines.embedded.accounts.passwords import password_digest
from stoilo.server.engines.embedded.accounts.preferences import (
    NAME_CHARS,
    VENUES,
    Person,
    ProjectPreferences,
)
from stoilo.server.engines.embedded.hosts.host_filter import LEVELS

if TYPE_CHECKING:
    from stoilo.server.engines.embedded.accounts.accounts import Account

__all__ = [
    "POLICY",
    "VolunteerDesk",
    "check_same_site",
    "first",
    "parse_choices",
    "render_choices",
    "render_keys",
    "render_login",
    "render_problem",
]


_STYLE: Final = """
body { font: 1rem/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 44rem;
  padding: 0 1rem; color: #1b1b1b; background: #fdfdfc; }
fieldset { border: 1px solid #bbb; margin: 1rem 0; padding: .5rem 1rem; }
legend { font-weight: 600; } label { display: block; margin: .5rem 0; }
small { display: block; margin-left: 1.7rem; color: #555; }
input[type=text], input[type=password], input[type=email], select { font: inherit;
  width: 100%; box-sizing: border-box; padding: .3rem; }
button { font: inherit; padding: .4rem 1.2rem; }
.note { border-left: .3rem solid #2a6; padding-left: .8rem; }
.bad { border-left: .3rem solid #b22; padding-left: .8rem; }
"""
_DIGEST = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
POLICY: Final = (
    f"default-src 'none'; style-src 'sha256-{_DIGEST}'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
"""Content security policy of the pages: our style, our forms, nothing else."""

_LOGIN: Final = """<form method="post" action="preferences" autocomplete="off">
<input type="hidden" name="step" value="login">
"""
_LEVELS: Final = {
    "pure": "Plain Python: numbers, text, dates. One processor, little memory.",
    "numeric": "Also arrays (numpy): more memory, several processors.",
    "tensor": "Also training of models on the processor (torch): much memory, long tasks.",
    "gpu": "Reserved for graphics processors; there are no such tasks yet.",
}
_VENUES: Final = {"": "none", "home": "home", "work": "work", "school": "school"}


def render_login(project: str, problem: str = "") -> str:
    """Return the page that asks who somebody is."""
    return _page(
        project,
        f"""{_note(problem, "bad")}
<p>Choose what this project may send to your computers. Log in with your account key, or
with the address and password of an account that you made in the BOINC manager.</p>
{_LOGIN}<fieldset><legend>With a key</legend>
<label>Account key <input type="password" name="key" maxlength="64"></label>
<small>Not the weak key that a client has: that one only fetches work.</small>
<button>Log in</button></fieldset></form>
{_LOGIN}<fieldset><legend>Or with a password</legend>
<label>E-mail <input type="email" name="email" maxlength="254"></label>
<label>Password <input type="password" name="password" maxlength="256"></label>
<button>Log in</button></fieldset></form>""",
    )


def render_choices(
    project: str,
    account: Account,
    chosen: ProjectPreferences,
    person: Person,
    token: str,
    *,
    news: str = "",
) -> str:
    """Return the page with an account's choices; `token` lets it be sent back."""
    levels = "\n".join(
        _check("level", level, level in chosen.levels, level, _LEVELS[level])
        for level in LEVELS
    )
    text, more = "The old keys shall stop at once", "There is no way back."
    sure = _check("sure", "1", on=False, text=text, more=more)
    return _page(
        project,
        f"""{_note(news, "note")}
<p>Account <b>{escape(account.email)}</b>. What is chosen here holds for all its computers
from their next call on. It can only take away: what a computer runs is decided by the
opt-in file on that computer, which this project cannot change.</p>
<form method="post" action="preferences">
<input type="hidden" name="step" value="save">
<input type="hidden" name="token" value="{escape(token)}">
<fieldset><legend>Levels of tasks to send</legend>
<p>No task of any level can open a file, use the network or start a program. A level says
which libraries it has and how much of the computer it may use.</p>
{levels}
<p>With none chosen, only <b>pure</b> is sent.</p></fieldset>
{_fieldset_of_rules(chosen)}
{_fieldset_of_person(person)}
<button>Save</button>
</form>
<form method="post" action="preferences">
<input type="hidden" name="step" value="keys">
<input type="hidden" name="token" value="{escape(token)}">
<fieldset><legend>New account keys</legend>
<p>For when somebody else may know them. Your computers get no work until each has the new
weak key: remove the project in the BOINC manager and add it again. What they have done
already is not lost. A password stays as it is.</p>
{sure}
<button>Make new keys</button></fieldset></form>""",
    )


def render_keys(project: str, account: Account) -> str:
    """Return the page that shows an account's new keys."""
    return _page(
        project,
        f"""{_note("The old keys have stopped.", "note")}
<p>Account <b>{escape(account.email)}</b>. This page is not shown again.</p>
<dl><dt>Account key: opens your preferences, belongs into no client</dt>
<dd><code>{escape(account.key)}</code></dd>
<dt>Weak account key: for your clients</dt>
<dd><code>{escape(account.weak_key)}</code></dd></dl>""",
    )


def render_problem(project: str, problem: str) -> str:
    """Return a page that says what went wrong."""
    again = '<p><a href="preferences">Begin again</a></p>'
    return _page(project, _note(problem, "bad") + again)


def _fieldset_of_rules(chosen: ProjectPreferences) -> str:
    """Return what else a task must be."""
    review = _check(
        "require_review",
        "1",
        chosen.require_review,
        "Only reviewed tasks",
        "A reviewer of the project has read the source and signed it.",
    )
    public = _check(
        "require_public_source",
        "1",
        chosen.require_public_source,
        "Only tasks of public source",
        "You can read in the project's log what your computer ran.",
    )
    topics = escape(" ".join(chosen.topics), quote=True)
    return f"""<fieldset><legend>Only some of them</legend>
{review}
{public}
<label>Topics, separated by spaces; empty: any
<input type="text" name="topics" maxlength="2200" value="{topics}"></label></fieldset>"""


def _fieldset_of_person(person: Person) -> str:
    """Return what is shown of a volunteer."""
    places = "".join(
        f'<option value="{venue}"{" selected" if venue == person.venue else ""}>'
        f"{_VENUES[venue]}</option>"
        for venue in VENUES
    )
    name = escape(person.name, quote=True)
    return f"""<fieldset><legend>You</legend>
<label>Name that others see; may stay empty
<input type="text" name="name" maxlength="{NAME_CHARS}" value="{name}"></label>
<label>Place of your computers (BOINC's location) <select name="venue">{places}</select>
</label></fieldset>"""


def _check(name: str, value: str, on: bool, text: str, more: str) -> str:
    """Return one box to tick."""
    checked = " checked" if on else ""
    return (
        f'<label><input type="checkbox" name="{name}" value="{value}"{checked}> '
        f"{escape(text)}<small>{escape(more)}</small></label>"
    )


def _note(text: str, kind: str) -> str:
    """Return a remark, nothing without text."""
    return f'<p class="{kind}" role="status">{escape(text)}</p>\n' if text else ""


def _page(project: str, body: str) -> str:
    """Return a whole page."""
    return f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>Preferences: {escape(project)}</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>{_STYLE}</style></head>
<body><h1>{escape(project)}: your preferences</h1>
{body}
</body></html>
"""


if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from stoilo.server.engines.embedded.accounts.accounts import Account
    from stoilo.server.engines.embedded.accounts.roster import Roster

    Form = Mapping[str, Sequence[str]]  # fields by name; untrusted


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
    )
    return chosen, person


@dataclass(frozen=True, slots=True)
class VolunteerDesk:
    """Answers the preferences page's forms."""

    roster: Roster  # of the project
    project: str  # its name

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
