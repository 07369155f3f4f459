"""Where a zygote finds its libraries, said by the supervisor instead of looked for.

The interpreter's own search (the module `site`) reads every ``.pth`` file, runs what they
hold and what a distribution put into ``sitecustomize``: 3 ms of every cold start, and code
that nobody listed.
"""

from __future__ import annotations

import functools
import site
from pathlib import Path

__all__ = ["library_folders"]


@functools.cache
def library_folders() -> tuple[str, ...]:
    """Return the absolute folders of installed libraries and of stoilo itself.

    Never the user's own site folder, the current folder or one of ``PYTHONPATH``.
    """
    own = str(Path(__file__).resolve().parents[2])
    return tuple(dict.fromkeys((*site.getsitepackages(), own)))
