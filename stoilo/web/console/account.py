"""One's own account: passkeys and tokens, made and removed by their holder.

What lasts longer than a session is made only by who signed in a moment ago: a stolen
cookie must not become a passkey of the thief's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from stoilo.core.errors import DeniedError, UsageError
from stoilo.server.admission.quotas import RateMeter
from stoilo.server.data_directory import read_connection_file
from stoilo.server.operations import access, sign_ins
from stoilo.web.console import wording
from stoilo.web.console.asking import Asked, download, go
from stoilo.web.console.ceremonies import read_challenge
from stoilo.web.language import gettext

if TYPE_CHECKING:
    from starlette.responses import Response

    from stoilo.server.app.task_server import ServerPlace
    from stoilo.web.console.ceremonies import Ceremonies
    from stoilo.web.console.tickets import Tickets

NEW_PER_HOUR: Final = 20  # tokens and passkeys of an account: each is a leaf of the log
DAYS: Final = 90  # of a token, unless its holder says otherwise


class Account:
    """The handlers of one server; they block."""

    def __init__(
        self, place: ServerPlace, tickets: Tickets, ceremonies: Ceremonies | None
    ) -> None:
        self._data, self._store = place.data, place.tasks.store
        self._clock = place.watch.sources.clock
        self._tickets, self._ceremonies = tickets, ceremonies
        self._meter = RateMeter("STO-R005", "new tokens and passkeys")

    def page(self, asked: Asked) -> Response:
        """``/console/account``: what opens the account, and a way to more."""
        owner, now = asked.visitor.owner, self._clock()
        with self._store.read() as connection:
            keys = sign_ins.list_passkeys(connection, owner.account_id, now)
            held = access.tokens_of(connection, owner.account_id)
        whole = [one for one in held if one.scope == "*" and access.is_good(one, now)]
        return asked.render(
            "console/account.html",
            passkeys=keys,
            tokens=whole,
            id_chars=access.ID_CHARS,
            days=DAYS,
            most_days=access.MOST_DAYS,
            may=asked.visitor.fresh and not owner.suspended,
            place=self._ceremonies and self._ceremonies.place,
            options=self._ask_to_make(asked, [one.credential for one in keys]),
            said=gettext(wording.SAID.get(asked.query("said"), "")),
        )

    def _ask_to_make(self, asked: Asked, known: list[bytes]) -> str:
        if self._ceremonies is None:
            return ""
        owner, challenge = asked.visitor.owner, self._tickets.make(_purpose(asked))
        user = self._ceremonies.user_id(owner.account_id, owner.name)
        return self._ceremonies.ask_to_make(user, owner.name, known, challenge)

    def add_passkey(self, asked: Asked) -> Response:
        """Keep the passkey that the account's holder has just made."""
        self._check(asked)
        if self._ceremonies is None:
            raise UsageError(
                "STO-R010", "there are no passkeys at an address of digits"
            )
        challenge = read_challenge(asked.fields)
        self._tickets.check(challenge, _purpose(asked))
        made = self._ceremonies.read_made(asked.fields, challenge)
        self._tickets.spend(challenge, _purpose(asked))
        owner, name = asked.visitor.owner, asked.fields.get("name", "")
        with self._store.write() as connection:
            sign_ins.add_passkey(connection, owner, made, name, self._clock())
        return go("/console/account?said=passkey")

    def add_token(self, asked: Asked) -> Response:
        """Give a connection file with a new token, to be saved: shown nowhere again."""
        self._check(asked)
        owner, days = asked.visitor.owner, asked.fields.get("days", "")
        if not (days.isascii() and days.isdecimal() and len(days) < len("1000")):
            raise UsageError("STO-R010", f"days are 1 to {access.MOST_DAYS}")
        file = read_connection_file(self._data)
        label = asked.fields.get("label", "")
        token = access.issue_own(self._store, owner, label, int(days), self._clock())
        made = msgspec.json.encode(msgspec.structs.replace(file, token=token))
        return download(made, "connection.json", "application/json")

    def remove(self, asked: Asked) -> Response:
        """End one of the account's own passkeys or tokens; another's is not found."""
        token = asked.fields.get("token", "")
        access.end_own(self._store, asked.visitor.owner, token, self._clock())
        return go("/console/account?said=removed")

    def _check(self, asked: Asked) -> None:
        """Raise unless the visitor may make himself something that lasts."""
        owner = asked.visitor.owner
        if owner.suspended:
            raise DeniedError("STO-R009", "the account is suspended")
        if not asked.visitor.fresh:
            raise DeniedError(
                "STO-E016",
                "you signed in more than 15 minutes ago",
                hint="sign out and in again: what lasts is made by a fresh session",
            )
        self._meter.check(owner.account_id, NEW_PER_HOUR)


def _purpose(asked: Asked) -> str:
    return f"make {asked.visitor.token}"
