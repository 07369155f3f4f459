"""What compiled code calls around hooks, masked array functions and ``except*``.

``__getattr__`` answers for every name that an object lacks, ``__setattr__`` sees every name
and value that is stored. Libraries ask for protocols such as ``__array_interface__`` by
name and believe the answer; their own classes store what no task may hold. So a name that
no source can spell, and one that a library class among the bases uses, never reaches the
task's method: the class below it answers.

The wrapper is the outermost decorator of the ``def``, so that no moment of a class's making
sees the bare method.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from functools import partial, partialmethod
from typing import Any

from stoilo.sandbox.language.guards import check_fields
from stoilo.sandbox.language.ownership import (
    class_dict,
    class_mro,
    is_own_class,
    is_own_function,
    used_names,
)
from stoilo.sandbox.language.rules import (
    GuardError,
    NameKind,
    attribute_kind,
    is_dunder,
    kind_name,
    refuse_read,
)

_Method = Callable[..., Any]
_TRUSTING = frozenset({"abc", "builtins", "collections.abc", "enum", "typing"})
"""Modules whose classes hold nothing back from the classes that extend them."""


def make_hook() -> Callable[[str], _Method]:
    """Return ``_stoilo_hook``: from the name of a special method to its decorator."""
    wrappers: dict[str, Callable[[_Method], _Method]] = {
        "__array__": _array,
        "__deepcopy__": hide_memo,
        "__delattr__": _storing("__delattr__"),
        "__getattr__": _getattr,
        "__init_subclass__": _init_subclass,
        "__set_name__": _set_name,
        "__setattr__": _storing("__setattr__"),
    }

    def hook(name: str) -> _Method:
        def decorate(method: Any) -> Any:
            # Refuse (``STO-G105``) what is no function of the task, else wrap it
            declared = name == "__init_subclass__" and type(method) is classmethod
            inner = method.__func__ if declared else method
            if not is_own_function(inner):
                raise GuardError("STO-G105", f"{name} must be written as a method")
            return wrappers[name](inner)

        return decorate

    return hook


@functools.cache
def _library_names(cls: type) -> frozenset[str]:
    libraries = (
        base
        for base in class_mro(cls)
        if not is_own_class(base) and base.__module__ not in _TRUSTING
    )
    return frozenset[str]().union(*map(used_names, libraries))


def _is_free(cls: type, name: object) -> bool:
    """Whether the task's own method answers for `name` on instances of `cls`."""
    if type(name) is not str or is_dunder(name):
        return False
    spelled = attribute_kind(name) is not NameKind.REFUSED
    return spelled and name not in _library_names(cls)


def _below(self: Any, wrapper: _Method, name: str) -> Any:
    """Return the method `name` of the class below the one that has `wrapper`, or None."""
    for base in class_mro(type(self)):
        if is_own_class(base) and class_dict(base).get(name) is wrapper:
            return getattr(super(base, self), name, None)
    raise refuse_read(self, name)


def _getattr(method: _Method) -> _Method:
    @functools.wraps(method, updated=())
    def wrapper(self: Any, name: Any) -> Any:
        if _is_free(type(self), name):
            return method(self, name)
        if (inherited := _below(self, wrapper, "__getattr__")) is not None:
            return inherited(name)
        raise AttributeError(
            f"{kind_name(self)!r} object has no attribute {name!r:.99}"
        )

    return wrapper


def _storing(special: str) -> Callable[[_Method], _Method]:
    def wrap(method: _Method) -> _Method:
        @functools.wraps(method, updated=())
        def wrapper(self: Any, name: Any, *value: Any) -> None:
            if _is_free(type(self), name):
                method(self, name, *value)
            else:
                _below(self, wrapper, special)(name, *value)

        return wrapper

    return wrap


def _check_unfinished(cls: type, name: str) -> None:
    """Check `cls`, which is being made, before code of the task gets hold of it.

    What is asked of a class that extends a library's is asked when it is finished.
    """
    for base in class_mro(cls):
        if not is_own_class(base) and base.__module__ not in _TRUSTING:
            message = f"{name} is not called for a class that extends {kind_name(base)}"
            raise GuardError("STO-G105", message)
    check_fields(cls)


def _init_subclass(method: _Method) -> _Method:
    @functools.wraps(method, updated=())
    def wrapper(cls: type, /, **options: Any) -> None:
        _check_unfinished(cls, "__init_subclass__")
        method(cls, **options)

    return wrapper


def _set_name(method: _Method) -> _Method:
    @functools.wraps(method, updated=())
    def wrapper(self: Any, owner: Any, name: Any) -> None:
        if isinstance(owner, type):
            _check_unfinished(owner, "__set_name__")
        method(self, owner, name)

    return wrapper


def _array(method: _Method) -> _Method:
    # Libraries go on with what it returns as if they had made it, views of memory included.

    @functools.wraps(method, updated=())
    def wrapper(self: Any, *values: Any, **options: Any) -> Any:
        made = method(self, *values, **options)
        kind = type(made)
        if is_own_class(kind) or (kind.__module__, kind.__name__) != _NDARRAY:
            raise ValueError("object __array__ method not producing an array")
        return made

    return wrapper


_NDARRAY = ("numpy", "ndarray")


# ``deepcopy`` keeps a dictionary from addresses to copies and believes it. A task that could
# write there would choose an object's state, names and all; one that could read there would
# see addresses. So a task's ``__deepcopy__`` is handed a `Memo` that stands for it.
class Memo:
    """Stands for the ledger of one ``deepcopy``; good for passing on only."""

    __slots__ = ()


LEDGERS: dict[Memo, dict[int, object]] = {}


def _stand_for(ledger: object) -> Memo:
    if type(ledger) is Memo:
        return ledger
    for memo, known in LEDGERS.items():
        if known is ledger:
            return memo
    return Memo()


def hide_memo(method: Callable[[Any, Any], object]) -> Callable[[Any, Any], object]:
    """Return the task's ``__deepcopy__`` so that it gets a `Memo` in any case."""

    @functools.wraps(method)
    def __deepcopy__(self: Any, memo: Any) -> object:  # noqa: N807
        return method(self, _stand_for(memo))

    return __deepcopy__


# Array functions called with ``where=``: what they leave out is zero, not memory ------
#
# ``np.sqrt(x, where=x > 0)`` leaves the other elements as it found them in free memory:
# they differ between honest copies (I7) and may hold addresses.


_ARRAY_MEMORY = "stoilo.sandbox.facades.array_memory"
_ONLY_TEXT = frozenset({str})


def call_masked(function: Any, /, *args: Any, **keywords: Any) -> Any:
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


def unmasked(keywords: Any) -> dict[str, Any]:
    """Return a copy of `keywords` (untrusted) that a library may call anything with.

    Raises:
        GuardError: one is ``where``, which only a call in the source may name.
    """
    named = {str.__str__(name): value for name, value in {**keywords}.items()}
    if "where" in named:
        raise GuardError("STO-G101", "only a call in the source takes where=")
    return named


# ``except*``: the interpreter splits groups by their own methods and believes the answer
#
# CPython before 3.12.9 and 3.13.2 takes what ``split`` returns for a pair without looking
# (CVE-2025-22153), and a handler may be left with what ``derive`` made. So each clause first
# sees that the group which is being handled has the interpreter's own two methods. What is
# left over after that is a plain group which no code of the task gets hold of.


_METHODS = ("derive", "split")
_find_dict = vars(BaseException)["__dict__"].__get__


def check_group(kinds: object) -> object:
    """Return `kinds`, what an ``except*`` clause names; refuse the group being handled.

    Raises:
        GuardError: ``STO-G105``, the group has a ``split`` or ``derive`` of its own.
    """
    handled = sys.exc_info()[1]
    if isinstance(handled, BaseExceptionGroup) and not _is_plain(handled):
        message = (
            f"except* takes no {kind_name(handled)}: it has its own split or derive"
        )
        raise GuardError("STO-G105", message)
    return kinds


def _is_plain(group: BaseException) -> bool:
    stored = _find_dict(group)
    return all(
        name not in stored and _definer(type(group), name) is BaseExceptionGroup
        for name in _METHODS
    )


def _definer(cls: type, name: str) -> type:
    return next(base for base in class_mro(cls) if name in class_dict(base))
