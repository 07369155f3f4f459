"""Array functions called with ``where=`` alone: what they leave out is zero, not memory.

``np.sqrt(x, where=x > 0)`` leaves the other elements as it found them in free memory:
they differ between honest copies (I7) and may hold addresses.
"""

from __future__ import annotations

import sys
from typing import Any

__all__ = ["call_masked"]


def call_masked(function: Any, /, *args: Any, **keywords: Any) -> Any:  # noqa: ANN401
    """Return ``function(*args, **keywords)``; what a mask leaves out of it is zero.

    The transformer sends every call here that names ``where`` and not ``out``.
    """
    numpy = sys.modules.get("numpy")
    if numpy is None or type(function) is not numpy.ufunc or len(args) > function.nin:
        return function(*args, **keywords)
    found = function(*args, out=(None,) * function.nout, **keywords)
    left_out = numpy.logical_not(keywords["where"])
    if isinstance(found, tuple):
        return tuple(_clear(numpy, part, left_out) for part in found)
    return _clear(numpy, found, left_out)


def _clear(numpy: Any, found: Any, left_out: Any) -> Any:  # noqa: ANN401
    zero = numpy.zeros((), found.dtype)
    if found.dtype.hasobject:  # never left as it was found in memory
        return found
    if not isinstance(found, numpy.ndarray):
        return zero[()] if left_out.all() else found
    numpy.copyto(found, zero, where=left_out)
    return found
