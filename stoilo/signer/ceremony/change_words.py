"""What changes in a target, in plain words: pure, and only ever shown.

Trust: old and new bytes may be hostile; what cannot be read is said to be so (`review`
refuses it elsewhere), and names in it are shown without control characters.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from typing import Final, TypeVar

import msgspec

from stoilo.core.digests import content_digest
from stoilo.core.ed25519 import parse_public_key
from stoilo.core.errors import StoiloError
from stoilo.core.plaintext import show_plainly
from stoilo.executor.verifier.release.targets import (
    BuilderFile,
    BuilderKey,
    EpochFile,
    EpochsFile,
    FloorsFile,
    PartFile,
    PolicyFile,
    ProjectFile,
    ReviewerFile,
    RevocationFile,
    read_target,
)
from stoilo.policies.levels import level_files
from stoilo.signer.ceremony.key_holders import group_digest

__all__ = ["describe_target", "render_time", "show_line"]

_YEAR_10000: Final = 253_402_300_800
_FileT = TypeVar("_FileT", bound=msgspec.Struct)


def render_time(seconds: int) -> str:
    """Return a time in UTC, to the minute; hostile times may be absurd."""
    if not 0 <= seconds < _YEAR_10000:
        return "a time that no calendar has"
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")


def describe_target(name: str, old: bytes | None, new: bytes | None) -> tuple[str, ...]:
    """Return everything that differs between two contents of target `name`, a line each.

    Nothing is cut: what matters would be put behind the cut. Targets are bounded.

    Args:
        name: the target's.
        old: as published; None when it is new, or large.
        new: as proposed; None when it goes, or is large.
    """
    for pattern, describe in _DESCRIBERS:
        if re.fullmatch(pattern, name):
            try:
                lines = list(describe(name, old, new))
            except StoiloError as error:
                lines = [f"cannot be read: {error}"]
            return tuple(show_line(line) for line in lines)
    return ()


def show_line(text: str) -> str:
    """Return untrusted `text` as one line, which cannot look like several."""
    return show_plainly(text).replace("\n", "\\n").replace("\t", "\\t")


def _pair(
    name: str, old: bytes | None, new: bytes | None, kind: type[_FileT]
) -> tuple[_FileT | None, _FileT | None]:
    return (
        None if old is None else read_target(old, kind, name),
        None if new is None else read_target(new, kind, name),
    )


def _moved(what: str, old: Iterable[object], new: Iterable[object]) -> Iterator[str]:
    """Yield what left and what joined."""
    before, after = list(old), list(new)
    for one in before:
        if one not in after:
            yield f"- {what} {one}"
    for one in after:
        if one not in before:
            yield f"+ {what} {one}"


def _project(name: str, old: bytes | None, new: bytes | None) -> Iterator[str]:
    before, after = _pair(name, old, new, ProjectFile)
    if after is None:
        return
    yield f"project {after.origin}"
    known = before.levels if before else {}
    for level in sorted({*known, *after.levels}):
        yield from _moved(
            f"level {level}", known.get(level, ()), after.levels.get(level, ())
        )
    yield from _moved(
        "language layer", before.languages if before else (), after.languages
    )


def _epochs(name: str, old: bytes | None, new: bytes | None) -> Iterator[str]:
    before, after = _pair(name, old, new, EpochsFile)
    yield from _moved(
        "gate epoch", before.epochs if before else (), after.epochs if after else ()
    )


def _epoch(name: str, old: bytes | None, new: bytes | None) -> Iterator[str]:
    _, epoch = _pair(name, old, new, EpochFile)
    if epoch is not None:
        yield (
            f"gate epoch {epoch.epoch}: {render_time(epoch.not_before)} to "
            f"{render_time(epoch.not_after)}, {epoch.threshold} of {len(epoch.keys)} "
            f"keys, at most {epoch.max_per_minute} admissions a minute"
        )
        yield from (f"key {key}" for key in epoch.keys)


def _revocations(name: str, old: bytes | None, new: bytes | None) -> Iterator[str]:
    before, after = _pair(name, old, new, RevocationFile)
    known, now = before or RevocationFile(), after or RevocationFile()
    yield from _moved("withdrawn digest", known.digests, now.digests)
    yield from _moved("withdrawn flavor", known.flavors, now.flavors)
    yield from _moved("withdrawn gate epoch", known.epochs, now.epochs)
    yield from _moved("key that may withdraw online", known.keys, now.keys)
    if known.min_epoch != now.min_epoch:
        yield f"lowest gate epoch {known.min_epoch} -> {now.min_epoch}"
    if known.settled != now.settled:
        yield f"online statements settled to {known.settled} -> {now.settled}"


def _policies(name: str, old: bytes | None, new: bytes | None) -> Iterator[str]:
    before, after = _pair(name, old, new, PolicyFile)
    known, now = before or PolicyFile(), after or PolicyFile()
    yield from _moved("policy", known.digests, now.digests)
    if not now.digests:
        yield "any policy of the server is accepted (none is listed)"
    for digest in sorted({*known.reviewed, *now.reviewed}):
        yield from _moved(
            f"needs a review under {digest[:8]}:",
            known.reviewed.get(digest, ()),
            now.reviewed.get(digest, ()),
        )


def _reviewers(name: str, old: bytes | None, new: bytes | None) -> Iterator[str]:
    before, after = _pair(name, old, new, ReviewerFile)
    known, now = before or ReviewerFile(), after or ReviewerFile()
    rows = [
        [f"{one.name or 'without a name'} {one.key}" for one in listed.keys]
        for listed in (known, now)
    ]
    yield from _moved("reviewer", *rows)
    accounts = [
        [
            f"{account} (reviewer {one.key[:8]})"
            for one in listed.keys
            for account in one.accounts
        ]
        for listed in (known, now)
    ]
    yield from _moved("account that a reviewer submits from:", *accounts)


def _floors(name: str, old: bytes | None, new: bytes | None) -> Iterator[str]:
    before, after = _pair(name, old, new, FloorsFile)
    known, now = before or FloorsFile(), after or FloorsFile()
    if known.verifier != now.verifier:
        yield f"oldest verifier that may work: serial {known.verifier} -> {now.verifier}"
    for part in sorted({*known.serials, *now.serials}):
        low, high = known.serials.get(part, 1), now.serials.get(part, 1)
        if low != high:
            yield f"oldest {part} that may run: serial {low} -> {high}"


def _builders(name: str, old: bytes | None, new: bytes | None) -> Iterator[str]:
    before, after = _pair(name, old, new, BuilderFile)
    known, now = before or BuilderFile(), after or BuilderFile()
    rows = [[_builder(one) for one in file.keys] for file in (known, now)]
    yield from _moved("builder", *rows)
    if known.threshold != now.threshold:
        yield f"builders that must agree: {known.threshold} -> {now.threshold}"


def _builder(one: BuilderKey) -> str:
    """Return a builder's name and the fingerprint on his paper."""
    shown = group_digest(content_digest(parse_public_key(one.key).raw))
    return f"{one.name}: {shown}"


def _part(name: str, old: bytes | None, new: bytes | None) -> Iterator[str]:
    before, after = _pair(name, old, new, PartFile)
    if after is None:
        yield "no longer offered"
        return
    was = "new" if before is None else f"{before.version}, serial {before.serial}"
    yield (
        f"{after.part} for {after.platform}: {was} -> {after.version}, serial "
        f"{after.serial}, {after.archive.size:,} bytes"
    )
    if before is not None:
        for field in ("python", "flavor", "level", "lock", "sbom"):
            if getattr(before, field) != getattr(after, field):
                yield f"{field} {getattr(before, field)} -> {getattr(after, field)}"


def _text(name: str, old: bytes | None, new: bytes | None) -> Iterator[str]:
    """Yield a line diff of a text that people write."""
    del name
    before, after = (
        (data or b"").decode("utf-8", "replace").splitlines() for data in (old, new)
    )
    for line in difflib.unified_diff(before, after, lineterm="", n=0):
        if not line.startswith(("---", "+++", "@@")):
            yield f"{line[0]} {line[1:]}"


def _level(name: str, old: bytes | None, new: bytes | None) -> Iterator[str]:
    """Yield what a level's file is: compared with this package's, and line by line."""
    if new is None:
        yield "no longer published"
        return
    level = name.removeprefix("levels/").removesuffix(".toml")
    if level_files().get(level) == new:
        yield "the very file of this installation of stoilo"
    else:
        yield "NOT the file of this installation of stoilo"
    if old is not None:
        yield from _text(name, old, new)


_DESCRIBERS: Final[
    tuple[tuple[str, Callable[[str, bytes | None, bytes | None], Iterator[str]]], ...]
] = (
    (r"project\.json", _project),
    (r"gate/epochs\.json", _epochs),
    (r"gate/[0-9]+\.json", _epoch),
    (r"revocation/denied\.json", _revocations),
    (r"policy/accepted\.json", _policies),
    (r"reviewers/keys\.json", _reviewers),
    (r"executor/floors\.json", _floors),
    (r"builders/keys\.json", _builders),
    (r"(launcher|verifier|flavor/[a-z0-9-]+)/(?![^/]*\.sbom)[^/]+\.json", _part),
    (r"log/[^/]+", _text),
    (r"levels/[^/]+", _level),
)
