"""Tensors with gradients, modules and optimisers from their forms, and how state is set.

Everything here comes from the wire and is checked part by part. A module is made without
running any of its code: an empty instance gets fresh registries, then parameters, buffers,
submodules and attributes, each of its kind and under a name that the task itself could
use. Private state of library classes is a short list of checked kinds; a library's
optimiser is made by its own constructor.
"""

from __future__ import annotations

import inspect
import sys
import weakref
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

import torch

from stoilo.core.codec import nodes
from stoilo.core.codec.nodes import Instance, Node
from stoilo.core.errors import PolicyRefusal
from stoilo.sandbox.language.guards import Guards
from stoilo.sandbox.language.ownership import class_mro, is_own_class, keeps
from stoilo.sandbox.language.rules import (
    GUARDED_DUNDERS,
    NameKind,
    attribute_kind,
    is_plain,
)
from stoilo.sandbox.process.binder import set_state, state_refusal

Convert = Callable[[Node], Any]

_MODULE_FIELDS = {"training", "parameters", "buffers", "modules", "temporary"}
_OPTIMIZER_FIELDS = {"defaults", "groups", "state"}
_DTYPES = frozenset(
    {"bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64"}
    | {"float16", "bfloat16", "float32", "float64", "complex64", "complex128"}
)
_MAX_LABEL = 1 << 31
_LIBRARIES = ("torch.", "torchvision.")


class Models:
    """Makes library objects of one call's arguments; labels hold within the call.

    Args:
        facades: the level's façades by dotted name: which library classes exist.
        guards: what the task may write.
        own_class: class of the task's source by name; raises for others.
    """

    def __init__(
        self,
        facades: Mapping[str, ModuleType],
        guards: Guards,
        own_class: Callable[[str], type],
    ) -> None:
        self._facades = facades
        self._guards = guards
        self._own_class = own_class
        self._labelled: dict[int, object] = {}

    def start_call(self) -> None:
        """Forget what earlier arguments labelled."""
        self._labelled.clear()

    def make(self, node: Instance, convert: Convert) -> object:
        """Return the value of a node whose class name or base is one of the forms.

        Raises:
            TrustError: ``STO-G110``, the node does not fit its form.
        """
        if isinstance(node.base, Instance):
            made = self._make_object(node, node.base, convert)
            return self._label(made, node.base.base)
        match node.class_name:
            case nodes.PARAMETER | nodes.TENSOR:
                return self._label(_make_tensor(node, convert), node.base)
            case nodes.SHARED:
                return self._shared(node.base)
            case nodes.DTYPE | nodes.DEVICE | nodes.SIZE:
                return _make_plain(node.class_name, node.base)
        raise state_refusal(f"{node.class_name[:64]!r} is no value by itself")

    def _make_object(self, node: Instance, form: Instance, convert: Convert) -> object:
        if form.class_name == nodes.MODULE:
            return self._make_module(node, form.state, convert)
        if form.class_name == nodes.OPTIMIZER:
            return self._make_optimizer(node, form.state, convert)
        raise state_refusal(f"{form.class_name[:64]!r} is no base of an object")

    # Labels

    def _label(self, made: object, label: object) -> object:
        if type(label) is not int or label in self._labelled or label >= _MAX_LABEL:
            raise state_refusal("a label of a shared object is malformed")
        self._labelled[label] = made
        return made

    def _shared(self, label: Node) -> object:
        if type(label) is not int or label not in self._labelled:
            raise state_refusal("an object is shared with nothing that came before")
        return self._labelled[label]

    # Modules

    def _make_module(
        self, node: Instance, fields: dict[str, Node], convert: Convert
    ) -> object:
        _check_fields(fields, _MODULE_FIELDS)
        module = _make_empty(self._class_of(node.class_name, torch.nn.Module))
        attributes = object.__getattribute__(module, "__dict__")
        attributes.update(vars(torch.nn.Module()))
        attributes["training"] = _typed(fields["training"], bool, "training")
        for field, kind in (
            ("parameters", torch.nn.Parameter),
            ("buffers", torch.Tensor),
            ("modules", torch.nn.Module),
        ):
            entries = self._read_entries(module, fields[field], kind, convert)
            attributes[f"_{field}"].update(entries)
        temporary = set(map(str, _typed(fields["temporary"], list, "temporary")))
        if not temporary <= set(attributes["_buffers"]):
            raise state_refusal("a temporary buffer is none of the module's")
        attributes["_non_persistent_buffers_set"].update(temporary)
        self._set_attributes(module, node.state, convert)
        if isinstance(module, torch.nn.RNNBase):
            _link_weights(attributes)
        return module

    def _read_entries(
        self, module: object, table: Node, kind: type, convert: Convert
    ) -> dict[str, object]:
        entries: dict[str, object] = {}
        for name, node in _typed(table, dict, "a module's table").items():
            value = convert(node)
            if value is not None and not isinstance(value, kind):
                raise state_refusal(f"{str(name)[:64]!r} is no {kind.__name__}")
            entries[self._entry_name(module, name)] = value
        return entries

    def _entry_name(self, module: object, name: Node) -> str:
        if type(name) is not str or not name or "." in name:
            raise state_refusal("a name in a module's table is malformed")
        self._check_name(module, name)
        return name

    def _check_name(self, instance: object, name: str) -> None:
        # Refuse names that the task itself could not assign on `instance`
        if attribute_kind(name) is NameKind.REFUSED or name in GUARDED_DUNDERS:
            raise state_refusal(f"the attribute name {name[:64]!r} is reserved")
        try:
            self._guards.write(instance, name)
        except PolicyRefusal as refusal:
            raise state_refusal(refusal.message) from None

    def _set_attributes(
        self, instance: object, state: dict[str, Node], convert: Convert
    ) -> None:
        for name, node in state.items():
            value = convert(node)
            if _is_library_state(instance, name):
                _check_library_state(instance, name, value)
            else:
                self._check_name(instance, name)
            set_state(instance, name, value)

    # Optimisers

    def _make_optimizer(
        self, node: Instance, fields: dict[str, Node], convert: Convert
    ) -> object:
        _check_fields(fields, _OPTIMIZER_FIELDS)
        optimizer = _make_empty(self._class_of(node.class_name, torch.optim.Optimizer))
        groups = _typed(convert(fields["groups"]), list, "groups")
        defaults = _typed(convert(fields["defaults"]), dict, "defaults")
        _check_groups(groups, torch.Tensor)
        _construct(optimizer, groups, defaults)
        for entry in _typed(convert(fields["state"]), list, "state"):
            parameter, values = _typed(entry, tuple, "an entry of the state")
            if not isinstance(parameter, torch.Tensor) or type(values) is not dict:
                raise state_refusal("an entry of an optimiser's state is malformed")
            optimizer.state[parameter] = values
        self._set_attributes(optimizer, node.state, convert)
        return optimizer

    # Classes

    def _class_of(self, name: str, kind: type) -> type:
        # A library's by dotted name, or the task's
        module, _, attribute = name.rpartition(".")
        facade = self._facades.get(module)
        if name in nodes.UNNAMED:
            cls = getattr(sys.modules[module], attribute)
        elif facade is not None and name.startswith(_LIBRARIES):
            cls = vars(facade).get(attribute)
        else:
            cls = self._own_class(name)
        if not isinstance(cls, type) or not issubclass(cls, kind):
            raise state_refusal(f"{name[:64]!r} is no {kind.__name__}")
        return cls


def _typed(value: Any, kind: type, what: str) -> Any:
    if type(value) is not kind:
        raise state_refusal(f"{what} must be a {kind.__name__}")
    return value


def _check_fields(fields: dict[str, Node], names: set[str]) -> None:
    if set(fields) != names:
        raise state_refusal("a form has other fields than it should")


def _make_empty(cls: type) -> Any:
    try:
        return object.__new__(cls)
    except TypeError:
        raise state_refusal(f"instances of {cls.__name__} do not travel") from None


def _make_tensor(node: Instance, convert: Convert) -> object:
    _check_fields(node.state, {"data", "requires_grad"})
    data = convert(node.state["data"])
    wanted = _typed(node.state["requires_grad"], bool, "requires_grad")
    if type(data) is not torch.Tensor:
        raise state_refusal("a parameter needs a tensor")
    if wanted and not (data.is_floating_point() or data.is_complex()):
        raise state_refusal("only floating point tensors have gradients")
    if node.class_name == nodes.PARAMETER:
        return torch.nn.Parameter(data, requires_grad=wanted)
    return data.requires_grad_(wanted)


def _make_plain(form: str, base: Node) -> object:
    if form == nodes.SIZE:
        extents = _typed(base, tuple, "a shape")
        if all(type(extent) is int for extent in extents):
            return torch.Size(extents)
    elif form == nodes.DTYPE and type(base) is str and base in _DTYPES:
        return getattr(torch, base)
    elif form == nodes.DEVICE and base == "cpu":
        return torch.device("cpu")
    raise state_refusal(f"{str(base)[:64]!r} is no {form}")


def _is_library_state(instance: object, name: str) -> bool:
    libraries = (cls for cls in class_mro(type(instance)) if not is_own_class(cls))
    return name in nodes.LIBRARY_STATE and any(keeps(cls, name) for cls in libraries)


def _check_library_state(module: Any, name: str, value: Any) -> None:
    match name:
        case "_qkv_same_embed_dim" | "_is_cn":
            fits = type(value) is bool
        case "_norm_layer":
            fits = callable(value)
        case "_size":
            fits = type(value) is int and value >= 0
        case "_reversed_padding_repeated_twice" | "_stage_out_channels":
            fits = type(value) in {list, tuple} and all(type(i) is int for i in value)
        case "_keys":
            fits = type(value) is dict and all(map(is_plain, value))
        case "_flat_weights_names":
            fits = _are_parameters(module, value)
        case _:
            fits = type(value) is list and all(
                _are_parameters(module, names) for names in value
            )
    if not fits:
        raise state_refusal(f"{name!r} of a {type(module).__name__} is malformed")


def _are_parameters(module: Any, names: Any) -> bool:
    if type(names) is not list or not all(type(name) is str for name in names):
        return False
    attributes = object.__getattribute__(module, "__dict__")
    return set(names) <= set(attributes["_parameters"])


def _link_weights(attributes: dict[str, Any]) -> None:
    # Give a recurrent layer the list of its weights that its kernels read
    names = attributes.get("_flat_weights_names", [])
    weights = [attributes["_parameters"][name] for name in names]
    attributes["_flat_weights"] = weights
    attributes["_flat_weight_refs"] = [
        None if weight is None else weakref.ref(weight) for weight in weights
    ]


def _check_groups(groups: list[Any], tensor: type) -> None:
    for group in groups:
        named = type(group) is dict and type(group.get("params")) is list
        if not named or not all(type(key) is str for key in group):
            raise state_refusal("a parameter group is malformed")
        if not all(isinstance(one, tensor) for one in group["params"]):
            raise state_refusal("a parameter group holds something else than tensors")


def _construct(
    optimizer: Any,
    groups: list[Any],
    defaults: dict[str, Any],
) -> None:
    # Run the constructor of the first library class, never one of the task's
    optim: Any = torch.optim
    library: Any = next(c for c in class_mro(type(optimizer)) if not is_own_class(c))
    try:
        if library is optim.Optimizer:
            library.__init__(optimizer, groups, defaults)
            return
        known = inspect.signature(library.__init__).parameters
        options = {name: value for name, value in defaults.items() if name in known}
        library.__init__(optimizer, groups, **options)
    except (TypeError, ValueError, RuntimeError, KeyError) as error:
        raise state_refusal(f"an optimiser does not fit: {str(error)[:80]}") from None
