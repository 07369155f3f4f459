"""Which flavors a project has in force, what they hold, and which of them a task gets. Pure.

Flavors come from the release where it publishes any, whichever role names them; else they
are the shipped ones, those whose libraries are all installed here. The gate is told which
libraries they hold, so that a task is judged by what some volunteer can run. A flavor's
library of another version than this server ships is not offered: the gate could not judge
by it.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stoilo.core.errors import PolicyRefusal
from stoilo.core.levels import load_levels
from stoilo.core.libraries import (
    Library,
    level_order,
    library_digests,
    load_libraries,
    parse_library,
)
from stoilo.flavors.described import flavor_level
from stoilo.flavors.manifest import (
    find_flavor,
    held_libraries,
    is_installed,
    shipped_flavors,
)
from stoilo.policies.levels import level_names, load_level

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from stoilo.executor.verifier.targets import PartFile, TrustedRelease
    from stoilo.flavors.manifest import FlavorManifest


@dataclass(frozen=True, slots=True)
class Offered:
    """One flavor that tasks may name."""

    name: str  # for people
    digest: str  # SHA-256 of its manifest, its id
    alias: str  # MD5 of the same
    level: str  # that it is made for
    libraries: tuple[Library, ...] = ()  # all that it holds, in the order of names
    size: int = 0  # of its largest archive, bytes; 0 where there is none

    @property
    def order(self) -> int:
        """The place of its level; -1 for one that is unknown here."""
        return load_level(self.level).order if self.level in level_names() else -1

    @property
    def names(self) -> frozenset[str]:
        """Import names of the libraries that this server can judge by."""
        known = library_digests()
        return frozenset(one.name for one in self.libraries if one.digest in known)

    def says(self) -> str:
        """Return it in a few words: name, level, libraries."""
        return (
            f"{self.name} ({', '.join((f'level {self.level}', *sorted(self.names)))})"
        )


def flavor_parts(release: TrustedRelease) -> tuple[PartFile, ...]:
    """Return the records of the release's flavors, one a platform; empty for none."""
    return tuple(part for part in release.parts if part.flavor)


def offered_flavors(release: TrustedRelease) -> tuple[Offered, ...]:
    """Return the flavors that tasks may name, withdrawn ones included."""
    found: dict[str, Offered] = {}
    parts = flavor_parts(release)
    if not parts:
        return installed_flavors()
    for part in parts:
        known = found.get(part.flavor)
        if not release.libraries.keys() >= set(part.libraries):
            continue  # volunteers refuse its tasks
        found[part.flavor] = Offered(
            part.part,
            part.flavor,
            part.alias,
            part.level,
            tuple(_parsed(release.libraries[one]) for one in part.libraries),
            max(part.archive.size, known.size if known else 0),
        )
    return tuple(found.values())


def installed_flavors() -> tuple[Offered, ...]:
    """Return the shipped flavors whose libraries are all installed here."""
    return tuple(
        _shipped(flavor)
        for flavor in shipped_flavors()
        if all(map(is_installed, held_libraries(flavor)))
    )


@functools.lru_cache(maxsize=64)
def _shipped(flavor: FlavorManifest) -> Offered:
    level, libraries = flavor_level(flavor), held_libraries(flavor)  # at every task
    return Offered(flavor.name, flavor.digest, flavor.alias, level, libraries)


@functools.lru_cache(maxsize=256)
def _parsed(data: bytes) -> Library:
    return parse_library(data)  # once a file, not at every task


def held_names(release: TrustedRelease) -> tuple[str, ...]:
    """Return the import names of all libraries that flavors in force hold, sorted."""
    offered = (one for one in offered_flavors(release) if not _gone(one, release))
    return tuple(sorted({name for one in offered for name in one.names}))


def named_libraries(release: TrustedRelease) -> dict[tuple[str, str], tuple[str, ...]]:
    """Return (id of a flavor, level) → the digests that an admission has to name.

    What the level may use of the flavor's; one that is not offered any more is not there.
    """
    return {
        (one.digest, level.name): tuple(
            held.digest for held in one.libraries if level_order(held) <= level.order
        )
        for one in offered_flavors(release)
        for level in load_levels()
    }


def choose_flavor(
    wish: str, level: str, libraries: Collection[str], release: TrustedRelease
) -> str:
    """Return the id (SHA-256) of the flavor that a task runs on.

    Args:
        wish: name, SHA-256 or MD5 of a flavor, empty for the smallest that holds all.
        level: of the task.
        libraries: import names of those that it needs.
        release: in force, with everything that is withdrawn now.

    Raises:
        UsageError: STO-P002, no such flavor is installed, where the release has none.
        PolicyRefusal: STO-K097 the release does not have it, or none for this level and
            these libraries; it lacks one of them; it is withdrawn.
    """
    offered = offered_flavors(release)
    if not wish:
        return _smallest(level, libraries, release, offered).digest
    one = _named(wish, release, offered)
    if _gone(one, release):
        raise _refused(f"flavor {one.name} ({one.digest[:16]}…) is withdrawn", ())
    if one.order < load_level(level).order:
        what = f"is made for level {one.level}, the task needs {level}"
        raise _refused(f"flavor {one.name} {what}", offered)
    if lacking := sorted(set(libraries) - one.names):
        having = [other for other in offered if other.names.issuperset(lacking)]
        raise _refused(f"flavor {one.name} lacks {', '.join(lacking)}", having)
    return one.digest


def _named(wish: str, release: TrustedRelease, offered: Sequence[Offered]) -> Offered:
    for one in offered:
        if wish in {one.name, one.digest, one.alias}:
            return one
    if not flavor_parts(release):
        return _shipped(find_flavor(wish))  # an alias that stands for one of ours
    raise _refused(f"the project publishes no flavor {wish[:80]!r}", offered)


def _smallest(
    level: str,
    libraries: Collection[str],
    release: TrustedRelease,
    offered: Sequence[Offered],
) -> Offered:
    """Return the smallest in force that serves; of equal ones the level's namesake."""
    order = load_level(level).order
    fitting = [
        one
        for one in offered
        if one.order >= order
        and one.names.issuperset(libraries)
        and not _gone(one, release)
    ]
    if not fitting:
        what = f" with {' and '.join(sorted(libraries))}" if libraries else ""
        raise _refused(
            f"the project has no flavor for level {level}{what}",
            offered,
            "flavors here",
        )
    return min(
        fitting,
        key=lambda one: (
            len(one.libraries),
            one.order,
            one.name != level,
            one.size,
            one.name,
        ),
    )


def _gone(one: Offered, release: TrustedRelease) -> bool:
    digests = {one.digest, *(library.digest for library in one.libraries)}
    return one.digest in release.withdrawn_flavors or bool(digests & release.denied)


def _refused(
    what: str,
    having: Sequence[Offered],
    advice: str = "leave flavor= out, or ask for another",
) -> PolicyRefusal:
    names = ", ".join(sorted({one.says() for one in having}))
    return PolicyRefusal(
        "STO-K097", what, hint=f"{advice}: {names}"[:400] if names else ""
    )


def check_validators(source: bytes, libraries: Collection[str]) -> None:
    """Refuse (STO-K097) validators over libraries that this server could not load."""
    found = load_libraries(sorted(libraries)) if source else ()
    for one in found:
        if not is_installed(one):
            raise PolicyRefusal(
                "STO-K097",
                f"the project's server cannot run validators over {one.name}",
                hint="leave the validators out; operators: "
                f"pip install '{one.distribution}{one.versions}'",
            )
