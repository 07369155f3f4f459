"""A project's server among its nodes: it hands out what tasks share, and hears who has it.

Nothing here may disturb a task: files wait in a bounded list, whoever is away is asked again
later, and hosts get from the server itself what no node is known to have.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from stoilo.core.background import Repeater
from stoilo.core.errors import StoiloError
from stoilo.learn.store import protocol as p
from stoilo.learn.store.place import ShardPlace
from stoilo.learn.traffic import wire as w
from stoilo.learn.traffic.owner import give_items
from stoilo.server.engines.embedded.files.holders import Holders
from stoilo.server.engines.embedded.files.mirrors import LEAST_BYTES, parse_mirrors

log = logging.getLogger(__name__)
ASK_S: Final = 2.0  # between two questions who has what, and two tries to hand out
STALE_S: Final = 30.0  # after which an answer counts no more
MOST_WAITING: Final = 256  # files; more are offered again by the tasks that need them
MOST_REMEMBERED: Final = 100_000
_MOST_ANSWER: Final = 16 << 20  # bytes
_STOP_S: Final = 10.0


class Origin:
    """A project's nodes, seen from its server; see `holders.Nodes`.

    Args:
        node: the project's own node, which files are given to.
        dispatcher: who knows who has what.
        now: s since 1970; versions are numbered by it, so later ones are greater after a
            restart, too.
    """

    def __init__(
        self,
        node: ShardPlace,
        dispatcher: ShardPlace,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.on_news: Callable[[], None] = lambda: None
        self._node, self._dispatcher, self._now = node, dispatcher, now
        self._lock, self._number = threading.Lock(), 0
        self._waiting = dict[str, Path]()  # by digest
        self._offered = dict[str, None]()  # digests, so that each is given once
        self._holders, self._heard_at = Holders(), float("-inf")
        self._has_asked = False
        self._trouble = dict[str, str]()
        self._threads = (
            Repeater("stoilo-nodes", [self.ask], ASK_S),
            Repeater("stoilo-origin", [self.give], ASK_S),
        )

    def start(self) -> None:
        """Begin to ask and to give, each in a thread."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End both; a file that is being given is left to the process's end."""
        for thread in self._threads:
            thread.stop(_STOP_S)

    def offer(self, digest: str, path: Path) -> None:
        """Let a file spread; see `holders.Nodes`."""
        with self._lock:
            if digest in self._offered or len(self._waiting) >= MOST_WAITING:
                return
            self._offered[digest] = None
            while len(self._offered) > MOST_REMEMBERED:
                self._offered.pop(next(iter(self._offered)))
            self._waiting[digest] = path
        self._threads[1].wake()

    def holders(self) -> Holders:
        """Return who has what; nothing where nobody has said so of late."""
        is_old = time.monotonic() - self._heard_at > STALE_S
        return Holders() if is_old else self._holders

    def ask(self) -> int:
        """Ask the dispatcher once; never more than a question in a while."""
        try:
            with self._dispatcher.connect(w.STALL_S) as stream:
                p.send_frame(stream, w.Locate())
                found: w.Located = w.receive(stream, w.Located, _MOST_ANSWER)
        except (OSError, StoiloError) as error:
            self._tell("the dispatcher", error)
            return 0
        finally:
            self._has_asked = True
        self._tell("the dispatcher")
        before, now = self.holders(), read_holders(found)
        self._holders, self._heard_at = now, time.monotonic()
        if not _urls(now) <= _urls(before):
            self.on_news()
        return 0

    def give(self) -> int:
        """Give the node one file that waits; return whether there may be more."""
        with self._lock:
            # What the nodes had before this server began is not handed out again.
            if not (self._waiting and self._has_asked):
                return 0
            digest, path = next(iter(self._waiting.items()))
        is_over = digest in self.holders().urls or self._give(digest, path)
        with self._lock:
            del self._waiting[digest]
            if not is_over:  # later, and after the others
                self._waiting[digest] = path
        return is_over

    def _give(self, digest: str, path: Path) -> bool:
        """Return whether it is over: given, or nothing that helps to try again."""
        try:
            with path.open("rb") as file:
                size = path.stat().st_size
                if size > LEAST_BYTES:
                    item = w.Item(self._next_number(), digest, size)
                    give_items(self._node, [(item, file)])
        except FileNotFoundError:  # small ones lie in the database; or no task needs it
            return True
        except StoiloError as error:  # it has no room for that, or another token
            self._tell("the node", error)
            return True
        except OSError as error:
            self._tell("the node", error)
            return False
        self._tell("the node")
        return True

    def _next_number(self) -> int:
        """Return a number greater than all before: µs since 1970, or one more."""
        self._number = max(self._number + 1, int(self._now() * 1e6))
        return self._number

    def _tell(self, who: str, error: Exception | None = None) -> None:
        """Log what is wrong with one of them, once for as long as it is the same."""
        why = f"{type(error).__name__}: {error}" if error else ""
        if why != self._trouble.get(who, ""):
            log.warning(
                "%s %s", who, f"cannot be used: {why}" if why else "is well again"
            )
        self._trouble[who] = why


def read_holders(found: w.Located) -> Holders:
    """Return a dispatcher's answer as hosts are sent by it; URLs that are none are out."""
    urls = {node: url for node, url in found.urls.items() if _is_url(url)}
    by_file = {
        digest: frozenset(urls[node] for node in nodes if node in urls)
        for digest, nodes in found.holders.items()
        if nodes
    }
    rates = dict[str, dict[str, float]]()
    for node, network, rate in found.rates:
        if node in urls and rate > 0:
            rates.setdefault(network, {})[urls[node]] = rate
    return Holders(by_file, rates)


def _is_url(url: str) -> bool:
    try:
        return parse_mirrors(url) == (url,)
    except StoiloError:
        return False


def _urls(holders: Holders) -> frozenset[str]:
    return frozenset[str]().union(*holders.urls.values())
