"""`torch.save` and `torch.load`: what travels as a result, in memory, without pickles.

torch's own files are pickles. These hold our codec's bytes, which any hostile bytes are no
match for; so they can be read in a task only. At home, return the dict of tensors itself.
"""

from __future__ import annotations

import io
from collections import OrderedDict
from typing import Any

from stoilo.core.codec import skeleton
from stoilo.core.codec.values import from_node, to_node
from stoilo.core.errors import StoiloError
from stoilo.sandbox.language.instances import InstanceDict
from stoilo.sandbox.language.refusals import GuardError

__all__ = ["file_functions"]

_DICTS = frozenset({InstanceDict, OrderedDict})


def _check_file(file: Any) -> Any:
    if type(file) is not io.BytesIO:
        raise FileNotFoundError("a task has no files: use an io.BytesIO()")
    return file


def save(obj: Any, f: Any) -> None:
    """``torch.save`` of tensors and plain data, such as a ``state_dict()``."""
    try:
        data = skeleton.encode(to_node(obj, dicts=_DICTS))
    except StoiloError as error:
        raise TypeError(f"{error.message}; {error.hint}") from None
    _check_file(f).write(data)


def load(f: Any, map_location: Any = None, *, weights_only: bool = True) -> Any:
    """``torch.load`` of what `save` wrote in a task; there is one device."""
    del map_location
    if not weights_only:
        raise GuardError("STO-G102", "a task reads no pickles: weights_only=True")
    try:
        return from_node(skeleton.decode(_check_file(f).read()))
    except StoiloError as error:
        message = "this was not written by torch.save() in a task"
        raise ValueError(f"{message}: {error.message}") from None


def file_functions() -> dict[str, object]:
    """Return the replacements for `torch`'s names."""
    return {"load": load, "save": save}
