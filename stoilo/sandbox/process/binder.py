"""Skeleton ↔ values, in the jail, after the source is loaded (design §6).

References are looked up in the task module under the guards' name rule. Instances are
made without running any of their code: no ``__init__``, ``__setstate__``, ``__reduce__``,
property or ``__setattr__`` is called on what came from the wire. Modules and optimisers
of torch are `stoilo.sandbox.facades.tensor_models`'.
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Callable, Sequence
from types import MemberDescriptorType, ModuleType
from typing import Any

from stoilo.core.codec import nodes, skeleton
from stoilo.core.codec.nodes import (
    BlobRef,
    ClassRef,
    FunctionRef,
    Instance,
    Node,
)
from stoilo.core.codec.values import from_node, to_node
from stoilo.core.errors import PolicyRefusal, TrustError
from stoilo.sandbox.language.ownership import class_dict, class_mro, is_own_class, keeps
from stoilo.sandbox.language.rules import (
    GUARDED_DUNDERS,
    NameKind,
    attribute_kind,
    is_variable_name,
)
from stoilo.sandbox.language.runtime import LanguageRuntime
from stoilo.sandbox.language.substitutes import InstanceDict

# Attributes of what arguments name, set without running any of its code ---------------


def state_refusal(message: str) -> TrustError:
    """Return the refusal ``STO-G110``: the state does not fit the class."""
    return TrustError("STO-G110", message)


def set_state(instance: Any, name: str, value: object) -> None:
    """Set the attribute `name` (from the wire); no setter or ``__setattr__`` runs.

    Raises:
        TrustError: ``STO-G110``, the name is reserved or the class has no room for it.
    """
    if attribute_kind(name) is NameKind.REFUSED or name in GUARDED_DUNDERS:
        raise state_refusal(f"the attribute name {name[:64]!r} is reserved")
    for cls in class_mro(type(instance)):
        member = class_dict(cls).get(name)
        if isinstance(member, MemberDescriptorType):
            if not is_own_class(cls):
                raise state_refusal(f"{name[:64]!r} belongs to a library class")
            member.__set__(instance, value)
            return
    try:
        attributes = object.__getattribute__(instance, "__dict__")
    except AttributeError:
        raise state_refusal(f"there is no attribute {name[:64]!r}") from None
    attributes[name] = value


# Made by the façade of torch where a level has one: a volunteer whose levels have none
# never loads it. All else that travels is made here.
_MODELS = "stoilo.sandbox.facades.tensor_models"

_BASES = (list, dict, set, frozenset, tuple, str, bytes, int, float, complex)


class TaskReferences:
    """Resolves what arguments name in a loaded task module (see `core.values`)."""

    def __init__(
        self, module: ModuleType, runtime: LanguageRuntime, blobs: Sequence[bytes] = ()
    ) -> None:
        self._module = module
        self._guards = runtime.guards
        self._models: Any = None
        if tensors := sys.modules.get(_MODELS):
            self._models = tensors.Models(
                runtime.facades.modules, runtime.guards, self._look_up_own_class
            )
        self._blobs = blobs
        self._inside_blob = False

    def to_ref(self, value: object, convert: Callable[[object], Node]) -> Node:
        """Refuse: results are plain data."""
        del convert
        raise TrustError(
            "STO-D001", f"a {type(value).__name__} cannot leave the sandbox"
        )

    def from_ref(self, node: Node, convert: Callable[[Node], object]) -> object:
        """Return the function, class, new instance or blob's value that `node` names.

        Raises:
            TrustError: ``STO-G110`` nothing of that kind has this name, the
                state does not fit the class, a blob is missing or nested.
        """
        match node:
            case FunctionRef(name=name):
                return self._look_up(name, callable, "function")
            case ClassRef(name=name):
                return self._look_up(name, _is_class, "class")
            case Instance(class_name=nodes.ORDERED, base=dict()):
                items: Any = convert(node.base)
                return OrderedDict(items)
            case Instance(class_name=name, base=base) if (
                name in nodes.FORMS or isinstance(base, Instance)
            ):
                return self._make_model(node, convert)
            case Instance():
                return self._make_instance(node, convert)
            case BlobRef(index=index):
                return self._read_blob(index)
        raise TrustError("STO-G110", "an unknown kind of reference")

    def _look_up(self, name: str, accept: Callable[[Any], bool], kind: str) -> Any:
        value = self._resolve(name.split("."))
        if value is None or not accept(value):
            raise TrustError("STO-G110", f"the source defines no {kind} {name[:64]!r}")
        return value

    def _resolve(self, parts: list[str]) -> Any:
        if not all(map(is_variable_name, parts)):
            return None
        value = self._module.__dict__.get(parts[0])
        try:
            for part in parts[1:]:
                value = self._guards.getattr(value, part)
        except (AttributeError, PolicyRefusal):
            return None
        return value

    def _make_instance(
        self, node: Instance, convert: Callable[[Node], object]
    ) -> object:
        cls = self._look_up_own_class(node.class_name)
        instance = _new_instance(cls, convert(node.base))
        libraries = [base for base in class_mro(cls) if not is_own_class(base)]
        for name, value in node.state.items():
            if any(keeps(base, name) for base in libraries):
                raise state_refusal(f"{name[:64]!r} belongs to a library class")
            set_state(instance, name, convert(value))
        return instance

    def _look_up_own_class(self, name: str) -> type:
        cls: type = self._look_up(name, _is_class, "class")
        if not is_own_class(cls):
            raise TrustError("STO-G110", f"{name[:64]!r} is no class of the source")
        return cls

    def _make_model(self, node: Instance, convert: Callable[[Node], object]) -> object:
        if self._models is None:
            raise state_refusal("this level has no torch")
        made: object = self._models.make(node, convert)
        return made

    def start_call(self) -> None:
        """Forget which objects earlier arguments shared."""
        if self._models is not None:
            self._models.start_call()

    def _read_blob(self, index: int) -> object:
        if self._inside_blob or not 0 <= index < len(self._blobs):
            raise TrustError("STO-G110", f"there is no blob {index} to refer to here")
        self._inside_blob = True
        try:
            return from_node(skeleton.decode(self._blobs[index]), self)
        finally:
            self._inside_blob = False


def _is_class(value: object) -> bool:
    return isinstance(value, type)


def _new_instance(cls: type, base: Any) -> Any:
    for kind in _BASES:
        if issubclass(cls, kind):
            return _new_with_base(cls, kind, base)
    if base is not None:
        raise TrustError("STO-G110", f"{cls.__name__} extends no builtin container")
    try:
        return object.__new__(cls)
    except TypeError:
        raise TrustError(
            "STO-G110", f"instances of {cls.__name__} do not travel"
        ) from None


def _new_with_base(cls: type, kind: Any, base: Any) -> Any:
    fits: bool = type(base) is kind
    if not fits:
        raise TrustError("STO-G110", f"{cls.__name__} needs the content of its {kind}")
    if kind in {list, dict, set}:
        instance: Any = kind.__new__(cls)
        fill: Any = getattr(kind, "extend" if kind is list else "update")
        fill(instance, base)
        return instance
    make: Any = kind.__new__
    return make(cls, base)


def bind_arguments(
    data: bytes,
    module: ModuleType,
    runtime: LanguageRuntime,
    blobs: Sequence[bytes] = (),
    *,
    items: int = 0,
) -> Any:
    """Return the call's argument from its encoding (untrusted), bound to `module`.

    With `items` the encoding is a list of that many arguments, which share nothing.

    Raises:
        TrustError: ``STO-D…`` malformed, ``STO-G11x`` names nothing of the source,
            ``STO-G110`` there are not `items` arguments.
    """
    references = TaskReferences(module, runtime, blobs)
    node = skeleton.decode(data)
    if not items:
        return from_node(node, references)
    if type(node) is not list or len(node) != items:
        raise TrustError("STO-G110", f"there are not {items} items to call with")
    arguments = []
    for item in node:
        references.start_call()
        arguments.append(from_node(item, references))
    return arguments


_DICTS = frozenset({OrderedDict, InstanceDict})


def encode_result(value: object) -> bytes:
    """Return the encoding of what the task returned."""
    return skeleton.encode(to_node(value, dicts=_DICTS))
