"""A release's lists: records that it has once, each kind under its own name; told in words.

Trust: what is told in words may be hostile; what cannot be read is said to be so (`review`
refuses it elsewhere), and names in it are shown without control characters.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Container, Iterator, Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Final, TypeVar

import msgspec

from stoilo.core.digests import Domain, content_digest, domain_digest
from stoilo.core.errors import StoiloError, TrustError, show_plainly
from stoilo.core.levels import level_files
from stoilo.core.libraries import (
    is_library_target,
    library_digests,
    library_file,
    library_target,
    load_libraries,
)
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
from stoilo.executor.verifier.trust import (
    BUILDERS_FILE,
    EPOCHS_FILE,
    FLOORS_FILE,
    POLICIES_FILE,
    PROJECT_FILE,
    REVIEWERS_FILE,
    REVOCATION_FILE,
)
from stoilo.signer.ceremony.proposal import NewTarget
from stoilo.signer.offline_keys import group_digest

LISTS: Final[Mapping[type[msgspec.Struct], str]] = MappingProxyType(
    {
        ProjectFile: PROJECT_FILE,
        FloorsFile: FLOORS_FILE,
        BuilderFile: BUILDERS_FILE,
        EpochsFile: EPOCHS_FILE,
        PolicyFile: POLICIES_FILE,
        RevocationFile: REVOCATION_FILE,
        ReviewerFile: REVIEWERS_FILE,
    }
)

Targets = Callable[[str], bytes | None]
"""Returns a small target's bytes by name, None where the release does not name it."""

_ListT = TypeVar("_ListT", bound=msgspec.Struct)


def read_list(targets: Targets, kind: type[_ListT]) -> _ListT:
    """Return a release's list of one kind, an empty one where it has none.

    Raises ``STO-K052`` without ``project.json``, which no release lacks; ``STO-K013``.
    """
    name = LISTS[kind]
    data = targets(name)
    if data is None and kind is ProjectFile:
        raise TrustError("STO-K052", f"the release has no {name}")
    return read_target(b"{}" if data is None else data, kind, name)


def read_epoch_files(targets: Targets) -> tuple[EpochFile, ...]:
    """Return the gate epochs that a release certifies, by number; raises ``STO-K013``."""
    return tuple(
        read_target(targets(name) or b"", EpochFile, name)
        for name in (
            f"gate/{number}.json"
            for number in sorted(read_list(targets, EpochsFile).epochs)
        )
    )


def list_target(record: msgspec.Struct) -> NewTarget:
    """Return a list as the target that holds it."""
    return NewTarget.of(LISTS[type(record)], msgspec.json.encode(record))


def library_targets(listed: Container[str] | None = None) -> Iterator[NewTarget]:
    """Yield the files of this package's libraries: all, or those of digests `listed`."""
    for one in load_libraries():
        if listed is None or one.digest in listed:
            yield NewTarget.of(library_target(one), library_file(one.name) or b"")


_YEAR_10000: Final = 253_402_300_800


def render_time(seconds: int) -> str:
    """Return a time in UTC, to the minute; hostile times may be absurd."""
    if not 0 <= seconds < _YEAR_10000:
        return "a time that no calendar has"
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")


def describe_target(name: str, old: bytes | None, new: bytes | None) -> tuple[str, ...]:
    """Return everything that differs between two contents of target `name`, a line each.

    What a target says is told line by line; lines that go begin with ``-``, those that
    come with ``+``. Nothing is cut: what matters would be put behind the cut. Targets are
    bounded.

    Args:
        name: the target's.
        old: as published; None when it is new, or large.
        new: as proposed; None when it goes, or is large.
    """
    for pattern, kind, tell in _TELLERS:
        if not re.fullmatch(pattern, name):
            continue
        try:
            before, after = (
                []
                if data is None
                else [*tell(data if kind is None else read_target(data, kind, name))]
                for data in (old, new)
            )
        except StoiloError as error:
            return (show_line(f"cannot be read: {error}"),)
        changed = [*difflib.unified_diff(before, after, lineterm="", n=0)]
        lines = _compared(name, new)
        # The first two are headings. By place: a line of the file's own could look like one.
        lines += [f"{one[0]} {one[1:]}" for one in changed[2:] if one[0] != "@"]
        return tuple(map(show_line, lines))
    return ()


def _compared(name: str, new: bytes | None) -> list[str]:
    """Return whether a level's or library's file is this package's; else nothing."""
    folder, _, level = name.removesuffix(".toml").partition("/")
    if new is None or not (folder == "levels" or is_library_target(name)):
        return []
    if folder == "levels":
        same = level_files().get(level) == new
    else:
        same = domain_digest(Domain.LIBRARY, new) in library_digests()
    return [
        f"{'the very' if same else 'NOT the'} file of this installation of stoilo",
    ]


def show_line(text: str) -> str:
    """Return untrusted `text` as one line, which cannot look like several."""
    return show_plainly(text).replace("\n", "\\n").replace("\t", "\\t")


def _project(told: ProjectFile) -> Iterator[str]:
    yield f"project {told.origin}"
    for level, digests in sorted(told.levels.items()):
        yield from (f"level {level} {digest}" for digest in digests)
    yield from (f"language layer {digest}" for digest in told.languages)


def _epochs(told: EpochsFile) -> Iterator[str]:
    yield from (f"gate epoch {number}" for number in told.epochs)


def _epoch(told: EpochFile) -> Iterator[str]:
    yield (
        f"gate epoch {told.epoch}: {render_time(told.not_before)} to "
        f"{render_time(told.not_after)}, {told.threshold} of {len(told.keys)} keys, at "
        f"most {told.max_per_minute} admissions a minute"
    )
    yield from (f"key {key}" for key in told.keys)


def _revocations(told: RevocationFile) -> Iterator[str]:
    yield from (f"withdrawn digest {one}" for one in told.digests)
    yield from (f"withdrawn flavor {one}" for one in told.flavors)
    yield from (f"withdrawn gate epoch {one}" for one in told.epochs)
    yield from (f"key that may withdraw online {one}" for one in told.keys)
    yield f"lowest gate epoch {told.min_epoch}"
    yield f"online statements settled to {told.settled}"


def _policies(told: PolicyFile) -> Iterator[str]:
    yield from (f"policy {one}" for one in told.digests)
    if not told.digests:
        yield "any policy of the server is accepted (none is listed)"
    for digest, levels in sorted(told.reviewed.items()):
        yield from (f"needs a review under {digest[:8]}: {level}" for level in levels)


def _reviewers(told: ReviewerFile) -> Iterator[str]:
    for one in told.keys:
        yield f"reviewer {one.name or 'without a name'} {one.key}"
        for account in one.accounts:
            yield f"account that reviewer {one.key[:8]} submits from: {account}"


def _floors(told: FloorsFile) -> Iterator[str]:
    yield f"oldest verifier that may work: serial {told.verifier}"
    for part, serial in sorted(told.serials.items()):
        yield f"oldest {part} that may work: serial {serial}"


def _builders(told: BuilderFile) -> Iterator[str]:
    for one in told.keys:
        # As on the paper that its holder reads from.
        fingerprint = group_digest(content_digest(parse_public_key(one.key).raw))
        yield f"builder {one.name or 'without a name'} {fingerprint}"
    yield f"builders that must agree: {told.threshold}"


def _part(told: PartFile) -> Iterator[str]:
    yield (
        f"{told.part} for {told.platform}: {told.version}, serial {told.serial}, "
        f"{told.archive.size:,} bytes"
    )
    for field in ("python", "flavor", "level", "lock", "sbom"):
        if value := getattr(told, field):
            yield f"{field} {value}"
    yield from (f"library {digest}" for digest in told.libraries)


def _text(data: bytes) -> Iterator[str]:
    yield from data.decode("utf-8", "replace").splitlines()


_TELLERS: Final[
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
        r"(launcher/|verifier/|flavor/[a-z0-9-]+/|policy/flavor-)(?![^/]*\.sbom)[^/]+\.json",
        PartFile,
        _part,
    ),
    (r"(log|levels)/[^/]+|policy/library-[^/]+", None, _text),
)
