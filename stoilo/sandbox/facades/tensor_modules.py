"""`torch.nn`, its utilities and `torch.func`: names pass our rule or are the module's own."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from stoilo.core.levels import Level
from stoilo.sandbox.language.hooks import unmasked
from stoilo.sandbox.language.rules import (
    GuardError,
    NameKind,
    attribute_kind,
    is_dunder,
    is_plain,
)
from stoilo.sandbox.language.substitutes import by_name, stand_for

# `torch.nn`: modules whose names for parameters, buffers and children pass our rule
#
# A module keeps those in dictionaries and finds them by name, also for libraries that ask
# it for a protocol such as ``__array_interface__``: a name chosen freely would forge one.


def check_attribute_name(name: object) -> None:
    """Raise ``STO-G102`` for a name that no task can assign."""
    if not isinstance(name, str):
        return  # the library refuses it
    text = str.__str__(name)
    reserved = is_dunder(text) or attribute_kind(text) is NameKind.REFUSED
    if reserved or type(name) is not str:  # whose own class says what it equals
        raise GuardError("STO-G102", f"the name {text[:64]!r} is reserved")


def _make_parameter(data: Any = None, requires_grad: bool = True) -> nn.Parameter:
    # Of a tensor only
    if data is not None and not isinstance(data, torch.Tensor):
        raise TypeError("nn.Parameter() takes a tensor")
    return nn.Parameter(data, requires_grad)  # type: ignore[arg-type]  # None is what its default is


_register_buffer = nn.Module.register_buffer
_register_parameter = nn.Module.register_parameter
_add_module = nn.Module.add_module
_register_pre_hook = nn.Module.register_forward_pre_hook
_key_to_attr = nn.ParameterDict._key_to_attr  # noqa: SLF001 - guarded below


def _checked_register_buffer(
    self: Any,
    name: str,
    tensor: Any,
    persistent: bool = True,
) -> None:
    check_attribute_name(name)
    _register_buffer(self, name, tensor, persistent)


def _checked_register_parameter(self: Any, name: str, param: Any) -> None:
    check_attribute_name(name)
    _register_parameter(self, name, param)


def _checked_add_module(self: Any, name: str, module: Any) -> None:
    check_attribute_name(name)
    _add_module(self, name, module)


def _checked_pre_hook(
    self: Any, hook: Any, *, prepend: bool = False, with_kwargs: bool = False
) -> Any:
    # What a hook returns goes to ``forward`` without any call in the source: a ``where=`` among
    # the keywords would show free memory.

    @functools.wraps(hook, updated=())
    def checked(*values: Any) -> Any:
        found = hook(*values)
        if isinstance(found, tuple) and len(found) == 2:  # noqa: PLR2004 - as torch asks
            arguments, keywords = found
            return arguments, unmasked(keywords)
        return found

    kept = checked if with_kwargs else hook
    return _register_pre_hook(self, kept, prepend=prepend, with_kwargs=with_kwargs)


def _checked_key(_: Any, key: Any) -> str:
    # Keys become attributes: ``__array_interface__`` would forge an array over any address.
    if not is_plain(key):
        raise GuardError("STO-G102", f"a ParameterDict cannot have the key {key!r:.64}")
    return key


def _get_submodule(self: Any, target: str) -> nn.Module:
    # The library reads attributes along the dotted path; here they are children only.
    found = self
    for part in str.__str__(target).split(".") if target else ():
        if found is not None:
            found = found._modules.get(part)
    if found is None:
        raise AttributeError(f"there is no submodule {target[:64]!r}")
    module: nn.Module = found
    return module


def _get_parameter(self: Any, target: str) -> Any:
    path, _, name = str.__str__(target).rpartition(".")
    owner: Any = _get_submodule(self, path)
    if name not in owner._parameters:  # noqa: SLF001 - the parameters
        raise AttributeError(f"there is no parameter {name[:64]!r}")
    return owner._parameters[name]  # noqa: SLF001 - the parameters


def _get_buffer(self: Any, target: str) -> Any:
    path, _, name = str.__str__(target).rpartition(".")
    owner: Any = _get_submodule(self, path)
    if name not in owner._buffers:  # noqa: SLF001 - the buffers
        raise AttributeError(f"there is no buffer {name[:64]!r}")
    return owner._buffers[name]  # noqa: SLF001 - the buffers


def _guard_modules() -> None:
    # In the classes themselves: tasks extend them.
    replacements = {
        "register_buffer": _checked_register_buffer,
        "register_parameter": _checked_register_parameter,
        "register_forward_pre_hook": _checked_pre_hook,
        "add_module": _checked_add_module,
        "register_module": _checked_add_module,
        "get_submodule": _get_submodule,
        "get_parameter": _get_parameter,
        "get_buffer": _get_buffer,
    }
    for name, function in replacements.items():
        function.__name__ = name
        setattr(nn.Module, name, function)
    nn.ParameterDict._key_to_attr = _checked_key  # type: ignore[assignment, method-assign]  # noqa: SLF001 - see above


def _build_torch_nn(_level: Level) -> dict[str, object]:
    _guard_modules()
    return by_name(stand_for(nn.Parameter, _make_parameter))


# `torch.nn.utils`: weight and spectral norm, of parameters that the module has --------


_NAMES = (
    *("remove_spectral_norm", "remove_weight_norm", "spectral_norm", "weight_norm"),
)


def _check_parameter(module: Any, name: Any) -> None:
    # Raise unless `name` (untrusted) is a parameter of `module`, normalised or not
    if not isinstance(module, nn.Module) or type(name) is not str:
        raise TypeError("a module and the name of one of its parameters, please")
    known = {name, f"{name}_g", f"{name}_orig"}
    own: Any = module._parameters  # noqa: SLF001 - the table that the names lie in
    if attribute_kind(name) is not NameKind.PLAIN or known.isdisjoint(own):
        raise GuardError("STO-G102", f"the module has no parameter {name!r:.64}")


def _checked_by_name(real: Callable[..., Any]) -> Callable[..., Any]:
    def apply(module: Any, name: str = "weight", *more: Any, **options: Any) -> Any:
        _check_parameter(module, name)
        return real(module, name, *more, **options)

    apply.__name__ = apply.__qualname__ = real.__name__
    apply.__module__ = "torch.nn.utils"
    return apply


# `torch.func`: `functional_call` takes names, so it takes those of parameters and buffers


_Values = Mapping[str, torch.Tensor] | Sequence[Mapping[str, torch.Tensor]]


def _checked_values(
    module: torch.nn.Module, values: _Values
) -> list[dict[str, torch.Tensor]]:
    tables = [values] if isinstance(values, Mapping) else list(values)
    known = {name for name, _ in module.named_parameters(remove_duplicate=False)}
    known |= {name for name, _ in module.named_buffers(remove_duplicate=False)}
    found: list[dict[str, torch.Tensor]] = []
    for table in tables:
        copied = {**table}  # read once: a mapping of the task's may change its answers
        for name, value in copied.items():
            if type(name) is not str or name not in known:
                raise GuardError("STO-G101", f"{name!r:.64} is no parameter or buffer")
            if not isinstance(value, torch.Tensor):
                raise TypeError("parameters and buffers are tensors")
        found.append(copied)
    return found


def functional_call(
    module: torch.nn.Module,
    parameter_and_buffer_dicts: _Values,
    args: Any = None,
    kwargs: dict[str, Any] | None = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> Any:
    return torch.func.functional_call(
        module,
        tuple(_checked_values(module, parameter_and_buffer_dicts)),
        args,
        None if kwargs is None else unmasked(kwargs),
        tie_weights=tie_weights,
        strict=strict,
    )


FACADES: dict[str, object] = {
    "torch.func": by_name(functional_call),
    "torch.nn": _build_torch_nn,
    "torch.nn.parameter": _build_torch_nn,
    "torch.nn.utils": {
        name: _checked_by_name(getattr(nn.utils, name)) for name in _NAMES
    },
}
