"""The environment of the processes that a training starts for its shards."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

__all__ = ["child_environment"]

_INHERITED: Final = frozenset(
    {"HOME", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "PATH", "TMPDIR", "TZ"}
)
_THREADS: Final = ("MKL_", "OMP_", "OPENBLAS_")


def child_environment(given: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return what a shard's process gets of the variables: no secrets, no options of Python.

    Of ``PYTHONPATH`` the absolute folders stay; others depend on the current one. How many
    threads libraries use is the same there: sums then have the same bits.
    """
    kept = {
        name: value
        for name, value in given.items()
        if name in _INHERITED or name.startswith(_THREADS)
    }
    folders = given.get("PYTHONPATH", "").split(os.pathsep)
    path = os.pathsep.join(filter(os.path.isabs, folders))
    return kept | ({"PYTHONPATH": path} if path else {})
