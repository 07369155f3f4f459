"""Mirrors: HTTP caches in front of the project that hosts fetch shared files from.

Files are named by their SHA-256 and never change, so anything that keeps what it has
fetched serves them. The project's own nodes are mirrors too, named for what they have
(`holders`). A mirror is not trusted: a host checks what it gets, and the project's own URL
always comes last. BOINC's clients take URLs in the order of the reply and go on to the
next after any failure (``client/pers_file_xfer.cpp``), ours do the same.

One thing they cannot mend: wrong bytes of the right length end a stock client's task
(``cs_files.cpp``: a checksum error is final). So a host that says that its downloads
failed is believed of every result that it was sent before: they go back without counting
against host or workunit, the mirrors are checked at once, and the host is sent to none for a
day. All of this lies in memory: after a restart nothing is named before it was
checked.
"""

from __future__ import annotations

import hmac
import logging
import random
import re
import threading
import time
from collections import OrderedDict
from dataclasses import replace
from http import HTTPStatus
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from stoilo.core.errors import UsageError
from stoilo.core.http_client import HttpClient, HttpError
from stoilo.server.engines.embedded.files.holders import (
    Holders,
    Nodes,
    network_of,
    order_urls,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from stoilo.core.boinc.messages import FileInfo, ReportedResult

log = logging.getLogger(__name__)

# BOINC's exit status of a task whose files could not be had (``ERR_RESULT_DOWNLOAD``)
DOWNLOAD_FAILED: Final = -186
SECRET_BYTES: Final = 32
MOST_MIRRORS: Final = 64
# Mirrors in one reply's list of a file; the project's own server comes after them
MOST_NAMED: Final = 2
# Smaller files lie in the database and are sent as quickly as a mirror is asked
LEAST_BYTES: Final = 64 * 1024
# Longest check of one mirror; whoever stops the server waits for the one in progress
CHECK_S: Final = 5.0
PIECES: Final = 3
PIECE_BYTES: Final = 64 * 1024
DISTRUST_S: Final = 86_400.0
# BOINC's client keeps a failed file while any task needs it, so the results in the reply to
# the report fail at once: they are excused too. What is sent later comes from us alone.
LEFT_OVER_S: Final = 60.0
HOSTS_REMEMBERED: Final = 100_000

_URL: Final = re.compile(
    r"https?://[A-Za-z0-9.\[\]:-]{1,100}/(?:[A-Za-z0-9._~-]{1,80}/)*"
)


def parse_mirrors(text: str) -> tuple[str, ...]:
    """Return the URLs of a setting, separated by commas; raises ``STO-R090``."""
    urls = tuple(part.strip() for part in text.split(",") if part.strip())
    for url in urls:
        if not _URL.fullmatch(url) or not urlsplit(url).hostname:
            raise UsageError(
                "STO-R090",
                f"{url[:80]!r} is no mirror's URL",
                hint="like `https://eu.example.org/stoilo/, https://…/`",
            )
    if len(set(urls)) < len(urls) or len(urls) > MOST_MIRRORS:
        raise UsageError(
            "STO-R090", f"a mirror is named twice, or more than {MOST_MIRRORS} are"
        )
    return urls


def is_mirror_key(secret: Path, said: str) -> bool:
    """Say whether an (untrusted) key is the mirrors'; without a `secret` nobody's is."""
    try:
        key = secret.read_bytes()
    except OSError:
        return False
    # An empty or cut file must not make an empty key good.
    whole = len(key) == SECRET_BYTES
    return whole and hmac.compare_digest(key.hex().encode(), said.encode())


class Mirrors:
    """The mirrors of a project; safe for several threads."""

    def __init__(
        self,
        urls: Iterable[str],  # under which files lie by digest, each with final slash
        clock: Callable[[], float],  # s; only differences matter
        # called when a host says that its downloads failed: check at once
        on_doubt: Callable[[], None] = lambda: None,
    ) -> None:
        self.urls = tuple(urls)
        self.nodes: Nodes | None = None  # the project's own, which hosts fetch from too
        self._clock = clock
        self._on_doubt = on_doubt
        self._lock = threading.Lock()
        self._good: frozenset[str] = frozenset()
        self._were_good = False  # hosts may have been sent to some
        self._distrusting: OrderedDict[int, float] = OrderedDict()

    def holders(self) -> Holders:
        """Return which nodes have what."""
        return self.nodes.holders() if self.nodes else Holders()

    def check(
        self,
        # some shared files of ours, by digest; without any nobody is in use
        samples: Mapping[str, Path],
        held: Mapping[str, Path] | None = None,  # the same of those that nodes have
        most_s: float = CHECK_S,  # longest check of one mirror, s
    ) -> None:
        """Find out which mirrors are in use from now on: those that send what we have."""
        good, asked = set(), dict.fromkeys(self.urls, samples)
        of = self.holders().urls
        for url in sorted(frozenset[str]().union(*of.values()) - asked.keys()):
            has = {d: p for d, p in (held or {}).items() if url in of.get(d, ())}
            asked[url] = has
        for url, known in asked.items():
            problem = check_mirror(url, known, most_s)
            if not problem:
                good.add(url)
            elif known and url in self._good:
                log.warning("mirror %s is out: %s", url, problem)
            if not problem and url not in self._good:
                log.info("mirror %s is in use", url)
        self._good = frozenset(good)
        self._were_good = self._were_good or bool(good)

    def name(
        self,
        files: Iterable[FileInfo],
        host: int,
        address: str = "",  # the host's, as far as it is known
    ) -> tuple[FileInfo, ...]:
        """Return files with the mirrors where a host shall look for what tasks share."""
        good = frozenset[str]() if self._distrusts(host) else self._good
        if not good:
            return tuple(files)
        holders = self.holders()
        rates = holders.rates.get(network_of(address), {})

        def look(file: FileInfo) -> FileInfo:
            if not file.sticky or file.nbytes <= LEAST_BYTES:
                return file
            here = good & holders.urls.get(file.name, frozenset()).union(self.urls)
            ranked = order_urls(here, rates, host, file.name)[:MOST_NAMED]
            return replace(file, mirrors=tuple(f"{url}{file.name}" for url in ranked))

        return tuple(look(file) for file in files)

    def excuses(self, host: int, report: ReportedResult, sent_at: int) -> bool:
        """Say whether a failed result, sent at `sent_at`, is taken for the mirrors' fault.

        Asked twice it says the same: a transaction that fails is done again.
        """
        if report.exit_status != DOWNLOAD_FAILED or not self._were_good:
            return False
        now = self._clock()
        with self._lock:
            begins = not self._distrusts(host)
            if begins:
                self._distrusting.pop(host, None)
                self._distrusting[host] = now
                while len(self._distrusting) > HOSTS_REMEMBERED:
                    self._distrusting.popitem(last=False)
            since = self._distrusting[host]
        if begins:
            self._on_doubt()
        return sent_at < since + LEFT_OVER_S

    def _distrusts(self, host: int) -> bool:
        since = self._distrusting.get(host)
        return since is not None and self._clock() - since < DISTRUST_S


def check_mirror(url: str, samples: Mapping[str, Path], most_s: float) -> str:
    """Return what is wrong with a mirror, empty when some pieces were as they should be.

    A piece is some bytes at a random place of a random file, so a check costs little
    whatever the files' size, and a mirror cannot know which bytes it must not falsify. It
    can still send others to hosts: nothing rests on a check but who is sent where.
    """
    if not samples:
        return "there is no shared file yet to ask for"
    until = time.monotonic() + most_s
    draw = random.SystemRandom()
    client = HttpClient(read_s=most_s)
    try:
        for digest in draw.sample(sorted(samples), min(PIECES, len(samples))):
            piece = _piece(samples[digest], draw)
            if piece is None:
                continue  # the project has just dropped it
            start, expected = piece
            answer = client.fetch(
                "GET",
                url + digest,
                most=len(expected),
                within_s=max(0.0, until - time.monotonic()),
                headers={"Range": f"bytes={start}-{start + len(expected) - 1}"},
            )
            if answer.status != HTTPStatus.PARTIAL_CONTENT:
                return f"HTTP {answer.status} for a part of a file"
            if answer.body != expected:
                return f"wrong bytes of {digest}"
    except HttpError as error:
        return str(error)
    finally:
        client.close()
    return ""


def _piece(path: Path, draw: random.Random) -> tuple[int, bytes] | None:
    """Return a place in a file and the bytes there; None when it is gone."""
    try:
        with path.open("rb") as stream:
            size = stream.seek(0, 2)
            start = stream.seek(draw.randrange(max(1, size - PIECE_BYTES + 1)))
            return start, stream.read(PIECE_BYTES)
    except OSError:
        return None
