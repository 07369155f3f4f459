"""Array functions called with ``where=``: what they leave out is zero, not memory.

``np.sqrt(x, where=x > 0)`` leaves the other elements as it found them in free memory:
they differ between honest copies (I7) and may hold addresses.
"""

from __future__ import annotations

import sys
from functools import partial, partialmethod
from typing import Any

from stoilo.sandbox.refusals import GuardError

__all__ = ["call_masked", "unmasked"]

_ARRAY_MEMORY = "stoilo.sandbox.facades.array_memory"
_ONLY_TEXT = frozenset({str})


def call_masked(function: Any, /, *args: Any, **keywords: Any) -> Any:  # noqa: ANN401
    """Return ``function(*args, **keywords)``; what a mask leaves out of it is zero.

    The transformer sends every call here that unpacks keywords, and at levels with arrays
    every call that names ``where``. A keyword of a class of the task's own, which may equal
    one name now and another later, becomes plain text first.

    Whatever is called: an array function deep inside it (a decorator's,
    `numpy.vectorize`'s, ``operator.call``'s) starts from zeros as well. Only a partial
    keeps the mask for later, so it keeps this function too.
    """
    if not _ONLY_TEXT.issuperset(map(type, keywords)):
        keywords = {str.__str__(name): value for name, value in keywords.items()}
    memory = sys.modules.get(_ARRAY_MEMORY)
    if memory is None or "where" not in keywords:
        return function(*args, **keywords)
    if isinstance(function, type) and args:
        if issubclass(function, partial):
            return function(call_masked, *args, **keywords)
        if issubclass(function, partialmethod):
            first, *rest = args
            return function(partial(call_masked, first), *rest, **keywords)
    return memory.call_zeroed(function, *args, **keywords)


def unmasked(keywords: Any) -> dict[str, Any]:  # noqa: ANN401
    """Return a copy of `keywords` (untrusted) that a library may call anything with.

    Raises:
        GuardError: one is ``where``, which only a call in the source may name.
    """
    named = {str.__str__(name): value for name, value in {**keywords}.items()}
    if "where" in named:
        raise GuardError("STO-G101", "only a call in the source takes where=")
    return named
