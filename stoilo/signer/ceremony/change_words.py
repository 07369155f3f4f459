"""What changes in a target, in plain words: pure, and only ever shown.

Trust: old and new bytes may be hostile; what cannot be read is said to be so (`review`
refuses it elsewhere), and names in it are shown without control characters.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from stoilo.core.digests import content_digest
from stoilo.core.errors import StoiloError
from stoilo.core.levels import level_files
from stoilo.core.plaintext import show_plainly
from stoilo.core.signatures import parse_public_key
from stoilo.executor.verifier.targets import (
    BuilderFile,
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
from stoilo.signer.offline_keys import group_digest

_YEAR_10000: Final = 253_402_300_800


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
    for pattern, kind, describe in _DESCRIBERS:
        if re.fullmatch(pattern, name):
            try:
                if kind is not None:
                    pair = (_read(name, old, kind), _read(name, new, kind))
                else:
                    pair = (old, new)
                lines = list(describe(*pair))
            except StoiloError as error:
                lines = [f"cannot be read: {error}"]
            return tuple(show_line(line) for line in lines)
    if name.startswith("levels/"):
        return tuple(show_line(line) for line in _level(name, old, new))
    return ()


def show_line(text: str) -> str:
    """Return untrusted `text` as one line, which cannot look like several."""
    return show_plainly(text).replace("\n", "\\n").replace("\t", "\\t")


def _read(name: str, data: bytes | None, kind: type[msgspec.Struct]) -> Any:  # noqa: ANN401
    """Return a record; one that is not there is that of an empty list, if it has one."""
    if data is not None:
        return read_target(data, kind, name)
    return None if kind in _NEVER_EMPTY else kind()


def _moved(what: str, old: Iterable[object], new: Iterable[object]) -> Iterator[str]:
    before, after = list(old), list(new)
    yield from (f"- {what} {one}" for one in before if one not in after)
    yield from (f"+ {what} {one}" for one in after if one not in before)


def _stepped(what: str, old: object, new: object) -> Iterator[str]:
    if old != new:
        yield f"{what} {old} -> {new}"


def _project(old: ProjectFile | None, new: ProjectFile | None) -> Iterator[str]:
    if new is None:
        return
    yield f"project {new.origin}"
    known = old.levels if old else {}
    for level in sorted({*known, *new.levels}):
        yield from _moved(
            f"level {level}", known.get(level, ()), new.levels.get(level, ())
        )
    yield from _moved("language layer", old.languages if old else (), new.languages)


def _epochs(old: EpochsFile, new: EpochsFile) -> Iterator[str]:
    yield from _moved("gate epoch", old.epochs, new.epochs)


def _epoch(_: EpochFile | None, epoch: EpochFile | None) -> Iterator[str]:
    if epoch is not None:
        yield (
            f"gate epoch {epoch.epoch}: {render_time(epoch.not_before)} to "
            f"{render_time(epoch.not_after)}, {epoch.threshold} of {len(epoch.keys)} "
            f"keys, at most {epoch.max_per_minute} admissions a minute"
        )
        yield from (f"key {key}" for key in epoch.keys)


def _revocations(old: RevocationFile, new: RevocationFile) -> Iterator[str]:
    yield from _moved("withdrawn digest", old.digests, new.digests)
    yield from _moved("withdrawn flavor", old.flavors, new.flavors)
    yield from _moved("withdrawn gate epoch", old.epochs, new.epochs)
    yield from _moved("key that may withdraw online", old.keys, new.keys)
    yield from _stepped("lowest gate epoch", old.min_epoch, new.min_epoch)
    yield from _stepped("online statements settled to", old.settled, new.settled)


def _policies(old: PolicyFile, new: PolicyFile) -> Iterator[str]:
    yield from _moved("policy", old.digests, new.digests)
    if not new.digests:
        yield "any policy of the server is accepted (none is listed)"
    for digest in sorted({*old.reviewed, *new.reviewed}):
        yield from _moved(
            f"needs a review under {digest[:8]}:",
            old.reviewed.get(digest, ()),
            new.reviewed.get(digest, ()),
        )


def _reviewers(old: ReviewerFile, new: ReviewerFile) -> Iterator[str]:
    names = (
        [f"{one.name or 'without a name'} {one.key}" for one in listed.keys]
        for listed in (old, new)
    )
    yield from _moved("reviewer", *names)
    accounts = (
        [
            f"{name} (reviewer {one.key[:8]})"
            for one in listed.keys
            for name in one.accounts
        ]
        for listed in (old, new)
    )
    yield from _moved("account that a reviewer submits from:", *accounts)


def _floors(old: FloorsFile, new: FloorsFile) -> Iterator[str]:
    what = "oldest verifier that may work: serial"
    yield from _stepped(what, old.verifier, new.verifier)
    for part in sorted({*old.serials, *new.serials}):
        low, high = old.serials.get(part, 1), new.serials.get(part, 1)
        yield from _stepped(f"oldest {part} that may run: serial", low, high)


def _builders(old: BuilderFile, new: BuilderFile) -> Iterator[str]:
    # the fingerprint as it stands on the builder's paper
    rows = (
        [
            f"{one.name}: {group_digest(content_digest(parse_public_key(one.key).raw))}"
            for one in file.keys
        ]
        for file in (old, new)
    )
    yield from _moved("builder", *rows)
    yield from _stepped("builders that must agree:", old.threshold, new.threshold)


def _part(old: PartFile | None, new: PartFile | None) -> Iterator[str]:
    if new is None:
        yield "no longer offered"
        return
    was = "new" if old is None else f"{old.version}, serial {old.serial}"
    yield (
        f"{new.part} for {new.platform}: {was} -> {new.version}, serial "
        f"{new.serial}, {new.archive.size:,} bytes"
    )
    for field in ("python", "flavor", "level", "lock", "sbom") if old else ():
        yield from _stepped(field, getattr(old, field), getattr(new, field))


def _text(old: bytes | None, new: bytes | None) -> Iterator[str]:
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
        yield from _text(old, new)


_NEVER_EMPTY: Final = (ProjectFile, EpochFile, PartFile)
_DESCRIBERS: Final[
    tuple[tuple[str, type[msgspec.Struct] | None, Callable[..., Iterator[str]]], ...]
] = (
    (r"project\.json", ProjectFile, _project),
    (r"gate/epochs\.json", EpochsFile, _epochs),
    (r"gate/[0-9]+\.json", EpochFile, _epoch),
    (r"revocation/denied\.json", RevocationFile, _revocations),
    (r"policy/accepted\.json", PolicyFile, _policies),
    (r"reviewers/keys\.json", ReviewerFile, _reviewers),
    (r"executor/floors\.json", FloorsFile, _floors),
    (r"builders/keys\.json", BuilderFile, _builders),
    (
        r"(launcher|verifier|flavor/[a-z0-9-]+)/(?![^/]*\.sbom)[^/]+\.json",
        PartFile,
        _part,
    ),
    (r"log/[^/]+", None, _text),
)
