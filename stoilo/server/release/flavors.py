"""Which flavor a task gets: from the release where it publishes any, else as installed.

The release in force is asked at every submission, so flavors are published and withdrawn
without stopping the server. What is withdrawn is refused here with its own code; tasks
that were admitted before are taken back by `stoilo.server.admission.outdated`.
"""

from __future__ import annotations

import functools
import logging
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stoilo.core.errors import PolicyRefusal, TrustError
from stoilo.core.frozen_tree import XzReader, parse_tree, read_any_archive
from stoilo.executor.verifier.targets import part_target
from stoilo.executor.verifier.workunit import FLAVOR
from stoilo.flavors.manifest import find_flavor
from stoilo.policies.levels import level_names, load_level
from stoilo.server.engines.workunits import WorkunitFile
from stoilo.signer.ceremony.base_release import stored_name

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from stoilo.core.levels import Level
    from stoilo.executor.verifier.targets import PartFile, TrustedRelease


LOGGER = logging.getLogger(__name__)
ARCHIVE_SUFFIX = ".tar.xz"
USUAL_GROWTH = 8  # of an archive when it is unpacked


def flavor_parts(release: TrustedRelease) -> tuple[PartFile, ...]:
    """Return the records of the release's flavors, one a platform; empty for none."""
    return tuple(part for part in release.parts if part.flavor)


def choose_flavor(wish: str, level: str, release: TrustedRelease) -> str:
    """Return the id (SHA-256) of the flavor that a task runs on. Pure.

    Args:
        wish: name, SHA-256 or MD5 of a flavor, empty for the one made for `level`.
        level: of the task.
        release: in force, with everything that is withdrawn now.

    Raises:
        UsageError: STO-P061, no such flavor is installed, where the release has none.
        PolicyRefusal: STO-K097 the release does not have it, or none for this level;
            STO-K098 it is withdrawn.
    """
    parts = flavor_parts(release)
    if not parts:
        flavor = find_flavor(wish or level)
        _check_withdrawn(flavor.name, flavor.digest, release)
        return flavor.digest
    part = _named(wish, parts) if wish else _made_for(level, parts, release)
    _check_withdrawn(part.part, part.flavor, release)
    if _order(part) < load_level(level).order:
        raise PolicyRefusal(
            "STO-K097",
            f"flavor {part.part} is made for level {part.level}, the task needs {level}",
            hint=_offered(parts),
        )
    return part.flavor


def _named(wish: str, parts: Sequence[PartFile]) -> PartFile:
    for part in parts:
        if wish in {part.part, part.flavor, part.alias}:
            return part
    raise PolicyRefusal(
        "STO-K097",
        f"the project publishes no flavor {wish[:80]!r}",
        hint=_offered(parts),
    )


def _made_for(
    level: str, parts: Sequence[PartFile], release: TrustedRelease
) -> PartFile:
    """Return the narrowest flavor in force that serves `level`; its namesake first."""
    order = load_level(level).order
    fitting = [
        part
        for part in parts
        if _order(part) >= order and not _is_withdrawn(part.flavor, release)
    ]
    if not fitting:
        raise PolicyRefusal(
            "STO-K097",
            f"the project publishes no flavor for level {level}",
            hint=_offered(parts),
        )
    return min(fitting, key=lambda part: (_order(part), part.part != level, part.part))


def _order(part: PartFile) -> int:
    """Return the place of the part's level; -1 for one that is unknown here."""
    known = part.level in level_names()
    return load_level(part.level).order if known else -1


def _is_withdrawn(flavor: str, release: TrustedRelease) -> bool:
    return flavor in release.withdrawn_flavors or flavor in release.denied


def _check_withdrawn(name: str, flavor: str, release: TrustedRelease) -> None:
    if _is_withdrawn(flavor, release):
        raise PolicyRefusal("STO-K098", f"flavor {name} ({flavor[:16]}…) is withdrawn")


def _offered(parts: Sequence[PartFile]) -> str:
    names = sorted({f"{part.part} (level {part.level})" for part in parts})
    return f"flavors here: {', '.join(names)}"[:400]


@dataclass(frozen=True, slots=True)
class FlavorFiles:
    """Where workunits get the archive of a task's flavor from.

    Attributes:
        directory: the release's.
        release: the one in force.
        platform: of the project's hosts, for example ``x86_64-linux``.
    """

    directory: Path
    release: Callable[[], TrustedRelease]
    platform: str

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
        name = f"{part_target(part.part, part.platform)}{ARCHIVE_SUFFIX}"
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
