"""The binding to libseccomp, found without asking other programs where the library is.

`pyseccomp` looks for its libraries by `ctypes.util`, which runs ``ldconfig`` and compilers.
A frozen program has the one that it was built with in its own tree, and starts nothing.
"""

from __future__ import annotations

import ctypes.util
import sys
from pathlib import Path
from typing import Any, Final

__all__ = ["load_binding"]

_FROZEN: Final = {"c": "libc.so.6", "seccomp": "libseccomp.so.2"}
"""The host's C library is loaded already; the other lies in the frozen tree."""


def load_binding(tree: Path | None = None) -> Any:  # noqa: ANN401 - an untyped binding
    """Return `pyseccomp`, imported when first needed.

    Args:
        tree: where a frozen program's libraries lie; None asks the interpreter.

    Raises:
        ImportError: it is not installed.
        OSError: the library cannot be loaded.
        RuntimeError: the library cannot be found.
    """
    where = getattr(sys, "_MEIPASS", None) if tree is None else str(tree)
    if where is None or "pyseccomp" in sys.modules:
        import pyseccomp  # noqa: PLC0415 - its cost is the supervisor's alone

        return pyseccomp
    search = ctypes.util.find_library
    ctypes.util.find_library = lambda name: _locate(name, Path(where))
    try:
        import pyseccomp  # noqa: PLC0415
    finally:
        ctypes.util.find_library = search
    return pyseccomp


def _locate(name: str, tree: Path) -> str | None:
    """Return what to load for library `name` in a frozen program."""
    file = _FROZEN.get(name)
    if file is None:
        return None
    own = tree / file
    return str(own) if own.exists() else file
