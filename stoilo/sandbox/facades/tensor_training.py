"""What a training loop uses: optimisers, schedulers, data, distributions, checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any

import torch
import torch.utils.checkpoint
from torch import distributions
from torch.distributions import Distribution
from torch.optim import Optimizer, lr_scheduler, swa_utils
from torch.utils import data
from torch.utils.data import dataloader

from stoilo.core.levels import Level
from stoilo.sandbox.language.ownership import class_mro, is_own_class, keeps
from stoilo.sandbox.language.rules import (
    GuardError,
    NameKind,
    attribute_kind,
    is_dunder,
    is_plain,
)

# `torch.optim`: no fused kernels, and schedulers that load no names of the task's choice
#
# A fused kernel trusts the shapes of an optimiser's state, which a task may replace. A
# scheduler's ``load_state_dict`` writes names into its own dictionary and into those of its
# functions, and libraries ask objects for protocols by name.


_FUSED = ("_fused_adam_", "_fused_adamw_", "_fused_sgd_", "_fused_adagrad_")
_update_schedule: Any = lr_scheduler.LRScheduler.load_state_dict
_plateau_load: Any = lr_scheduler.ReduceLROnPlateau.load_state_dict
_cyclic_state: Any = lr_scheduler.CyclicLR.state_dict


def _no_fused(*_args: Any, **_options: Any) -> None:
    raise RuntimeError("fused=True does not exist in a task; leave it out")


def _known_names(self: Any, state: Any) -> dict[str, Any]:
    # Keys become entries of the scheduler's ``__dict__``: exact text, and none that is new.
    copied = {**state}
    for name in copied:
        if type(name) is not str or name not in self.__dict__ or name == "optimizer":
            raise GuardError("STO-G102", f"a scheduler has no state {name!r:.64}")
    return copied


def _own_state(function: Any) -> dict[str, Any]:
    if not is_own_class(type(function)):
        raise GuardError("STO-G101", "only the task's own objects show their state")
    attributes: dict[str, Any] = object.__getattribute__(function, "__dict__")
    return attributes


def _restore(function: Any, state: Any) -> None:
    # Written past every setter, so each name passes the rule that assignments obey.
    attributes = _own_state(function)
    libraries = [base for base in class_mro(type(function)) if not is_own_class(base)]
    for name, value in {**state}.items():
        refused = type(name) is not str or attribute_kind(name) is NameKind.REFUSED
        if refused or is_dunder(name):
            raise GuardError("STO-G102", f"the name {name!r:.64} is reserved")
        if any(keeps(base, name) for base in libraries):
            raise GuardError("STO-G102", f"the name {name!r:.64} is the library's")
        attributes[name] = value


def _saved(function: Any) -> dict[str, Any] | None:
    return None if type(function) is FunctionType else _own_state(function).copy()


def _load_schedule(self: Any, state_dict: Any) -> None:
    self.__dict__.update(_known_names(self, state_dict))


def _lambda_state(self: Any) -> dict[str, Any]:
    state = {
        name: value for name, value in self.__dict__.items() if name != "optimizer"
    }
    state["lr_lambdas"] = [_saved(function) for function in self.lr_lambdas]
    return state


def _load_lambdas(self: Any, state_dict: Any) -> None:
    state = _known_names(self, state_dict)
    saved = state.pop("lr_lambdas")
    self.__dict__.update(state)
    for function, attributes in zip(self.lr_lambdas, saved, strict=True):
        if attributes is not None:
            _restore(function, attributes)


def _load_schedules(self: Any, state_dict: Any) -> None:
    # ``SequentialLR.load_state_dict`` and ``ChainedScheduler``'s
    state = _known_names(self, state_dict)
    saved = state.pop("_schedulers")
    self.__dict__.update(state)
    for schedule, part in zip(self._schedulers, saved, strict=True):
        schedule.load_state_dict(part)


def _load_plateau(self: Any, state_dict: Any) -> None:
    _plateau_load(self, _known_names(self, state_dict))


def _save_cycle(self: Any) -> dict[str, Any]:
    saved = None
    if self._scale_fn_custom is not None:
        saved = _saved(self._scale_fn_custom)
    state: dict[str, Any] = _cyclic_state(self)
    return state | {"_scale_fn_custom": saved}


def _load_cycle(self: Any, state_dict: Any) -> None:
    state = _known_names(self, state_dict)
    saved = state.pop("_scale_fn_custom", None)
    self.__dict__.update(state)
    if saved is not None:
        _restore(self._scale_fn_custom, saved)
    self._init_scale_fn()


def _families(cls: type) -> Iterator[type]:
    yield cls
    children: list[type] = type.__subclasses__(cls)
    for child in children:
        yield from _families(child)


def _guard_schedulers() -> None:
    library: Any = lr_scheduler
    library.LRScheduler.load_state_dict = _load_schedule
    library.ReduceLROnPlateau.load_state_dict = _load_plateau
    for cls in (library.LambdaLR, library.MultiplicativeLR):
        cls.state_dict, cls.load_state_dict = _lambda_state, _load_lambdas
    for cls in (library.SequentialLR, library.ChainedScheduler):
        cls.load_state_dict = _load_schedules
    swa_utils.SWALR.load_state_dict = _load_schedule  # type: ignore[method-assign]  # see above
    library.CyclicLR.state_dict = _save_cycle
    library.CyclicLR.load_state_dict = _load_cycle


def _hook_steps() -> None:
    # The library would at the first instance, over our check
    kinds: Iterator[Any] = _families(Optimizer)
    for cls in kinds:
        if "step" in vars(cls) and not hasattr(cls.step, "hooked"):
            cls.step = Optimizer.profile_hook_step(cls.step)
            cls.step.hooked = True


def _build_torch_optim(_level: Level) -> dict[str, object]:
    # In the classes themselves: tasks extend them.
    for name in _FUSED:
        setattr(torch, name, _no_fused)
    _guard_schedulers()
    _hook_steps()
    return {}


# `torch.utils.data`: loaders that load in the task's own thread -----------------------
#
# Worker processes, pinned memory and time-outs do not exist; the order of the batches and
# what the seed gives is that of a loader without workers.


_NO_WORKERS = {
    "num_workers": 0,
    "pin_memory": False,
    "timeout": 0,
    "worker_init_fn": None,
    "multiprocessing_context": None,
}
_ORDER = (
    *("dataset", "batch_size", "shuffle", "sampler", "batch_sampler", "num_workers"),
    *("collate_fn", "pin_memory", "drop_last", "timeout", "worker_init_fn"),
    *("multiprocessing_context", "generator"),
)
_KEPT = frozenset(_ORDER)


class DataLoader(data.DataLoader[Any]):
    """``torch.utils.data.DataLoader`` without workers."""

    def __init__(self, *args: Any, **options: Any) -> None:
        given = dict(zip(_ORDER, args, strict=False)) | options
        kept = {name: value for name, value in given.items() if name in _KEPT}
        super().__init__(**(kept | _NO_WORKERS))


def _no_workers(_loader: Any) -> Any:
    raise RuntimeError("a task has no worker processes: num_workers=0")


def _nothing(_loader: Any, _value: Any = None) -> None:
    # A context of them is a road to modules
    pass


def _build_torch_utils_data(_level: Level) -> dict[str, object]:
    library: Any = dataloader
    library._MultiProcessingDataLoaderIter = _no_workers  # noqa: SLF001 - what would start processes
    data.DataLoader.multiprocessing_context = property(_nothing, _nothing)  # type: ignore[method-assign, assignment]  # see there
    data.DataLoader.check_worker_number_rationality = _nothing  # type: ignore[method-assign, assignment]  # counts processors
    DataLoader.__module__ = "torch.utils.data"
    return {"DataLoader": DataLoader}


# `torch.distributions`: a task's own distribution names its parameters, nothing else
#
# The library reads every name in ``arg_constraints`` off the distribution and hands what it
# finds to a constraint, which may be the task's own.


_start: Any = Distribution.__init__


def _named_parameters(self: Any) -> dict[str, Any]:
    # Read once: a task's property could name others at the second reading.
    named = {**self.arg_constraints}
    for name in named:
        if not is_plain(name):
            raise GuardError("STO-G101", f"a parameter cannot be called {name!r:.64}")
    return named


def _checked_start(
    self: Any,
    batch_shape: Any = None,
    event_shape: Any = None,
    validate_args: Any = None,
) -> None:
    shapes = (batch_shape or torch.Size(), event_shape or torch.Size())
    own = any(map(is_own_class, class_mro(type(self))))
    asked = self._validate_args if validate_args is None else validate_args
    if not own or not asked:
        _start(self, *shapes, validate_args)
        return
    _start(self, *shapes, validate_args=False)
    self._validate_args = bool(asked)
    for name, constraint in _named_parameters(self).items():
        _check_parameter(self, name, constraint)


def _check_parameter(self: Any, name: str, constraint: Any) -> None:
    library: Any = distributions.constraints
    if library.is_dependent(constraint):
        return
    lazy = distributions.utils.lazy_property
    if name not in self.__dict__ and isinstance(getattr(type(self), name, None), lazy):
        return
    value = getattr(self, name)
    if not torch.as_tensor(constraint.check(value)).all():
        raise ValueError(
            f"expected parameter {name} of distribution {type(self).__name__} to "
            f"satisfy the constraint {constraint!r}, but found invalid values:\n{value}"
        )


def _build_torch_distributions(_level: Level) -> dict[str, object]:
    # Put the check into the library's class: tasks extend it
    base: Any = Distribution
    base.__init__ = _checked_start
    return {}


# `torch.utils.checkpoint`: without the debug mode, whose errors quote this host's frames


def checkpoint(
    function: Callable[..., Any],
    *args: Any,
    use_reentrant: bool = False,
    debug: bool = False,
    **options: Any,
) -> Any:
    # `debug` is ignored
    del debug
    return torch.utils.checkpoint.checkpoint(
        function, *args, use_reentrant=use_reentrant, **options
    )


FACADES: dict[str, object] = {
    "torch.distributions": _build_torch_distributions,
    "torch.optim": _build_torch_optim,
    "torch.utils.checkpoint": {"checkpoint": checkpoint},
    "torch.utils.data": _build_torch_utils_data,
}
