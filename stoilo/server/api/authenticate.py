"""Who calls, by the token alone: asked before a byte of the message is read.

What is remembered of a token opens nothing. Each call asks the database itself; here it
decides only whose room and whose turn a message takes.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from stoilo.core.errors import StoiloError
from stoilo.core.limits import BOUNDS
from stoilo.server.admission import tokens as auth
from stoilo.server.db.batcher import Batcher

if TYPE_CHECKING:
    from stoilo.server.db.records import Owner
    from stoilo.server.db.store import Store


KNOWN_FOR_S: Final = 60.0
MOST_KNOWN: Final = 65_536


class Authenticator:
    """Owners by token; many that ask at once share one read. For one event loop.

    Args:
        store: where tokens' digests are.
        clock: seconds since 1970.
        steady: seconds of a clock that is never set.
    """

    def __init__(
        self,
        store: Store,
        clock: Callable[[], int],
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._clock = clock
        self._steady = steady
        self._known: OrderedDict[str, tuple[float, Owner]] = OrderedDict()
        self._asking: Batcher[str, Owner] = Batcher(self._look)

    async def find(self, token: str) -> Owner:
        """Return whose an (untrusted) token is, or raise ``STO-R001``."""
        if len(token) > BOUNDS.token_chars or not token.isascii():
            return await self._asking.submit("")  # nobody's
        digest = auth.token_digest(token)  # the token itself is not kept
        until, known = self._known.get(digest, (0.0, None))
        if known is not None and until > self._steady():
            return known
        owner = await self._asking.submit(token)
        self._known.pop(digest, None)
        self._known[digest] = self._steady() + KNOWN_FOR_S, owner
        while len(self._known) > MOST_KNOWN:
            self._known.popitem(last=False)
        return owner

    def _look(self, tokens: Sequence[str]) -> list[Owner | Exception]:
        answers: list[Owner | Exception] = []
        with self._store.read() as connection:
            for token in tokens:
                try:
                    answers.append(auth.find_owner(connection, token, self._clock()))
                except StoiloError as error:
                    answers.append(error)
        return answers
