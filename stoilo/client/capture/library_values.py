"""Library objects among arguments: modules, optimisers, parameters, ordered dicts.

What each becomes is written in `stoilo.core.codec.nodes`. Nothing of the researcher's runs:
attributes are read from the instance, registries from torch's own tables.
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any

from stoilo.client.capture.library import (
    is_handed_out,
    is_library_module,
    library_path,
)
from stoilo.client.capture.refusals import refuse
from stoilo.core.codec import nodes
from stoilo.core.codec.nodes import Instance, Node, to_node

_HOOKS = (
    *("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks"),
    *("_state_dict_hooks", "_state_dict_pre_hooks", "_load_state_dict_pre_hooks"),
    *("_load_state_dict_post_hooks", "_optimizer_step_pre_hooks"),
    *("_optimizer_step_post_hooks", "_optimizer_state_dict_pre_hooks"),
    *("_optimizer_state_dict_post_hooks", "_optimizer_load_state_dict_pre_hooks"),
    "_optimizer_load_state_dict_post_hooks",
)
# What the other side makes itself, or gets as a table
_MADE_AGAIN = frozenset(
    {"_flat_weights", "_flat_weight_refs", "_forward_hooks_always_called"}
    | {"_forward_hooks_with_kwargs", "_forward_pre_hooks_with_kwargs"}
    | {"_is_full_backward_hook", "_non_persistent_buffers_set", "training"}
    | {"_parameters", "_buffers", "_modules", "defaults", "param_groups", "state"}
    | {"_params", "_numel_cache", "_zero_grad_profile_name", "_patch_step_function"}
    | {"_step_supports_amp_scaling", "_need_device_dtype_check_for_fused"}
    | {"_warned_capturable_if_run_uncaptured", *_HOOKS}
)


def form_of(value: object) -> str:
    """Return the form in which a library's object travels; empty when it has none."""
    kind = type(value)
    if kind is OrderedDict:
        return nodes.ORDERED
    torch: Any = sys.modules.get("torch")
    if torch is None:
        return ""
    exact = {
        torch.nn.Parameter: nodes.PARAMETER,
        torch.Tensor: nodes.TENSOR,
        torch.dtype: nodes.DTYPE,
        torch.device: nodes.DEVICE,
        torch.Size: nodes.SIZE,
    }
    if kind in exact:
        return exact[kind]
    if isinstance(value, torch.nn.Module):
        return nodes.MODULE
    return nodes.OPTIMIZER if isinstance(value, torch.optim.Optimizer) else ""


def parts_of(value: Any, form: str, where: str) -> Iterator[tuple[object, str]]:  # noqa: ANN401
    """Yield what is inside, each with how messages call it; refuse what cannot travel."""
    if form == nodes.ORDERED:
        for key, part in value.items():
            yield key, f"a key of {where}"
            yield part, f"{where}[{key!r}]"
    elif form in {nodes.MODULE, nodes.OPTIMIZER}:
        _check_hooks(value, where)
        for table in _tables(value, form):
            for name, part in table.items():
                _check_hooks(part, f"{where}.{name}")
                yield part, f"{where}.{name}"
        for name, part in _attributes(value, where).items():
            yield part, f"{where}.{name}"
    elif form == nodes.DEVICE and value.type != "cpu":
        refuse(
            "STO-C010",
            f"{where} cannot travel: it is the device {value}",
            "volunteers compute on the CPU: use torch.device('cpu')",
        )


def _tables(value: Any, form: str) -> list[dict[str, object]]:  # noqa: ANN401
    if form == nodes.MODULE:
        attributes = vars(value)
        return [attributes[name] for name in ("_parameters", "_buffers", "_modules")]
    groups = {f"param_groups[{i}]": g for i, g in enumerate(value.param_groups)}
    states = {f"state[{i}]": s for i, s in enumerate(value.state.values())}
    return [groups, states, {"defaults": value.defaults}]


def _attributes(value: object, where: str) -> dict[str, object]:
    """Return the plain attributes, and the private library state that travels."""
    found: dict[str, object] = {}
    library = is_library_module(type(value).__module__)
    for name, part in object.__getattribute__(value, "__dict__").items():
        if name in _MADE_AGAIN:
            continue
        if library and name.startswith("_") and name not in nodes.LIBRARY_STATE:
            refuse(
                "STO-C010",
                f"{where} cannot travel: {type(value).__name__} keeps private state in "
                f"{name}",
                "build it inside the function and load_state_dict() what you send",
            )
        found[name] = part
    return found


def _check_hooks(value: object, where: str) -> None:
    if form_of(value) in {nodes.PARAMETER, nodes.TENSOR}:
        found = bool(getattr(value, "_backward_hooks", None))
    elif form_of(value) in {nodes.MODULE, nodes.OPTIMIZER}:
        attributes = object.__getattribute__(value, "__dict__")
        found = any(attributes.get(name) for name in _HOOKS)
    else:
        return
    if not found:
        return
    refuse(
        "STO-C010",
        f"{where} cannot travel: hooks are registered on it",
        "remove them here and register them inside the function",
    )


class Labels:
    """Numbers for objects that several places share: parameters, modules, optimisers.

    Those of data beside the source hold for every call; a call's own for itself.
    """

    def __init__(self) -> None:
        self._common: dict[int, int] = {}
        self._known: dict[int, int] = {}

    def begin(self) -> None:
        """Forget every number."""
        self._common, self._known = {}, {}

    def keep(self) -> None:
        """Let every number given so far hold for all calls that follow."""
        self._common = dict(self._known)

    def start_call(self) -> None:
        """Forget the numbers of the call before."""
        self._known = dict(self._common)

    def find(self, value: object) -> Instance | None:
        """Return a reference to what has a number already, else give it one."""
        known = self._known.get(id(value))
        if known is not None:
            return Instance(nodes.SHARED, {}, known)
        self._known[id(value)] = len(self._known)
        return None

    def number(self, value: object) -> int:
        """Return the number of a value that has one."""
        return self._known[id(value)]


class LibraryValues:
    """Turns library objects into nodes.

    Args:
        name_class: the task module's name for a class of the researcher.
    """

    def __init__(self, name_class: Callable[[type], str]) -> None:
        self._name_class = name_class
        self.labels = Labels()

    def node(
        self,
        value: Any,  # noqa: ANN401
        form: str,
        convert: Callable[[object], Node],
    ) -> Node:
        """Return the node of `value`, which has the form `form`."""
        match form:
            case nodes.ORDERED:
                return Instance(form, {}, convert(dict(value)))
            case nodes.DTYPE:
                return Instance(form, {}, str(value).removeprefix("torch."))
            case nodes.DEVICE:
                return Instance(form, {}, value.type)
            case nodes.SIZE:
                return Instance(form, {}, tuple(value))
        return self.labels.find(value) or self._labelled(value, form, convert)

    def _labelled(
        self,
        value: Any,  # noqa: ANN401
        form: str,
        convert: Callable[[object], Node],
    ) -> Node:
        label = self.labels.number(value)
        if form in {nodes.PARAMETER, nodes.TENSOR}:
            _check_hooks(value, f"a {type(value).__name__}")
            data = {"data": to_node(value), "requires_grad": value.requires_grad}
            return Instance(form, data, label)
        name = self.class_name(type(value), form)
        read = _module_fields if form == nodes.MODULE else _optimizer_fields
        fields = {key: convert(part) for key, part in read(value).items()}
        state = {key: convert(part) for key, part in _attributes(value, name).items()}
        return Instance(name, state, Instance(form, fields, label))

    def class_name(self, kind: type, where: str) -> str:
        """Return the name of a class: in the task module, or a library's dotted one.

        Raises:
            UsageError: ``STO-C010``, no level hands out the library's class.
        """
        if not is_library_module(kind.__module__):
            return self._name_class(kind)
        dotted = f"{kind.__module__}.{kind.__qualname__}"
        if dotted in nodes.UNNAMED:
            return dotted
        path = library_path(kind)
        if path is None or not is_handed_out(*path):
            refuse(
                "STO-C010",
                f"{where} cannot travel: no level knows {dotted}",
                "build it inside the function and load_state_dict() what you send",
            )
        return ".".join(path)


def _module_fields(module: Any) -> dict[str, object]:  # noqa: ANN401
    attributes = vars(module)
    return {
        "training": attributes["training"],
        "parameters": dict(attributes["_parameters"]),
        "buffers": dict(attributes["_buffers"]),
        "modules": dict(attributes["_modules"]),
        "temporary": sorted(attributes["_non_persistent_buffers_set"]),
    }


def _optimizer_fields(optimizer: Any) -> dict[str, object]:  # noqa: ANN401
    return {
        "defaults": dict(optimizer.defaults),
        "groups": [dict(group) for group in optimizer.param_groups],
        "state": [(key, dict(values)) for key, values in optimizer.state.items()],
    }
