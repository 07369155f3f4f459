"""A level: what a task may do, as data (design §4). Parsed here, shipped in `policies`.

The file is part of the verifier release: trusted input, still checked strictly, because a
typing error in it would widen or close a jail without anyone noticing.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec

from stoilo.core.digests import Digest, Domain, domain_digest
from stoilo.core.errors import InternalError
from stoilo.core.types import RunLimits

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable


class ModuleRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a task sees of one library module.

    Attributes:
        names: attributes handed out, by name; nothing else exists for the task.
        facade: dotted module whose ``FACADES`` builds replacements by name for attributes
            that need a guard (for example `stoilo.sandbox.facades.clock`);
            empty when every name is handed out as it is.
    """

    names: tuple[str, ...] = ()
    facade: str = ""


class SyscallRules(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The kernel layer's filter: default is to kill and name the call.

    Attributes:
        allow: calls let through unconditionally.
        guarded: calls let through under the argument filter of the same name in
            `stoilo.sandbox.kernel.calls` (``mmap``, ``mprotect``, ``madvise``, ``write`` …).
        errno: errno name (EACCES, EPERM, ENOSYS) → calls that fail politely with it.
        reasons: call → why it is open or fails politely, for auditors.
    """

    allow: tuple[str, ...] = ()
    guarded: tuple[str, ...] = ()
    errno: dict[str, tuple[str, ...]] = {}
    reasons: dict[str, str] = {}


class LevelLimits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Default and largest limits of a level, units as in `RunLimits`."""

    default: dict[str, int]
    max: dict[str, int]


class Level(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One policy level.

    Attributes:
        name: for example ``pure``.
        order: 0 is the narrowest; a volunteer's opt-in names the highest allowed.
        summary: one sentence for volunteers.
        preload: modules the zygote imports before the jail closes, dotted names.
        modules: façades by dotted name.
        builtins: names of the built-in functions and exceptions a task sees.
        travelling_types: dotted library types whose instances may travel, each with its
            state form (empty for levels without any).
        syscalls: the filter.
        limits: defaults and maxima.
        members: public names that instances of a library class keep, by dotted class;
            its other public names are closed in the zygote.
        overrides: library classes that a task may extend, dotted, each with the names that
            an own class may define; ``*`` stands for all but private and guarded ones, a
            ``+`` after a class for what its library derives from it, too.
        writable: library classes whose instances, and those of every class below, take
            assignment, dotted, each with the attributes: only those that the library
            checks itself, or that hold no more than what the task put there. ``*`` stands
            for all that are not members of the class, a ``-`` before a name takes it out.
        extends: the next narrower level; this one's tables are added to its.
        digest: domain-separated digest of the file's bytes and of what it extends; set
            by `parse_level`.
        libraries: digests of the libraries that were added to it, in the order of their
            names; set by `stoilo.core.libraries.add_libraries`.
    """

    name: str
    order: int
    summary: str
    limits: LevelLimits
    preload: tuple[str, ...] = ()
    modules: dict[str, ModuleRule] = {}
    builtins: tuple[str, ...] = ()
    syscalls: SyscallRules = SyscallRules()
    travelling_types: dict[str, str] = {}
    members: dict[str, tuple[str, ...]] = {}
    overrides: dict[str, tuple[str, ...]] = {}
    writable: dict[str, tuple[str, ...]] = {}
    extends: str = ""
    digest: str = ""
    libraries: tuple[str, ...] = ()

    def default_limits(self) -> RunLimits:
        """Return the limits of a task that asks for none."""
        return RunLimits(**self.limits.default)

    def max_limits(self) -> RunLimits:
        """Return the largest limits a task may ask for."""
        return RunLimits(**self.limits.max)


def _merge_rule(base: ModuleRule, own: ModuleRule) -> ModuleRule:
    """Return a module's names at both levels; the wider level's facade builds them."""
    added = tuple(name for name in own.names if name not in base.names)
    return ModuleRule(base.names + added, own.facade or base.facade)


def merge_modules(
    base: dict[str, ModuleRule], own: dict[str, ModuleRule]
) -> dict[str, ModuleRule]:
    """Return the modules of both, each with the names of both."""
    merged = dict(base)
    for dotted, rule in own.items():
        merged[dotted] = _merge_rule(merged.get(dotted, ModuleRule()), rule)
    return merged


def _merge_syscalls(base: SyscallRules, own: SyscallRules) -> SyscallRules:
    """Return both tables; what a level lets through no longer fails politely."""
    through = {*base.allow, *own.allow, *base.guarded, *own.guarded}
    errno = {
        name: tuple(
            call
            for call in (*base.errno.get(name, ()), *own.errno.get(name, ()))
            if call not in through
        )
        for name in dict.fromkeys((*base.errno, *own.errno))
    }
    return SyscallRules(
        base.allow + own.allow,
        base.guarded + own.guarded,
        errno,
        base.reasons | own.reasons,
    )


def _widen(base: Level, own: Level) -> Level:
    """Return `own` with everything that `base` hands out: it can only add (design §4)."""
    return msgspec.structs.replace(
        own,
        preload=base.preload + own.preload,
        modules=merge_modules(base.modules, own.modules),
        builtins=base.builtins + own.builtins,
        syscalls=_merge_syscalls(base.syscalls, own.syscalls),
        travelling_types=base.travelling_types | own.travelling_types,
        members=base.members | own.members,
        overrides=base.overrides | own.overrides,
        writable=base.writable | own.writable,
    )


def parse_level(data: bytes, base: Level | None = None) -> Level:
    """Parse one level file (TOML, trusted).

    Args:
        data: the file.
        base: the level that it ``extends``, None where it extends none.

    Raises:
        InternalError: ``STO-P001``, the file is broken or extends another level.
    """
    return _place(_decode(data), data, base)


def parse_levels(files: Iterable[bytes]) -> tuple[Level, ...]:
    """Parse the files of all levels (trusted); returns them narrowest first.

    Raises:
        InternalError: ``STO-P001``, one is broken, or what one extends is not narrower.
    """
    parsed: dict[str, Level] = {}
    decoded = [(_decode(data), data) for data in files]  # once: it takes its time
    for own, data in sorted(decoded, key=lambda one: one[0].order):
        level = _place(own, data, parsed.get(own.extends))
        if level.order in {one.order for one in parsed.values()}:
            raise InternalError("STO-P001", "two level files have the same order")
        parsed[level.name] = level
    return tuple(parsed.values())


def _decode(data: bytes) -> Level:
    """Return what one file says by itself."""
    try:
        level = msgspec.toml.decode(data, type=Level)
        level.default_limits()
        level.max_limits()
    except (msgspec.MsgspecError, TypeError) as error:
        raise InternalError("STO-P001", f"level file is broken: {error}") from error
    return level


def _place(level: Level, data: bytes, base: Level | None) -> Level:
    """Return a level with what it extends, and its digest."""
    if level.extends != (base.name if base else ""):
        raise InternalError("STO-P001", f"level {level.name} needs {level.extends!r}")
    digest: Digest = domain_digest(Domain.LEVEL, data)
    if base is not None:
        level = _widen(base, level)
        digest = domain_digest(Domain.LEVEL, data, base.digest.encode())
    return msgspec.structs.replace(level, digest=digest, libraries=())


# The shipped ones: part of the verifier release, trusted, read once a process (the jailed
# gate reads them before its jail closes)


def _folder() -> Traversable:
    from importlib import resources  # noqa: PLC0415 - zygotes hold no such module

    return resources.files("stoilo") / "policies" / "levels"


@functools.cache
def load_levels() -> tuple[Level, ...]:
    """Return every shipped level, narrowest first, or raise ``STO-P001``."""
    return parse_levels(level_files().values())


def load_older_levels(folder: Traversable | None = None) -> tuple[Level, ...]:
    """Return levels of earlier releases whose tasks may still be running.

    ``levels/older/<release>/`` holds all the level files of one earlier release, as they
    were; they stay for as long as admissions live (14 days), unless a change closed a hole.

    Args:
        folder: in place of ``levels/older``.

    Raises:
        InternalError: ``STO-P001``, a set is broken.
    """
    if folder is None:
        folder = _folder() / "older"
    if not folder.is_dir():
        return ()
    current = {level.digest for level in load_levels()}
    found: dict[str, Level] = {}
    for release in sorted(folder.iterdir(), key=lambda one: one.name, reverse=True):
        names = [one for one in release.iterdir() if one.name.endswith(".toml")]
        for level in parse_levels(one.read_bytes() for one in names):
            if level.digest not in current:
                found.setdefault(level.digest, level)
    return tuple(found.values())


def level_files() -> dict[str, bytes]:
    """Return the shipped levels' own files by level name, as releases publish them."""
    return {
        entry.name.removesuffix(".toml"): entry.read_bytes()
        for entry in _folder().iterdir()
        if entry.name.endswith(".toml")
    }
