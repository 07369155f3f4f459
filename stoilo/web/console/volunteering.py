"""A volunteer's page: what ran on his computers, what he chose, and how he ends that.

He signs in with what he has: address and password, or the strong key of his account, in a
form's body alone. His session is of a kind of its own: no account of the server, no token,
kept in memory, and over with his keys. It shows one account of the engine and no other. A
stock project's volunteers have BOINC's own pages.
"""

from __future__ import annotations

import secrets
import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from stoilo.core.errors import DeniedError, UsageError
from stoilo.server.admission import tokens
from stoilo.server.db import rows
from stoilo.server.db.records import Owner
from stoilo.server.engines.embedded.accounts.passwords import password_digest
from stoilo.web.console.asking import go
from stoilo.web.console.sessions import IDLE_S, MOST_SESSIONS, Visitor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from starlette.requests import Request
    from starlette.responses import Response

    from stoilo.server.app.task_server import ServerPlace
    from stoilo.server.db.records import TaskRow
    from stoilo.server.engines.embedded.accounts.leaving import HostRun
    from stoilo.server.engines.embedded.accounts.roster import Roster
    from stoilo.web.console.asking import Asked
    from stoilo.web.console.sessions import Sessions

PAGE: Final = "/console/volunteer"
SIGN_IN: Final = "/console/volunteer/sign-in"
CALL: Final = "Volunteer"  # what its pages need instead of a token's permission
ON_PAGE: Final = 25  # runs of one page
MOST_PAGES: Final = 40


@dataclass(frozen=True, slots=True)
class _Session:
    """Whose it is; moments of a clock that is never set, s."""

    user_id: int
    key_number: int  # of the keys that were in force
    began: float
    used: float


@dataclass(frozen=True, slots=True)
class Run:
    """One copy with what the server knows of its task."""

    copy: HostRun
    task_id: str
    function: str  # empty for a task that is not known any more


class Volunteers:
    """Who of the volunteers is signed in; thread-safe, blocks on the engine's database."""

    def __init__(
        self, roster: Roster | None, sessions: Sessions, steady: Callable[[], float]
    ) -> None:
        self._roster, self._sessions, self._steady = roster, sessions, steady
        self.cookie = f"{sessions.cookie}-volunteer"
        self._kept: OrderedDict[str, _Session] = OrderedDict()  # by a token's digest
        self._lock = threading.Lock()

    @property
    def roster(self) -> Roster:
        """The engine's volunteers; raises ``STO-E016`` with a stock project."""
        if self._roster is None:
            raise DeniedError(
                "STO-E016", "volunteers of this project sign in at BOINC's own pages"
            )
        return self._roster

    def sign_in(self, fields: Mapping[str, str], address: str) -> str:
        """Return a session's token for a form's (untrusted) fields.

        Raises ``STO-E016``, and ``STO-E068`` for an address that tries too often.
        """
        self._sessions.count_sign_in(address)
        accounts, key = self.roster.accounts, fields.get("key", "").strip()
        if key:
            found = accounts.open_by_key(key)
        else:
            email = fields.get("email", "").strip().lower()
            digest = password_digest(fields.get("password", ""), email)
            found = accounts.find(email, digest)
        token, now = secrets.token_urlsafe(32), self._steady()
        with self._lock:
            kept = _Session(found.user_id, found.key_number, now, now)
            self._kept[tokens.token_digest(token)] = kept
            while len(self._kept) > MOST_SESSIONS:
                self._kept.popitem(last=False)
        return token

    def find(self, request: Request) -> Visitor:
        """Return who asks; raises ``STO-R001``, and ``STO-E068`` when too often."""
        token = request.cookies.get(self.cookie, "")[:256]
        kept = self._use(tokens.token_digest(token))
        account = None
        if kept is not None:
            account = self.roster.accounts.open_by_id(kept.user_id)
        if account is None or kept is None or account.key_number != kept.key_number:
            raise DeniedError("STO-R001", "you are not signed in, or no longer")
        # Below 0: no account of the server has such a number, so nothing is its own.
        name = account.name or f"volunteer {account.user_id}"
        owner = Owner(-account.user_id, name, tokens.Role.VOLUNTEER, "", "")
        self._sessions.count_page(owner)
        return Visitor(owner, token)

    def _use(self, digest: str) -> _Session | None:
        now = self._steady()
        with self._lock:
            kept = self._kept.pop(digest, None)
            if kept is None or now - kept.used > IDLE_S:
                return None
            if now - kept.began > tokens.SESSION_S:
                return None
            self._kept[digest] = _Session(
                kept.user_id, kept.key_number, kept.began, now
            )
        return kept

    def end(self, token: str) -> None:
        """End a session at once."""
        with self._lock:
            self._kept.pop(tokens.token_digest(token), None)


class Volunteering:
    """The handlers of one server; they block."""

    def __init__(
        self, place: ServerPlace, sessions: Sessions, steady: Callable[[], float]
    ) -> None:
        self.volunteers = Volunteers(place.roster, sessions, steady)
        self._sessions = sessions
        self._store = place.tasks.store
        self._clock = place.watch.sources.clock

    def show(self, asked: Asked) -> Response:
        """``/console/volunteer?page=``: his computers, and what ran there."""
        roster, user_id = self.volunteers.roster, -asked.visitor.owner.account_id
        page = asked.number("page", MOST_PAGES)
        found = roster.list_runs(user_id, ON_PAGE + 1, ON_PAGE * (page - 1))
        (account,) = roster.list_accounts(user_id=user_id)
        hosts = roster.list_hosts(email=account.email)
        return asked.render(
            "console/volunteer.html",
            account=account,
            chosen=roster.load(user_id),
            hosts=hosts,
            names={one.host_id: name_of(one.domain_name, one.host_id) for one in hosts},
            runs=join_runs(found[:ON_PAGE], self._tasks(found)),
            page=page,
            more=len(found) > ON_PAGE and page < MOST_PAGES,
        )

    def _tasks(self, runs: Iterable[HostRun]) -> dict[str, TaskRow]:
        names = {task_of(one.workunit) for one in runs}
        with self._store.read() as connection:
            found = {name: rows.find_task(connection, name) for name in names}
        return {name: row for name, row in found.items() if row is not None}

    def leave(self, asked: Asked) -> Response:
        """Let his computers get no more work, or work again; twice is as once."""
        back = asked.fields.get("back", "") == "1"
        if not back:
            _check_sure(asked, "1", "tick that your computers shall get no more work")
        user_id = -asked.visitor.owner.account_id
        self.volunteers.roster.leave(user_id, self._clock(), back=back)
        return go(PAGE)

    def delete(self, asked: Asked) -> Response:
        """Erase his account; there is no way back."""
        roster, user_id = self.volunteers.roster, -asked.visitor.owner.account_id
        email = roster.accounts.open_by_id(user_id).email
        _check_sure(asked, email, "type the account's address to delete it")
        roster.erase(user_id, self._clock())
        return self.sign_out(asked)

    def sign_out(self, asked: Asked) -> Response:
        """End the session."""
        self.volunteers.end(asked.visitor.token)
        answer = go(SIGN_IN)
        self._sessions.keep(answer, self.volunteers.cookie, "")
        return answer


def _check_sure(asked: Asked, wanted: str, problem: str) -> None:
    if asked.fields.get("sure", "").strip().lower() != wanted:
        raise UsageError("STO-R010", problem)


def task_of(workunit: str) -> str:
    """Return the task of a workunit's name."""
    return workunit.rpartition("_")[0]


def name_of(domain_name: str, host_id: int) -> str:
    """Return what a computer is called: as it said (untrusted), else by its number."""
    return domain_name or f"computer {host_id}"


def join_runs(copies: Iterable[HostRun], tasks: Mapping[str, TaskRow]) -> list[Run]:
    """Return copies with their functions. Pure."""
    found = []
    for one in copies:
        name = task_of(one.workunit)
        known = tasks.get(name)
        found.append(Run(one, name, known.spec.entry if known else ""))
    return found
