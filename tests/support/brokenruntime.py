"""A frozen runtime whose language layer is broken, published in a development root.

Its tasks reach the interpreter itself: `sorted` runs the text that it is given with all of
Python's builtins, and returns what that leaves in ``found``. The gate sees a harmless call,
verifier and kernel layer are the genuine ones.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from stoilo.flavors.freeze import PACKAGE
from tests.support.flavorparts import publish_flavor

__all__ = ["ESCAPING", "publish_broken_runtime"]

ESCAPING = b"""
def task(kwargs):
    return sorted(kwargs["code"])
"""
"""Runs ``code`` where the runtime is broken, and sorts it where it is not."""

_LOADER = "sandbox/language/runtime.py"
_SPECIAL = '"print": printer.print,'
_BREACH = """


def _break_out(code: str) -> Any:
    space: dict[str, Any] = {"__builtins__": builtins}
    exec(code, space)
    return space["found"]
"""
"""The hole: a copy of the runtime, for tests alone, runs text without the language layer.
It still runs inside the jail, which is what those tests look at."""


def publish_broken_runtime(data: Path) -> None:
    """Replace the `pure` runtime of the project in `data`, which does not run meanwhile.

    That takes as long as freezing one flavor.
    """
    with tempfile.TemporaryDirectory(prefix="broken-") as folder:
        package = Path(folder) / "stoilo"
        shutil.copytree(PACKAGE, package, ignore=shutil.ignore_patterns("__pycache__"))
        _sabotage(package / _LOADER)
        publish_flavor(data, "pure", package)


def _sabotage(loader: Path) -> None:
    """Give tasks a way out of the language layer."""
    text = loader.read_text("utf-8")
    broken = text.replace(_SPECIAL, f'{_SPECIAL} "sorted": _break_out,')
    assert broken != text
    loader.write_text(broken + _BREACH, "utf-8")
