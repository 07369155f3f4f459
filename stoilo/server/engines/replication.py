"""How the operator lets results be spread, level by level (settings of `stoilo up`)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from stoilo.core.errors import UsageError
from stoilo.policies.levels import level_names
from stoilo.server.engines.workunits import Homogeneity, Replication

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["ReplicationRules", "parse_replication"]


@dataclass(frozen=True, slots=True)
class ReplicationRules:
    """The replication of each level; levels not named have the ordinary one."""

    by_level: Mapping[str, Replication] = field(default_factory=dict)

    def of(self, level: str) -> Replication:
        """Return how results of a level's tasks are spread."""
        return self.by_level.get(level, Replication())


def parse_replication(homogeneous: str, adaptive: str) -> ReplicationRules:
    """Return the rules that two settings name, or raise ``STO-R090``.

    Args:
        homogeneous: ``level=coarse`` or ``level=fine``, separated by commas.
        adaptive: levels, separated by commas.
    """
    alike = dict(_kind_of(part) for part in _parts(homogeneous))
    alone = {_level(part) for part in _parts(adaptive)}
    return ReplicationRules(
        {
            level: Replication(alike.get(level, Homogeneity.NONE), level in alone)
            for level in alike.keys() | alone
        }
    )


def _parts(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _kind_of(part: str) -> tuple[str, Homogeneity]:
    level, _, kind = part.partition("=")
    if kind not in {"coarse", "fine"}:
        raise UsageError(
            "STO-R090",
            f"setting homogeneous: {part[:40]!r} is not level=coarse or level=fine",
        )
    return _level(level), Homogeneity(kind)


def _level(name: str) -> str:
    if name not in level_names():
        raise UsageError(
            "STO-R090",
            f"there is no level {name[:40]!r}",
            hint=f"the levels are {', '.join(level_names())}",
        )
    return name
