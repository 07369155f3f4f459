"""From a root and a release's files to a `TrustedRelease`: TUF by python-tuf's own client.

Trust: a frozen verifier takes its root from ``built.json`` in its own tree, whose digest the
launcher holds; an unfrozen one has none and takes it from ``--root FILE`` (design §3). All
other files are hostile until the workflow of `tuf_client` has accepted them.
Every check is offline. Source: TUF specification 1.0.34 §5.3 to §5.6.
"""

from __future__ import annotations

import base64
import binascii
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Annotated, Final, Literal

import msgspec

from stoilo.audit.format.policy import (
    LogPolicy,
    parse_history,
    parse_policy,
    with_history,
)
from stoilo.core.digests import content_digest
from stoilo.core.errors import TrustError
from stoilo.core.levels import Level, load_levels, load_older_levels
from stoilo.core.libraries import read_libraries
from stoilo.core.signatures import parse_public_key, parse_strict_json
from stoilo.core.types import BOUNDS
from stoilo.executor.verifier.targets import (
    LOWEST,
    BuilderFile,
    Floors,
    FloorsFile,
    PartFile,
    PolicyFile,
    ProjectFile,
    Reviewer,
    ReviewerFile,
    RevocationFile,
    TrustedRelease,
    find,
    read_epochs,
    read_parts,
    read_target,
)
from stoilo.executor.verifier.tuf_client import (
    ReleaseUpdater,
    cache_directory,
)
from stoilo.sandbox.language.rules import LANGUAGE_DIGEST

MAX_BYTES = BOUNDS.metadata_bytes
MAX_FILES = 512
MAX_PACK_BYTES = 8 * 1024 * 1024
_NAME = re.compile(r"(metadata|targets)(/[A-Za-z0-9][A-Za-z0-9._-]{0,127}){1,3}")


@dataclass(frozen=True, slots=True)
class ReleaseFiles:
    """A release's public files, hostile: ``metadata/…`` and ``targets/…`` by name."""

    files: tuple[tuple[str, bytes], ...]

    def get(self, name: str) -> bytes | None:
        """Return the bytes of file `name`."""
        return next((data for known, data in self.files if known == name), None)


def travels(name: str) -> bool:
    """Whether release file or target `name` travels with every workunit.

    Metadata and small records do; launchers, archives, their manifests and their bills
    of materials are fetched by those who need them.
    """
    return name.endswith((".json", ".txt", ".toml")) and not name.endswith(".sbom.json")


def check_file(name: str, data: bytes) -> None:
    """Raise ``STO-K013`` unless `name` and size are those of a release's file."""
    if not _NAME.fullmatch(name) or ".." in PurePosixPath(name).parts:
        raise TrustError("STO-K013", f"{name[:64]!r} is not a release file's name")
    if len(data) > MAX_BYTES:
        raise TrustError("STO-K013", f"{name} is larger than a release file may be")


def parse_release_pack(data: bytes) -> ReleaseFiles:
    """Parse a release's pack (hostile); raises ``STO-K013`` or JSON's codes."""
    document = parse_strict_json(data, max_bytes=MAX_PACK_BYTES, what="release")
    if not isinstance(document, dict) or len(document) > MAX_FILES:
        raise TrustError("STO-K013", "the release is not one of bounded files")
    files = []
    for name, text in document.items():
        try:
            content = base64.b64decode(str(text), validate=True)
        except (binascii.Error, ValueError) as error:
            raise TrustError("STO-K013", "a release file is not base64") from error
        check_file(name, content)
        files.append((name, content))
    return ReleaseFiles(tuple(files))


# What this verifier was built with, and holds

BUILT_FILE: Final = "built.json"
"""Beside this module, in the frozen tree only."""

MAX_BUILT_BYTES: Final = 1024 * 1024

_Version = Annotated[int, msgspec.Meta(ge=1, le=2**31)]
_Word = Annotated[str, msgspec.Meta(pattern=r"\A[A-Za-z0-9._+-]{1,64}\Z")]


class Built(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``built.json`` of one verifier."""

    format: Literal["stoilo-built/1"]  # version of this file
    part: Literal["verifier"]  # always the verifier
    platform: _Word  # for example ``x86_64-linux``
    version: _Word  # for people
    serial: _Version  # rises with every release of the verifier
    # of the source it was built from; empty when not said
    commit: Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-f]{0,64}\Z")]
    # TUF root metadata, base64: the only root this verifier knows
    root: Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_BUILT_BYTES)]
    # the project that it belongs to
    origin: Annotated[str, msgspec.Meta(min_length=1, max_length=128)]
    rehearsal: bool = False  # whether it belongs to a staging root
    development: bool = False  # whether roots of development and rehearsal are accepted
    floors: Floors = LOWEST  # lowest versions accepted

    def root_bytes(self) -> bytes:
        """Return the root metadata, as `parse_built` has checked it."""
        return base64.b64decode(self.root, validate=True)


def parse_built(data: bytes) -> Built:
    """Parse a built file, strictly; raises ``STO-F035``."""
    if len(data) > MAX_BUILT_BYTES:
        raise _broken("it is too large")
    try:
        built = msgspec.json.decode(data, type=Built)
        built.root_bytes()
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise _broken(str(error)[:200]) from error
    except (binascii.Error, ValueError) as error:
        raise _broken("its root is not base64") from error
    return built


def render_built(built: Built) -> bytes:
    """Return the file's bytes; equal for equal contents."""
    return msgspec.json.encode(built, order="sorted") + b"\n"


def is_frozen() -> bool:
    """Say whether this is a frozen program, which has no switches (I4)."""
    return bool(getattr(sys, "frozen", False))


def load_built(path: Path | None = None, *, frozen: bool | None = None) -> Built | None:
    """Return what this program was built with; None for an unfrozen one without it.

    `frozen`: whether the file must exist; None asks the interpreter.

    Raises:
        TrustError: STO-F035 when it is broken, or missing in a frozen program.
    """
    place = Path(__file__).with_name(BUILT_FILE) if path is None else path
    try:
        with place.open("rb") as file:
            data = file.read(MAX_BUILT_BYTES + 1)
    except FileNotFoundError:
        if is_frozen() if frozen is None else frozen:
            raise _broken("there is none in this frozen program") from None
        return None
    except OSError as error:
        raise _broken("it cannot be read") from error
    return parse_built(data)


def _broken(reason: str) -> TrustError:
    return TrustError(
        "STO-F035",
        f"the built file of this verifier does not hold: {reason}",
        hint="fetch the program again from its project; it runs nothing like this",
    )


OLDER_LANGUAGES: Final[tuple[str, ...]] = ()
"""Digests of earlier language layers, newest first, whose admitted sources this one runs.

The source of an admitted task is always judged again, by this layer's own rules, before it
runs; an older digest here only says that such a task need not be admitted anew. When
`LANGUAGE_DIGEST` changes, the one before belongs here for as long as admissions live (14
days), unless the change closes a hole: then it must not."""


@dataclass(frozen=True, slots=True)
class InstalledRelease:
    """What this executor's own package holds."""

    levels: tuple[Level, ...]  # also older ones of the same name, if it still has them
    language_digest: str  # of its language layer
    python: str = "3.11"  # the minor version that it runs
    # digests of older language layers whose sources this one still runs
    languages: tuple[str, ...] = ()

    def runs(self, language: str) -> bool:
        """Whether a source that language layer `language` let in may run here."""
        return language == self.language_digest or language in self.languages


def installed_release() -> InstalledRelease:
    """Return what this package holds; raises ``STO-P001`` when a level is broken."""
    levels = (*load_levels(), *load_older_levels())
    return InstalledRelease(levels, LANGUAGE_DIGEST, languages=OLDER_LANGUAGES)


# The release

RELEASE_BUILD: Final = False
"""Frozen release builds set this to True; then development roots are refused (I3)."""

DEVELOPMENT_MARK: Final = "x-stoilo-development"
"""Field of a root whose offline keys lie beside the online ones."""

REHEARSAL_MARK: Final = "x-stoilo-rehearsal"
"""Field of a root made to rehearse the ceremony."""

_MARKS: Final = frozenset({DEVELOPMENT_MARK, REHEARSAL_MARK})

PROJECT_FILE: Final = "project.json"
"""Target: origin, accepted levels and language layers."""

EPOCHS_FILE: Final = "gate/epochs.json"
"""Target of the delegated role ``gate``: the numbers of the certified epochs."""

FLOORS_FILE: Final = "executor/floors.json"
"""Target: the oldest parts that may still work; absent: any may."""

BUILDERS_FILE: Final = "builders/keys.json"
"""Target: who attests builds; absent: nobody."""

POLICIES_FILE: Final = "policy/accepted.json"
"""Target of the delegated role ``policy``: the policies in force."""

REVOCATION_FILE: Final = "revocation/denied.json"
"""Target of the delegated role whose offline key withdraws, and takes back."""

REVIEWERS_FILE: Final = "reviewers/keys.json"
"""Target of the delegated role whose offline key names the reviewers."""

POLICY_FILE: Final = "log/policy.txt"
"""Target of the log policy in force."""

HISTORY_FILE: Final = "log/history.txt"
"""Target of the log policies that ``log/policy.txt`` replaced; absent when there are none."""


def load_trust(
    files: ReleaseFiles,
    root: bytes,
    now: int,
    *,
    installed: InstalledRelease,
    cache: Path | None = None,
    reference: int | None = None,
    release_build: bool = RELEASE_BUILD,
) -> TrustedRelease:
    """Verify a release up to `root` and return what it says.

    Args:
        files: the release, hostile.
        root: the trusted root metadata.
        now: the best time known, Unix seconds.
        installed: levels and language layer of this executor's own package.
        cache: this host's own directory, outside project and slot directories, where
            the newest metadata is remembered; without it rollback between calls cannot
            be seen.
        reference: when the admission says that it was made, Unix seconds: metadata that
            travelled with a task is judged by that day, not by the day it runs on. Never
            later than `now` counts; the caller checks that the verified admission says
            the same, and judges its end and its epoch by `now`.
        release_build: can only make it stricter than `RELEASE_BUILD`.

    Raises:
        TrustError: one of docs/reference/trust.md's codes, an attack each, and the codes
            of keys and policies inside.
        InternalError: STO-X008 when the cache cannot be read or written.
    """
    strict = release_build or RELEASE_BUILD
    at = now if reference is None else max(0, min(reference, now))
    with cache_directory(cache) as folder:
        updater = ReleaseUpdater(folder, dict(files.files), root, at)
        if strict:
            _check_marks(updater.marks(), strict=True)
        updater.refresh()
        _check_marks(updater.marks(), strict=strict)
        return _collect(updater, installed)


def _collect(updater: ReleaseUpdater, installed: InstalledRelease) -> TrustedRelease:
    infos = updater.infos()
    found = updater.read_all({one: infos[one] for one in infos if travels(one)})
    project = read_target(find(found, PROJECT_FILE), ProjectFile, PROJECT_FILE)
    denied_file = find(found, REVOCATION_FILE)
    denied = read_target(denied_file, RevocationFile, REVOCATION_FILE)
    policies = read_target(find(found, POLICIES_FILE), PolicyFile, POLICIES_FILE)
    reviewers = read_target(find(found, REVIEWERS_FILE), ReviewerFile, REVIEWERS_FILE)
    floors = found.get(FLOORS_FILE, b"{}")
    builders = found.get(BUILDERS_FILE, b"{}")
    root, targets, timestamp = updater.versions()
    marks = updater.marks()
    parts = read_parts(found, infos)
    _check_policy_parts(parts, updater, development=DEVELOPMENT_MARK in marks)
    return TrustedRelease(
        origin=project.origin,
        development=DEVELOPMENT_MARK in marks,
        rehearsal=REHEARSAL_MARK in marks,
        root_version=root,
        targets_version=targets,
        timestamp_version=timestamp,
        expires=updater.expiry(),
        epochs=read_epochs(found),
        log_policy=_log_policy(found),
        levels=_levels(project, installed),
        languages=frozenset(filter(installed.runs, project.languages)),
        installed_language=installed.language_digest,
        python=installed.python,
        policies=frozenset(policies.digests),
        denied=frozenset(denied.digests),
        revoked_epochs=frozenset(denied.epochs),
        min_epoch=denied.min_epoch,
        reviewers=tuple(
            Reviewer(parse_public_key(one.key), one.name, frozenset(one.accounts))
            for one in reviewers.keys
            if one.key not in denied.digests
        ),
        reviewed={
            digest: frozenset(levels) for digest, levels in policies.reviewed.items()
        },
        withdrawn_flavors=frozenset(denied.flavors),
        revocation_version=updater.role_version("revocation"),
        revocation_digest=content_digest(denied_file),
        revocation_keys=tuple(parse_public_key(key) for key in denied.keys),
        revocations_settled=denied.settled,
        parts=parts,
        floors=read_target(floors, FloorsFile, FLOORS_FILE),
        builders=read_target(builders, BuilderFile, BUILDERS_FILE),
        libraries=read_libraries(found),
    )


def _check_policy_parts(
    parts: tuple[PartFile, ...], updater: ReleaseUpdater, *, development: bool
) -> None:
    """Refuse (STO-K013) a flavor that fewer people signed than targets would need."""
    # It is a program that starts before its jail closes: no single key may name it.
    named = any(part.role == "policy" for part in parts)
    targets, policy = updater.threshold("targets"), updater.threshold("policy")
    if named and policy < targets and not development:
        raise TrustError(
            "STO-K013", f"{policy} sign the policy role's flavors, {targets} are needed"
        )


def _levels(project: ProjectFile, installed: InstalledRelease) -> tuple[Level, ...]:
    rank = {
        (name, digest): place
        for name, digests in project.levels.items()
        for place, digest in enumerate(digests)
    }
    held = [one for one in installed.levels if (one.name, one.digest) in rank]
    held.sort(key=lambda one: (one.order, one.name, rank[one.name, one.digest]))
    return tuple(held)


def _log_policy(found: Mapping[str, bytes]) -> LogPolicy:
    policy = parse_policy(find(found, POLICY_FILE))
    history = found.get(HISTORY_FILE)
    return policy if history is None else with_history(policy, parse_history(history))


def _check_marks(marks: frozenset[str], *, strict: bool) -> None:
    """Refuse a mark that is not known here (it may be a restriction); `strict`: all."""
    ours = {mark for mark in marks if mark.startswith("x-stoilo-")}
    refused = ours if strict else ours - _MARKS
    if refused:
        build = "a release-built executor" if strict else "this version"
        raise TrustError(
            "STO-K015",
            f"the root is marked {min(refused)[:40]!r}, which {build} does not accept",
            hint="attach to the project itself, or use a newer version",
        )
