"""A level: what a task may do, as data (design §4). Parsed here, shipped in `policies`.

The file is part of the verifier release: trusted input, still checked strictly, because a
typing error in it would widen or close a jail without anyone noticing.
"""

from __future__ import annotations

import msgspec

from stoilo.core.digests import Digest, Domain, domain_digest
from stoilo.core.errors import InternalError
from stoilo.core.limits import RunLimits

__all__ = ["Level", "LevelLimits", "ModuleRule", "SyscallRules", "parse_level"]


class ModuleRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a task sees of one library module.

    Attributes:
        names: attributes handed out, by name; nothing else exists for the task.
        facade: dotted module whose ``build(level)`` returns replacements by name for
            attributes that need a guard (for example `stoilo.sandbox.facades.re`);
            empty when every name is handed out as it is.
    """

    names: tuple[str, ...] = ()
    facade: str = ""


class SyscallRules(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The kernel layer's filter: default is to kill and name the call.

    Attributes:
        allow: calls let through unconditionally.
        guarded: calls let through under the argument filter of the same name in
            `stoilo.sandbox.seccomp` (``mmap``, ``mprotect``, ``madvise``, ``write`` …).
        errno: errno name (EACCES, EPERM, ENOSYS) → calls that fail politely with it.
    """

    allow: tuple[str, ...]
    guarded: tuple[str, ...]
    errno: dict[str, tuple[str, ...]]


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
        digest: domain-separated digest of the file's bytes; set by `parse_level`.
    """

    name: str
    order: int
    summary: str
    preload: tuple[str, ...]
    modules: dict[str, ModuleRule]
    builtins: tuple[str, ...]
    syscalls: SyscallRules
    limits: LevelLimits
    travelling_types: dict[str, str] = {}
    digest: str = ""

    def default_limits(self) -> RunLimits:
        """Return the limits of a task that asks for none."""
        return RunLimits(**self.limits.default)

    def max_limits(self) -> RunLimits:
        """Return the largest limits a task may ask for."""
        return RunLimits(**self.limits.max)


def parse_level(data: bytes) -> Level:
    """Parse one level file (TOML, trusted) or raise ``STO-P001``."""
    try:
        level = msgspec.toml.decode(data, type=Level)
        level.default_limits()
        level.max_limits()
    except (msgspec.MsgspecError, TypeError) as error:
        raise InternalError("STO-P001", f"level file is broken: {error}") from error
    digest: Digest = domain_digest(Domain.LEVEL, data)
    return msgspec.structs.replace(level, digest=digest)
