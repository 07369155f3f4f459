"""What this package itself holds: levels, language layer, and older layers it still runs."""

from __future__ import annotations

from typing import Final

from stoilo.executor.release import InstalledRelease
from stoilo.policies.levels import load_levels, load_older_levels
from stoilo.sandbox.language.rules import LANGUAGE_DIGEST

__all__ = ["OLDER_LANGUAGES", "installed_release"]

OLDER_LANGUAGES: Final[tuple[str, ...]] = ()
"""Digests of earlier language layers, newest first, whose admitted sources this one runs.

The source of an admitted task is always judged again, by this layer's own rules, before it
runs; an older digest here only says that such a task need not be admitted anew. When
`LANGUAGE_DIGEST` changes, the one before belongs here for as long as admissions live (14
days), unless the change closes a hole: then it must not."""


def installed_release() -> InstalledRelease:
    """Return what this package holds; raises ``STO-P001`` when a level is broken."""
    levels = (*load_levels(), *load_older_levels())
    return InstalledRelease(levels, LANGUAGE_DIGEST, languages=OLDER_LANGUAGES)
