"""What hosts get of the release in force: the flavor of a task, the programs of BOINC clients.

    DIR/keys/targets/flavor/<name>/<sha256>.<platform>.tar.xz
    DIR/keys/targets/policy/<sha256>.flavor-<name>.<platform>.tar.xz
    DIR/keys/targets/launcher/<sha256>.<platform>        and verifier/<sha256>.<platform>.tar
    DIR/keys/boinc/key.pub                               BOINC's code-sign key
    DIR/keys/boinc/launcher/<platform>.sig               its signatures, made in the ceremony
    DIR/keys/boinc/verifier/<platform>.tar.sig
    DIR/keys[/boinc]/old_key_N, signature_stripped_N     former keys that vouch for this one

Flavors come from the release where it publishes any, else as installed. It is asked at
every submission, so they are published and withdrawn without stopping the server; tasks
that were admitted before are taken back by `stoilo.server.admission.outdated`. A release
without BOINC's signatures has no programs: only `stoilo volunteer` gets work then.
Trust: the targets are verified by their digests when they are stored; signatures and keys
are checked by the engine before they are handed out.
"""

from __future__ import annotations

import functools
import logging
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from stoilo.core.boinc.codesign import (
    check_boinc_signature,
    md5_hex,
    parse_boinc_public,
)
from stoilo.core.errors import PolicyRefusal, StoiloError, TrustError
from stoilo.core.frozen_tree import XzReader, parse_tree, read_any_archive
from stoilo.executor.verifier.workunit import FLAVOR
from stoilo.executor.volunteer.scheduler_rpc import BOINC_PLATFORMS
from stoilo.policies.levels import load_level
from stoilo.server.engines.programs import (
    AppProgram,
    CodeSignKey,
    FormerKey,
    SignedFile,
)
from stoilo.server.engines.workunits import WorkunitFile
from stoilo.server.release.flavors import flavor_parts
from stoilo.signer.ceremony.base_release import stored_name
from stoilo.signer.ceremony.boinc_files import (
    BOINC_FOLDER,
    BOINC_KEY_FILE,
    signature_name,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from stoilo.core.levels import Level
    from stoilo.executor.verifier.targets import PartFile, TrustedRelease
    from stoilo.server.engines.interface import Engine


LOGGER = logging.getLogger(__name__)
ARCHIVE_SUFFIX = ".tar.xz"
USUAL_GROWTH = 8  # of an archive when it is unpacked


@dataclass(frozen=True, slots=True)
class FlavorFiles:
    """Where workunits get the archive of a task's flavor from."""

    directory: Path  # the release's
    release: Callable[[], TrustedRelease]  # the one in force
    platform: str  # of the project's hosts, for example ``x86_64-linux``

    def of(self, flavor: str) -> WorkunitFile | None:
        """Return the archive as an immutable input file, None where there is none.

        Hosts keep it; the engine reads and hashes it once, not for every task. An
        archive that has gone from this server's disk is left out, and that is said:
        other tasks must not wait for it.
        """
        part = self.release().flavor_part(flavor, self.platform)
        if part is None:
            return None
        digest = part.archive.sha256
        name = f"{part.target}{ARCHIVE_SUFFIX}"
        path = self.directory / "targets" / stored_name(name, digest)
        if not is_whole(path, part.archive.size):
            LOGGER.error("the archive %s is missing or cut short: publish again", name)
            return None
        unpacked = _unpacked_bytes(path, part.archive.size)
        return WorkunitFile(FLAVOR, digest, path, sticky=True, unpacked_bytes=unpacked)


def is_whole(path: Path, size: int) -> bool:
    """Whether a plain file of `size` bytes lies at `path`; its digest is the engine's."""
    try:
        seen = path.lstat()
    except OSError:
        return False
    return stat.S_ISREG(seen.st_mode) and seen.st_size == size


@functools.lru_cache(maxsize=64)
def _unpacked_bytes(archive: Path, size: int) -> int:
    """Return how large the tree of a published archive of `size` bytes is, bytes."""
    # Read from the archive's own beginning, once: archives are named by their digests and
    # never change. One that cannot be read is taken for a usual one; the engine and every
    # volunteer check its digest.
    try:
        with archive.open("rb") as stream:
            first = next(read_any_archive(XzReader(stream)))
            return parse_tree(b"".join(first.chunks)).size
    except (OSError, TrustError):
        return USUAL_GROWTH * size


def kept_archives(release: TrustedRelease, platform: str) -> frozenset[str]:
    """Return the digests of archives that go out now: kept between tasks. Pure."""
    parts = flavor_parts(release)
    return frozenset(part.archive.sha256 for part in parts if part.platform == platform)


@dataclass(frozen=True, slots=True)
class ReleasedLevels:
    """The installed levels, as far as the release in force certifies them."""

    release: Callable[[], TrustedRelease]

    def __call__(self, name: str) -> Level:
        """Return level `name`; raises ``STO-K094`` where volunteers would refuse it."""
        level = load_level(name)
        if all(one.digest != level.digest for one in self.release().levels):
            raise PolicyRefusal(
                "STO-K094",
                f"the release does not certify level {name} of this version",
                hint="choose another level; operators: certify it in the next ceremony",
            )
        return level


LOGGER = logging.getLogger(__name__)
MAX_FORMER_KEYS: Final = 16
MAX_TEXT_BYTES: Final = 4096
_SUFFIXES: Final = {"launcher": "", "verifier": ".tar"}


@dataclass(frozen=True, slots=True)
class ReleasedPrograms:
    """What a release has for stock clients."""

    programs: tuple[AppProgram, ...]
    key: CodeSignKey


def offer_programs(engine: Engine, directory: Path, release: TrustedRelease) -> None:
    """Give the engine the programs of the release; a bad one leaves the former in force.

    What is wrong with them is logged: other volunteers must not wait for it.
    """
    found = read_programs(directory, release)
    try:
        engine.set_programs(found.programs, found.key)
    except StoiloError as error:
        LOGGER.warning("the release's programs are not offered to BOINC: %s", error)


def read_programs(directory: Path, release: TrustedRelease) -> ReleasedPrograms:
    """Return the programs of `release` that lie under `directory` with signatures."""
    folder = directory / BOINC_FOLDER
    text = _read_text(folder / BOINC_KEY_FILE)
    if not text:
        return ReleasedPrograms((), CodeSignKey())
    by_platform: dict[str, dict[str, SignedFile]] = {}
    for part in release.parts:
        if part.part in _SUFFIXES and part.archive.sha256 not in release.denied:
            file = _signed_file(directory, part)
            if file is not None:
                by_platform.setdefault(part.platform, {})[part.part] = file
    programs = tuple(
        AppProgram(BOINC_PLATFORMS[platform], files["launcher"], files["verifier"])
        for platform, files in sorted(by_platform.items())
        if files.keys() == _SUFFIXES.keys() and platform in BOINC_PLATFORMS
    )
    return ReleasedPrograms(programs, CodeSignKey(text, _former_keys(directory, text)))


def _signed_file(directory: Path, part: PartFile) -> SignedFile | None:
    """Return a part's file and signature; None when one of them is not here."""
    target = f"{part.target}{_SUFFIXES[part.part]}"
    path = directory / "targets" / stored_name(target, part.archive.sha256)
    signature = _read_text(directory / BOINC_FOLDER / signature_name(target))
    if not signature:
        LOGGER.warning("%s has no BOINC signature: stock clients get none", target)
        return None
    if not is_whole(path, part.archive.size):
        LOGGER.error("%s is missing or cut short: publish again", target)
        return None
    return SignedFile(part.archive.sha256, path, signature)


def _former_keys(directory: Path, text: str) -> tuple[FormerKey, ...]:
    """Return the keys that have vouched for `text`; others are of changes before."""
    found: dict[str, FormerKey] = {}
    for folder in (directory, directory / BOINC_FOLDER):
        for number in range(MAX_FORMER_KEYS):
            old = _read_text(folder / f"old_key_{number}")
            signature = _read_text(folder / f"signature_stripped_{number}")
            if old and signature and _vouches(old, signature, text):
                found[old] = FormerKey(old, signature)
    return tuple(found.values())


def _vouches(old: str, signature: str, text: str) -> bool:
    md5 = md5_hex(text.strip().encode())
    try:
        check_boinc_signature(md5, signature, parse_boinc_public(old))
    except TrustError:
        return False
    return True


def _read_text(path: Path) -> str:
    """Return a small text file, empty when there is none that is usable."""
    try:
        with path.open("rb") as stream:
            data = stream.read(MAX_TEXT_BYTES + 1)
    except OSError:
        return ""
    return (
        data.decode("ascii") if data.isascii() and len(data) <= MAX_TEXT_BYTES else ""
    )
