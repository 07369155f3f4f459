"""A flavor's described libraries: which they are, at which level, in which versions.

A library's file says what its package is like in some versions. A build holds it against
the lock before anything is frozen, and against the frozen tree before it is packed: what
does not fit ends the build with the library's name, and no volunteer finds it out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from stoilo.core.codec import skeleton
from stoilo.core.errors import InternalError, PolicyRefusal, UsageError
from stoilo.core.levels import Level, load_levels
from stoilo.core.libraries import (
    Library,
    add_libraries,
    is_described,
    level_order,
    library_file,
    library_target,
    load_libraries,
)
from stoilo.flavors.describing.check import check_library
from stoilo.flavors.lock import Lock, normal_name
from stoilo.flavors.manifest import FlavorManifest, held_libraries
from stoilo.policies.levels import load_level
from stoilo.sandbox.process.channel import TASK_JOB, TaskRequest
from stoilo.sandbox.process.run import run_task
from stoilo.sandbox.process.supervisor import Jail


def flavor_level(flavor: FlavorManifest) -> str:
    """Return the narrowest level for all of a flavor's libraries and other modules.

    Raises:
        PolicyRefusal: ``STO-P062``, nothing describes one of its modules: nothing could
            use it.
    """
    libraries = held_libraries(flavor)
    wanted = {_root(module) for module in flavor.modules}
    wanted -= {one.name for one in libraries}
    lowest = max((level_order(one) for one in libraries), default=0)
    unknown = wanted
    for level in load_levels():
        unknown = wanted - _roots(level)
        if level.order >= lowest and not unknown:
            return level.name
    names = ", ".join(sorted(unknown))[:200]
    raise PolicyRefusal(
        "STO-P062",
        f"no level and no described library lets in: {names}",
        hint="`stoilo flavor describe PACKAGE` drafts the description that is missing; "
        "`stoilo policy show LEVEL` lists what a level lets in",
    )


def library_contents(level: str, libraries: Iterable[Library]) -> tuple[str, ...]:
    """Return the names of the lists of contents for `level` with `libraries`."""
    return (level, *(f"library-{one.name}" for one in libraries))


def library_files(libraries: Iterable[Library]) -> dict[str, bytes]:
    """Return the file of each library by its name as a target (`library_target`), bare."""
    return {
        library_target(one).rpartition("/")[2]: library_file(one.name) or b""
        for one in libraries
    }


def _root(dotted: str) -> str:
    return dotted.partition(".")[0]


def _roots(level: Level) -> set[str]:
    return {_root(name) for name in level.modules}


# Against the lock ---------------------------------------------------------------------


def check_versions(libraries: Iterable[Library], lock: Lock) -> None:
    """Raise ``STO-P001`` unless `lock` holds what `libraries` describe, and what they need."""
    held = {wheel.name: wheel.version for wheel in lock.wheels}
    for library in libraries:
        _check_version(library, held)
        for needed in load_libraries(library.needs):
            _check_version(needed, held)


def _check_version(library: Library, held: Mapping[str, str]) -> None:
    found = held.get(normal_name(library.distribution))
    if found is None:
        raise _misfit(library, f"{library.distribution} is not among the locked wheels")
    if not is_described(library, found):
        reason = f"it describes {library.versions}, and the lock holds {found}"
        raise _misfit(library, reason)


def _misfit(library: Library, reason: str) -> PolicyRefusal:
    return PolicyRefusal(
        "STO-P001",
        f"library {library.name} cannot be frozen: {reason}"[:600],
        hint="pin a version that its file describes, or describe this one: "
        f"`stoilo flavor describe {library.distribution}`, then `stoilo flavor check`",
    )


# Against what was built ---------------------------------------------------------------


CHECK_S = 60.0
"""After how many seconds of one library's check nothing more of it is called."""


def check_installed(
    libraries: Sequence[Library],
    python: Path,  # the build's own interpreter, with the locked wheels
    source: Path,  # the build's copy of our source
) -> list[str]:
    """Return a line about each library for the build's log.

    Each is checked in a process of its own, which has loaded the others as the runtime has;
    the calls in it have a budget (`CHECK_S`).

    Raises:
        PolicyRefusal: ``STO-P001``, the first library that is not what its file says there,
            or whose first calls end the process, or import or open something.
    """
    lines = []
    loaded = tuple(name for library in libraries for name in library.preload)
    for library in libraries:
        asked = msgspec.structs.replace(library, preload=loaded)
        report = check_library(
            *(asked, None),
            python=python,
            paths=(source,),
            deep=1,
            budget_s=CHECK_S,
        )
        end = "to the end" if report.complete else "for want of time no more"
        notes = "".join(f"; {note}" for note in report.notes)
        lines.append(f"{library.name}: {report.calls} calls tried, {end}{notes}")
        if faults := report.faults:
            more = f", and {len(faults) - 1} more" if len(faults) > 1 else ""
            raise _misfit(library, f"{faults[0].message}{more}")
    return lines


def check_frozen(program: Path, level: str, libraries: Sequence[Library]) -> None:
    """Raise ``STO-P001`` unless each library runs in the frozen runtime, and all together.

    A task in a closed jail takes every listed name, so what is missing or crashes is
    found with the library's name: each runs by itself before all do together.
    """
    sets: list[tuple[Library, ...]] = [(one,) for one in libraries]
    sets += [tuple(libraries)] if len(libraries) > 1 else []
    for chosen in sets:
        rules = add_libraries(load_level(level), chosen)
        if reason := _try_imports(program, rules, chosen):
            more = "beside the others, " if len(chosen) > 1 else ""
            raise _misfit(chosen[-1], more + reason)


def _try_imports(program: Path, rules: Level, libraries: Sequence[Library]) -> str:
    """Return why a task that imports all that `libraries` list fails; empty: it runs."""
    request = TaskRequest(import_everything(libraries), "run", skeleton.encode({}))
    try:
        with Jail(rules, TASK_JOB, command=lambda: [str(program)]) as jail:
            outcome = run_task(jail, request, rules.default_limits())
    except (InternalError, UsageError) as error:
        return f"the frozen runtime does not start with it: {error.message}"
    return outcome.error and f"in the frozen runtime: {outcome.error[:300]}"


def import_everything(libraries: Iterable[Library]) -> str:
    """Return a task's source that takes every public name that `libraries` list."""
    listed = [pair for library in libraries for pair in library.modules.items()]
    lines = [f"import {module} as m{n}" for n, (module, _) in enumerate(listed)]
    lines += ["", "", "def run(kwargs):"]
    lines += [
        f"    m{number}.{name}"
        for number, (_, rule) in enumerate(listed)
        for name in rule.names
        if not name.startswith("_")
    ]
    return "\n".join([*lines, "    return True", ""])
