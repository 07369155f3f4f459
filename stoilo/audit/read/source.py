"""Where a reader gets a log from: a directory or a web server. Everything is hostile.

Beside the log lie the records that its leaves name and the sources that were published:
in the side store of a data directory, as files ``records/<digest>`` and
``source/<digest>`` beside an exported log, or below ``audit/`` of a server.
"""

from __future__ import annotations

import abc
import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path

from stoilo.audit.format.note import MAX_NOTE_BYTES
from stoilo.audit.format.policy import MAX_POLICY_BYTES, LogPolicy, parse_policy
from stoilo.audit.format.proof import parse_leaf
from stoilo.audit.format.tiles import (
    ENTRIES,
    Tile,
    decode_bundle,
    render_tile_path,
    tile_at,
)
from stoilo.audit.log.seen import MAX_PAGE_BYTES, SeenStore
from stoilo.audit.log.side import (
    MAX_RECORDS_BYTES,
    SIDE_FILE,
    ObjectKind,
    SideStore,
    check_object,
    parse_records,
)
from stoilo.audit.log.store import LogPaths, locate_log
from stoilo.audit.log.tile_directory import TileDirectory
from stoilo.core.digests import check_digest
from stoilo.core.errors import TrustError, UnreachableError, UsageError
from stoilo.core.http_client import HttpClient, HttpError

_ANSWER_S = 60.0
_FOUND = 200
# Logs move: a redirection may lead elsewhere, for nothing that comes is believed.
_CLIENT = HttpClient(read_s=15.0, redirects=5)
_GONE = frozenset({404, 410})
_BELOW_SERVER = "audit/log/"
_LOG = "log"
_FOLDERS = {ObjectKind.RECORD: "records", ObjectKind.SOURCE: "source"}


class LogSource(abc.ABC):
    """One log as its readers see it. Methods raise ``STO-L002`` when it is out of reach."""

    paths: LogPaths | None = None  # where it lies below a data directory

    def checkpoint(self) -> bytes | None:
        """Return the published checkpoint, None when there is none."""
        return self._read("checkpoint", MAX_NOTE_BYTES)

    def policy(self) -> bytes | None:
        """Return the log's own copy of its policy, None when there is none."""
        return self._read("policy.txt", MAX_POLICY_BYTES)

    def tile(self, tile: Tile) -> bytes | None:
        """Return a tile, None when it does not exist."""
        return self._read(render_tile_path(tile), tile.max_bytes)

    def record(self, digest: str) -> bytes | None:
        """Return the record with this digest, None when it is not there.

        It has been hashed (else ``STO-L141``); `stoilo.audit.format.records.check_record`
        says whether it is what its leaf claims.
        """
        return self._object(ObjectKind.RECORD, digest)

    def published_source(self, digest: str) -> bytes | None:
        """Return a source whose submitter chose publication, None when it is not there.

        It has been hashed (else ``STO-L141``); its text is hostile.
        """
        return self._object(ObjectKind.SOURCE, digest)

    @abc.abstractmethod
    def records_of(self, number: int, entries: Sequence[bytes]) -> list[bytes | None]:
        """Return the record of each of `entries`, the first leaves of tile `number`.

        None where a leaf has none (as admissions have); nothing is checked,
        `stoilo.audit.format.records.check_record` is for that. Raises ``STO-L010``.
        """

    @abc.abstractmethod
    def seen(self, number: int) -> bytes | None:
        """Return a page of the checkpoints that executors saw, None beyond the last.

        Hostile; `stoilo.audit.log.seen.parse_seen_page` reads it.
        """

    @abc.abstractmethod
    def _read(self, name: str, limit: int) -> bytes | None:
        """Return at most limit+1 bytes of a file of the log, None for none."""

    @abc.abstractmethod
    def _object(self, kind: ObjectKind, digest: str) -> bytes | None:
        """Return an object from beside the log, hashed, None for none."""


class DirectorySource(LogSource):
    """A log directory, or the one inside a data directory (then `paths` is set)."""

    def __init__(self, path: Path) -> None:
        if not path.is_dir():
            raise UsageError("STO-L001", f"{path} is not a directory")
        log, self.paths = locate_log(path)
        self._files = TileDirectory(log)
        # An exported log has its records inside, whatever its owner called it.
        inside = log.name != _LOG or (log / _FOLDERS[ObjectKind.RECORD]).is_dir()
        beside = log if inside else log.parent
        self._beside = TileDirectory(beside)
        self._side = beside / SIDE_FILE

    def records_of(self, number: int, entries: Sequence[bytes]) -> list[bytes | None]:
        """Return the record of each of a tile's leaves, None where a leaf has none."""
        del number  # on a disk each has a place of its own
        if not self._side.is_file():
            return [self._record_of(entry) for entry in entries]
        with contextlib.closing(SideStore.read_file(self._side)) as side:
            return side.records_of(entries)

    def seen(self, number: int) -> bytes | None:
        """Return a page of seen checkpoints, None beyond the last."""
        store = SeenStore(self._side.with_name("seen.sqlite"), read_only=True)
        with contextlib.closing(store):
            return store.page(number) or self._read(
                f"seen/{number}", MAX_PAGE_BYTES, self._beside
            )

    def _record_of(self, entry: bytes) -> bytes | None:
        try:
            leaf = parse_leaf(entry)
        except TrustError:
            return None
        return self.record(leaf.digest)

    def _object(self, kind: ObjectKind, digest: str) -> bytes | None:
        if self._side.is_file():
            with contextlib.closing(SideStore.read_file(self._side)) as side:
                return side.get(kind, digest)
        name = f"{_FOLDERS[kind]}/{check_digest(digest)}"
        data = self._read(name, kind.max_bytes, self._beside)
        return None if data is None else check_object(kind, digest, data)

    def _read(
        self, name: str, limit: int, files: TileDirectory | None = None
    ) -> bytes | None:
        try:
            return (files or self._files).read(name, limit)
        except OSError as error:
            raise UnreachableError(
                "STO-L002", f"{name} cannot be read: {error.strerror}"
            ) from error


class HttpSource(LogSource):
    """A log below an ``http(s)://`` prefix, or below ``audit/log/`` of that prefix."""

    def __init__(self, url: str) -> None:
        self._prefix = url.rstrip("/") + "/"
        # The address of a server was given, not that of its log.
        if self.checkpoint() is None:
            self._prefix += _BELOW_SERVER
        self._beside = self._prefix.removesuffix(f"{_LOG}/")

    def records_of(self, number: int, entries: Sequence[bytes]) -> list[bytes | None]:
        """Return the record of each of a tile's leaves, None where a leaf has none."""
        data = self._get(f"{self._beside}records/tile/{number}", MAX_RECORDS_BYTES)
        found = parse_records(data or b"")[: len(entries)]
        return found + [None] * (len(entries) - len(found))

    def seen(self, number: int) -> bytes | None:
        """Return a page of seen checkpoints, None beyond the last."""
        return self._get(f"{self._beside}seen/{number}", MAX_PAGE_BYTES)

    def _object(self, kind: ObjectKind, digest: str) -> bytes | None:
        url = f"{self._beside}{_FOLDERS[kind]}/{check_digest(digest)}"
        data = self._get(url, kind.max_bytes)
        return None if data is None else check_object(kind, digest, data)

    def _read(self, name: str, limit: int) -> bytes | None:
        return self._get(self._prefix + name, limit)

    def _get(self, url: str, limit: int) -> bytes | None:
        return read_url(url, limit)


def read_url(url: str, limit: int) -> bytes | None:
    """Return at most limit+1 bytes from an ``http(s)`` URL, None when it is not there.

    The caller checked the scheme. What comes is hostile.

    Raises:
        UnreachableError: ``STO-L002`` no answer, or one that is cut or too slow.
    """
    data = bytearray()
    try:
        with _CLIENT.open("GET", url, within_s=_ANSWER_S) as answer:
            if answer.status in _GONE:
                return None
            if answer.status != _FOUND:
                raise UnreachableError("STO-L002", f"{url} answered {answer.status}")
            for chunk in answer.chunks():
                data += chunk
                if len(data) > limit:  # one byte too many shows the caller that it is
                    break
    except HttpError as error:
        raise UnreachableError(
            "STO-L002", f"{url} cannot be reached: {error}"
        ) from error
    return bytes(data[: limit + 1])


def open_source(location: str | Path) -> LogSource:
    """Return the source that a user named: a path or an ``http(s)`` URL.

    Raises:
        UsageError: ``STO-L001`` when it cannot be a log.
        UnreachableError: ``STO-L002``.
    """
    text = str(location)
    if text.startswith(("http://", "https://")):
        return HttpSource(text)
    if "://" in text:
        raise UsageError("STO-L001", f"not a directory or http(s) URL: {text[:80]!r}")
    return DirectorySource(Path(location))


def find_policy(source: LogSource) -> LogPolicy:
    """Return the log's own copy of its policy; raises ``STO-L005`` when it has none."""
    text = source.policy()
    if text is None:
        raise UsageError(
            "STO-L005",
            "no policy says whose signature to expect",
            hint="pass --policy with a policy file or a log's verifier key",
        )
    return parse_policy(text)


def read_entries(
    read: Callable[[Tile], bytes | None], number: int, size: int
) -> list[bytes]:
    """Return the leaves of one bundle in a log of `size` leaves; hostile until proven.

    Raises:
        TrustError: ``STO-L010`` or ``STO-L032`` when the bundle is bad or missing.
    """
    tile = tile_at(ENTRIES, number, size)
    data = read(tile)
    if data is None:  # a partial bundle goes once the full one is there
        data = read(tile.full)
    if data is None:
        raise TrustError("STO-L032", f"{render_tile_path(tile)} is missing")
    return decode_bundle(data, tile.width)
