"""The parts of a log as they lie on the disk, each perhaps damaged, and what is signed."""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TypeVar

from stoilo.audit.format.merkle import Checkpoint, parse_checkpoint
from stoilo.audit.format.note import NoteSignature, VerifierKey, parse_note
from stoilo.audit.format.policy import (
    MAX_POLICY_BYTES,
    LogPolicy,
    SignedCheckpoint,
    open_checkpoint,
    parse_policy,
    render_policy,
)
from stoilo.audit.format.tiles import Tile, render_tile_path
from stoilo.audit.log.store import HeadState, locate_log, unseal
from stoilo.audit.log.tile_directory import TileDirectory
from stoilo.core.errors import StoiloError, UnreachableError, UsageError

_FORBIDDEN = frozenset({errno.EACCES, errno.EPERM})


Value = TypeVar("Value")


class LogParts:
    """Where the parts are, and guarded ways to read them.

    Args:
        location: a data directory, its ``audit`` directory or a log directory.
        found: where to say what cannot be read.

    Raises:
        UsageError: ``STO-L001`` when there is no log.
    """

    def __init__(self, location: Path, found: FaultList) -> None:
        log, self.paths = locate_log(location)
        begun = (log / "checkpoint").exists() or (log / "tile").exists()
        if self.paths is None and not begun:
            raise UsageError("STO-L001", f"there is no log in {location}")
        self.found = found
        self.files = TileDirectory(log)
        self.top = log if self.paths is None else self.paths.head.parent.parent

    def name(self, path: Path) -> str:
        """Return a path as reports name it."""
        return os.path.relpath(path, self.top)

    def published(self, name: str) -> str:
        """Return the reported name of a published file."""
        return self.name(self.files.path / name)

    def tile_name(self, tile: Tile) -> str:
        """Return the reported name of a tile."""
        return self.published(render_tile_path(tile))

    def read(self, name: str, limit: int) -> bytes | None:
        """Return a published file; None when it is absent, or unreadable (reported)."""
        return self.guard(self.published(name), lambda: self.files.read(name, limit))

    def read_tile(self, tile: Tile) -> bytes | None:
        """Return a tile; None when it is absent, or unreadable (reported)."""
        return self.read(render_tile_path(tile), tile.max_bytes)

    def tiles(self) -> list[Tile]:
        """Return every stored tile."""
        name = self.published("tile")
        return self.guard(name, lambda: list(self.files.tiles())) or []

    def guard(
        self, name: str, read: Callable[[], Value], place: str = ""
    ) -> Value | None:
        """Read something; None when the machine refuses (reported).

        Raises:
            UnreachableError: ``STO-L002`` when permission is missing.
        """
        remedy = f"check the disk; restore {name} from the newest backup"
        try:
            return read()
        except OSError as error:
            # Missing permission says nothing about the log: no fault of it.
            if error.errno in _FORBIDDEN:
                raise UnreachableError(
                    "STO-L002", f"{name} cannot be read: {error.strerror}"
                ) from error
            text = f"cannot be read: {error.strerror}"
            self.found.fault("STO-L098", name, text, place=place, remedy=remedy)
        except (sqlite3.DatabaseError, UnicodeError) as error:
            text = f"cannot be read: {error}"
            self.found.fault("STO-L049", name, text, place=place, remedy=remedy)
        except StoiloError as error:
            self.found.fault(
                error.code, name, error.message, place=place, remedy=remedy
            )
        return None


# A disk that lost everything must not fill the memory with reports of it.
MAX_FINDINGS = 1000


class Severity(StrEnum):
    """Whether something is wrong, or only worth knowing."""

    FAULT = "fault"
    NOTICE = "notice"


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing found.

    Attributes:
        code: the stable code, for `stoilo explain`.
        severity: a fault, or the harmless remains of a crash.
        file: the file, relative to the directory that was checked.
        place: where in the file (``leaf 17``, ``page 3``), empty for all of it.
        message: what is there and what should be.
        remedy: which backup or other copy would help; empty for a notice.
    """

    code: str
    severity: Severity
    file: str
    place: str
    message: str
    remedy: str

    def __str__(self) -> str:
        """Return one line: where, what, which code."""
        place = f", {self.place}" if self.place else ""
        return f"{self.file}{place}: {self.message} [{self.code}]"


class FaultList:
    """Collects findings; keeps at most `MAX_FINDINGS` and counts the others."""

    def __init__(self) -> None:
        self.kept: list[Fault] = []
        self._known: set[Fault] = set()
        self.omitted = 0
        self.faults = 0

    def fault(
        self, code: str, file: str, message: str, *, place: str = "", remedy: str = ""
    ) -> None:
        """Record something that is wrong."""
        if self._keep(Fault(code, Severity.FAULT, file, place, message, remedy)):
            self.faults += 1

    def notice(self, code: str, file: str, message: str, *, place: str = "") -> None:
        """Record something worth knowing that is not wrong."""
        self._keep(Fault(code, Severity.NOTICE, file, place, message, ""))

    def _keep(self, finding: Fault) -> bool:
        """Take a finding; False when it was kept before (a part is read twice)."""
        if finding in self._known:
            return False
        if len(self.kept) < MAX_FINDINGS:
            self.kept.append(finding)
            self._known.add(finding)
        else:
            self.omitted += 1
        return True


_FLIPPED_BITS = 4  # in a key id; another key's differs in 16 of 32, give or take


_HEAD_COPY = "the copy of the newest checkpoint"


@dataclass(frozen=True, slots=True)
class Anchor:
    """A checkpoint to measure the log by.

    Attributes:
        checkpoint: origin, size and root.
        file: where it was found.
        signed: what its signatures say; None where they did not verify.
    """

    checkpoint: Checkpoint
    file: str
    signed: SignedCheckpoint | None = None


def read_policy(parts: LogParts, given: LogPolicy | None) -> LogPolicy | None:
    """Check the log's own copy of its policy; return the policy to believe.

    `given` is trusted and wins; the log's own copy only lets it agree with itself.
    """
    text = parts.read("policy.txt", MAX_POLICY_BYTES)
    own = None
    if text is not None:
        own = _own_policy(parts, text)
    elif given is None:
        parts.found.fault(
            "STO-L005",
            parts.published("policy.txt"),
            "is missing, and no policy was given: no signature can be checked",
            remedy="give --policy, or restore policy.txt",
        )
    return given or own


def _own_policy(parts: LogParts, text: bytes) -> LogPolicy | None:
    name = parts.published("policy.txt")
    remedy = f"restore {name}; the server writes it again when it starts"
    try:
        policy = parse_policy(text)
    except StoiloError as error:
        parts.found.fault(error.code, name, error.message, remedy=remedy)
        return None
    plain = unseal(text)
    if plain != render_policy(policy):
        message = (
            "its last line does not fit the others"
            if plain is None
            else "is not in the form in which the log writes it"
        )
        parts.found.fault("STO-L094", name, message, remedy=remedy)
    return policy


def find_anchor(
    parts: LogParts,
    note: bytes | None,
    head: HeadState | None,
    policy: LogPolicy | None,
) -> Anchor | None:
    """Check the published checkpoint and its copy; return the best of them.

    `note` is the published one, as read before anything else.
    """
    published = _judge(parts, note, parts.published("checkpoint"), policy)
    copy = None
    if head is not None and parts.paths is not None:
        name = parts.name(parts.paths.head)
        copy = _judge(parts, head.published, name, policy, _HEAD_COPY)
    if published is None and copy is not None:
        parts.found.fault(
            "STO-L034",
            parts.published("checkpoint"),
            f"is missing or unreadable; one of {copy.checkpoint.size} leaves was "
            "published",
            remedy="restore the log directory; the head database holds a copy of it",
        )
    if note is None and parts.paths is None:
        text = "is missing, though there are tiles"
        parts.found.fault(
            "STO-L034", parts.published("checkpoint"), text, remedy="restore it"
        )
    if published is not None and copy is not None:
        _compare(parts, published, copy)
    signed = [one for one in (published, copy) if one is not None and one.signed]
    return next(iter(signed), published or copy)


def _judge(
    parts: LogParts,
    note: bytes | None,
    file: str,
    policy: LogPolicy | None,
    place: str = "",
) -> Anchor | None:
    """Return what a note says; report what does not hold about it."""
    if note is None:
        return None
    remedy = f"restore {file} from the newest backup"
    try:
        if policy is not None:
            signed = open_checkpoint(note, policy)
            _check_lines(parts, note, file, policy, place)
            return Anchor(signed.checkpoint, file, signed)
    except StoiloError as error:
        parts.found.fault(error.code, file, error.message, place=place, remedy=remedy)
    try:
        return Anchor(parse_checkpoint(parse_note(note).text), file)
    except StoiloError as error:
        if policy is None:
            parts.found.fault(
                error.code, file, error.message, place=place, remedy=remedy
            )
        return None


def _check_lines(
    parts: LogParts, note: bytes, file: str, policy: LogPolicy, place: str
) -> None:
    """Report a signature line that is half of one of ours: nobody checks it then."""
    keys = [*policy.logs, *(one.key for one in policy.witnesses)]
    for item in parse_note(note).signatures:
        if any(_is_half(item, key) for key in keys):
            parts.found.fault(
                "STO-L012",
                file,
                f"the signature line of {item.name!r} has a wrong name or key id",
                place=place,
                remedy=f"restore {file} from the newest backup",
            )


def _is_half(item: NoteSignature, key: VerifierKey) -> bool:
    """Tell a damaged line from that of a key that has been replaced under its name."""
    # A flipped bit hides a line from every check: its key is then "unknown".
    differing = int.from_bytes(item.key_id) ^ int.from_bytes(key.key_id)
    if item.name != key.name:
        return differing == 0
    return 0 < differing.bit_count() <= _FLIPPED_BITS


def _compare(parts: LogParts, published: Anchor, copy: Anchor) -> None:
    size, known = published.checkpoint.size, copy.checkpoint.size
    if size < known:
        parts.found.fault(
            "STO-L045",
            published.file,
            f"covers {size} leaves, but a checkpoint of {known} was published",
            remedy="restore the newest backup of the log directory",
        )
    elif size == known and published.checkpoint != copy.checkpoint:
        parts.found.fault(
            "STO-L046",
            published.file,
            f"has another root than its copy in {copy.file} of the same size",
            remedy="keep both: signed by one key they prove misbehaviour",
        )
