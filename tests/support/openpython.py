"""An interpreter that any user may run, for tests that become another user.

The one that runs the tests may lie where nobody else may enter: below its owner's home.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ENTER_AND_READ = 0o005
_VERSION = "python" + ".".join(map(str, sys.version_info[:2]))
_PLACES = (sys.executable, f"/usr/bin/{_VERSION}", f"/usr/local/bin/{_VERSION}")


def is_open(path: Path) -> bool:
    """Return whether any user may read `path` and enter all folders above it."""
    return path.exists() and all(
        part.stat().st_mode & ENTER_AND_READ == ENTER_AND_READ
        for part in (path, *path.parents)
    )


def find_open_python() -> str | None:
    """Return an interpreter of our minor version that any user may run, or None.

    None, too, where the checkout itself is closed to others.
    """
    if not is_open(ROOT):
        return None
    for name in _PLACES:
        path = Path(name).resolve()
        if is_open(path):
            return str(path)
    return None


def library_paths() -> list[str]:
    """Return what such an interpreter needs in `sys.path`: checkout and packages."""
    return [str(ROOT), *(p for p in sys.path if p.endswith("site-packages"))]
