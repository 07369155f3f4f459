"""Values of described libraries as nodes and back: which classes, and which module does it.

A frame, a sparse matrix, an estimator is an `Instance` whose class name is the dotted name
that the library's file lists under ``travelling_types``. One module a library knows its
forms; it is the same on the client, in the jail, for arguments and for results, and runs
no code that a node names. Trust: nodes are hostile, whoever sent them.
"""

from __future__ import annotations

import functools
import importlib
import sys
from typing import TYPE_CHECKING, Any, Protocol, cast

from stoilo.core.libraries import load_library

if TYPE_CHECKING:
    from collections.abc import Callable

Node = Any  # as in `stoilo.core.codec.nodes`, which imports this module
_Instance = Any  # its record of that name

# Import name of a library → the module with its `to_node` and `from_node`
_CODECS: dict[str, str] = {
    "PIL": "stoilo.core.codec.images",
    "pandas": "stoilo.core.codec.frames",
    "scipy": "stoilo.core.codec.sparse",
    "sklearn": "stoilo.core.codec.estimators",
}


class LibraryCodec(Protocol):
    """A module that turns one library's values into nodes."""

    def to_node(
        self, value: object, name: str, convert: Callable[[object], Node]
    ) -> _Instance:
        """Return the node of `value`, whose class is listed as `name`.

        Raises:
            UsageError: ``STO-D001``, what it holds does not travel.
        """

    def from_node(self, node: _Instance, convert: Callable[[Node], object]) -> object:
        """Return the value of `node` (hostile), checked.

        Raises:
            TrustError: ``STO-D002``, it is no such value.
        """


def listed_name(value: object) -> str:
    """Return the dotted name under which a library lists the class of `value`, or empty.

    A value can only be a library's when that is loaded, so nothing is imported.
    """
    kind = type(value)
    root = str(getattr(kind, "__module__", "")).partition(".")[0]
    if root not in _CODECS or root not in sys.modules:
        return ""
    return _classes(root).get(kind, "")


@functools.cache
def _classes(root: str) -> dict[type, str]:
    found: dict[type, str] = {}
    for name in travelling_types(root):
        module, _, attribute = name.rpartition(".")
        kind = getattr(importlib.import_module(module), attribute, None)
        if isinstance(kind, type):
            found.setdefault(kind, name)
    return found


def travelling_types(root: str) -> dict[str, str]:
    """Return the listed types of the library with this import name, with their forms."""
    if root in _given:
        return _given[root]
    library = load_library(root)
    return dict(library.travelling_types) if library else {}


_given: dict[str, dict[str, str]] = {}


def use_types(listed: dict[str, str]) -> None:
    """Let `listed`, a level's travelling types, be all that travel in this process.

    A zygote says so before its jail closes, in which no library's file can be read, and no
    codec loaded.
    """
    _given.update({root: {} for root in _CODECS})
    for name, form in listed.items():
        _given.setdefault(name.partition(".")[0], {})[name] = form
    for root in filter(_given.get, _CODECS):
        importlib.import_module(_CODECS[root])


def has_codec(name: str) -> bool:
    """Whether the library whose name `name` (hostile) begins with has values at all."""
    return name.partition(".")[0] in _CODECS


def is_listed(name: str) -> bool:
    """Whether `name`, a node's class name (hostile), is a value's of a described library."""
    root = name.partition(".")[0]
    return has_codec(name) and name in travelling_types(root)


def codec_of(name: str) -> LibraryCodec:
    """Return the codec for a class name that `is_listed`."""
    module = importlib.import_module(_CODECS[name.partition(".")[0]])
    return cast("LibraryCodec", module)
