"""How a stock scheduler picks an app version by plan class, as far as ours go; pure.

Played: the project preference that a class looks at, and its range of batches. A class
that is in no file, and one whose element a volunteer's preferences lack, fits nobody
unless it says otherwise.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["fits"]

_CLASS: Final = re.compile(r"<plan_class>(.*?)</plan_class>", re.DOTALL)


def fits(specs: str, name: str, preferences: str, batch: int) -> bool:
    """Whether a volunteer gets a workunit by the versions of a plan class.

    Args:
        specs: content of ``plan_class_spec.xml``.
        name: of the class; an empty one fits everybody.
        preferences: of the project, as the account has them.
        batch: of the workunit.
    """
    if not name:
        return True
    for spec in _CLASS.findall(specs):
        if _element(spec, "name") == name:
            return _fits(spec, preferences, batch)
    return False


def _fits(spec: str, preferences: str, batch: int) -> bool:
    low, high = _element(spec, "min_batch"), _element(spec, "max_batch")
    if (low and batch < int(low)) or (high and batch > int(high)):
        return False
    tag = _element(spec, "project_prefs_tag")
    if not tag:
        return True
    chosen = _element(preferences, tag)
    if chosen is None:
        return _element(spec, "project_prefs_default_true") == "1"
    return re.search(_element(spec, "project_prefs_regex") or "", chosen) is not None


def _element(text: str, tag: str) -> str | None:
    match = re.search(f"<{tag}>([^<]*)<", text)
    return match[1].strip() if match else None
