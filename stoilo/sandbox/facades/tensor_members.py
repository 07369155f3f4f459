"""The torch library as a zygote prepares it, and what guards its tensors, nodes and kernels.

Set once, before any façade of torch is built:

- oneDNN and NNPACK are off: both make machine code at run time, which W^X forbids
  (docs/adr/0012-torch.md says what that costs);
- the path optimiser of einsum is off, since a host may lack it and then sums in
  another order;
- ``torch.fx.experimental.symbolic_shapes`` is a stand-in that knows plain shapes only:
  the real one is a prover of 500 modules that ``autograd.grad`` would import;
- ``torch._dynamo`` is a stand-in that leaves functions as they are: the real one is
  a compiler of 700 modules that optimisers would import at their first step.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import importlib
import operator
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch
from torch.autograd import function

from stoilo.sandbox.language.substitutes import StandIn

# Nodes of a graph of gradients: looked at, never called -------------------------------
#
# ``loss.grad_fn(x)`` runs a backward kernel without the engine, which alone checks that
# what comes in has the shape that went out: half of the kernels read outside of it. So a
# task is shown a `Node` that stands for the library's.


# `torch.Tensor`: what the class itself needs so that its closed names stay closed -----
#
# The library's own Python code reaches memory through names that the level closes
# (``untyped_storage``, ``set_``); where honest programs need what it does, it is done here.


_Base: Any = torch._C.TensorBase  # noqa: SLF001 - its methods cannot be replaced
_data: Any = _Base.data
_kept: list[torch.Tensor] = []


def _deepcopy(self: Any, memo: dict[Any, Any]) -> Any:
    # Tensors that shared memory share it after, as in the library, whose own way there
    # (``untyped_storage``, ``set_``) is closed to tasks.
    if id(self) in memo:
        return memo[id(self)]
    if not self.is_leaf:
        raise RuntimeError("only tensors made by the user (leaves) can be deep-copied")
    with torch.no_grad():
        storage = copy.deepcopy(_Base.untyped_storage(self), memo)
        made = torch.zeros([], dtype=self.dtype)
        place = (self.storage_offset(), self.size(), self.stride())
        _Base.set_(made, storage, *place)
        made = made.conj() if self.is_conj() else made
        made.requires_grad_(self.requires_grad)
        if self.grad is not None:
            made.grad = copy.deepcopy(self.grad, memo)
    memo[id(self)] = made
    return made


def _is_lent(tensor: Any) -> bool:
    # Whether an array of numpy may stand on this tensor's memory
    return not _Base.untyped_storage(tensor).resizable()


def _set_data(self: Any, value: Any) -> None:
    """Assign ``Tensor.data``; memory that numpy may still look at is kept.

    The array holds the tensor and not its memory, which this would free.
    """
    if _is_lent(self):
        _kept.append(_data.__get__(self))
    _data.__set__(self, value)


def _convert(self: Any, dtype: Any = None, *args: Any, **options: Any) -> Any:
    # ``Tensor.type``, which also takes our stand-ins such as ``torch.LongTensor``
    if isinstance(dtype, StandIn):
        dtype = dtype.__stoilo_real__
    return _Base.type(self, dtype, *args, **options)


def _zeros_for(self: Any, *size: Any, **options: Any) -> Any:
    # Zeros, since free memory differs between honest copies
    return self.new_zeros(*size, **options)


def guard_tensors() -> None:
    """Put the replacements into the class (in the zygote, once)."""
    tensor: Any = torch.Tensor
    tensor.__deepcopy__ = _deepcopy
    tensor.data = property(_data.__get__, _set_data)
    tensor.type = _convert
    tensor.new_empty = _zeros_for


_grad_fn: Any = _Base.grad_fn
_next_functions: Any = torch._C._FunctionBase.next_functions  # noqa: SLF001 - as above


class Node:
    """Stands for one node; equal to every other that stands for it."""

    __slots__ = ("_node",)

    def __init__(self, node: Any) -> None:
        self._node = node

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Node) and self._node is other._node

    def __hash__(self) -> int:
        return hash(self._node)

    def __repr__(self) -> str:
        return repr(self._node)

    def name(self) -> str:
        return str(self._node.name())

    @property
    def next_functions(self) -> tuple[Any, ...]:
        return _shown(self._node.next_functions)

    @property
    def metadata(self) -> Any:
        return self._node.metadata

    @property
    def requires_grad(self) -> bool:
        return bool(self._node.requires_grad)

    @property
    def variable(self) -> Any:
        return self._node.variable

    def register_hook(self, hook: Callable[..., Any]) -> Any:
        return self._node.register_hook(hook)

    def register_prehook(self, hook: Callable[..., Any]) -> Any:
        return self._node.register_prehook(hook)


@functools.cache
def _kind(name: str) -> type[Node]:
    return type(name, (Node,), {"__slots__": (), "__module__": "torch.autograd"})


def _show(node: Any) -> Any:
    # Nodes of the task's own functions are what they are.
    if node is None or isinstance(node, function.FunctionCtx):
        return node
    return _kind(type(node).__name__)(node)


def _shown(edges: Any) -> tuple[Any, ...]:
    return tuple((_show(node), place) for node, place in edges)


def guard_nodes() -> None:
    """Put the stand-ins where a task meets a node (in the zygote, once)."""
    tensor: Any = torch.Tensor
    tensor.grad_fn = property(lambda self: _show(_grad_fn.__get__(self)))
    edges = property(lambda self: _shown(_next_functions.__get__(self)))
    library: Any = function
    for kind in (library.BackwardCFunction, library._SingleLevelFunction):  # noqa: SLF001 - the bases of all own functions
        kind.next_functions = edges


# Functions of torch whose kernels trust an argument: it is looked at before they run
#
# Found by calling everything that a task can reach with nonsense. Each of these read or
# wrote outside of its tensors.


_STATE_HEAD = 24  # bytes: the seed, words left, whether seeded, the next word's place
_STATE_WORDS = 624
_library: Any = torch
_ctc_loss: Any = torch.ctc_loss
_pad_packed: Any = _library._VF._pad_packed_sequence  # noqa: SLF001 - what nn.utils.rnn calls


def ctc_loss(
    log_probs: Any,
    targets: Any,
    input_lengths: Any,
    target_lengths: Any,
    *more: Any,
    **options: Any,
) -> torch.Tensor:
    # A target is the number of a class. The kernel indexes with it unchecked, outside of its
    # tensors.
    used = targets
    if used.dim() > 1:  # what pads them may be anything
        place = torch.arange(used.shape[1])
        used = used[place < torch.as_tensor(target_lengths).reshape(-1, 1)]
    if (
        used.numel()
        and not 0 <= int(used.min()) <= int(used.max()) < log_probs.shape[-1]
    ):
        raise RuntimeError("ctc_loss: a target is the number of no class")
    found: torch.Tensor = _ctc_loss(
        log_probs, targets, input_lengths, target_lengths, *more, **options
    )
    return found


def pad_packed_sequence(data: Any, batch_sizes: Any, *more: Any) -> Any:
    # The kernel copies by these sizes unchecked: they fall, and sum up to what the data hold.
    sizes = [int(size) for size in batch_sizes]
    falling = all(size > 0 for size in sizes) and sizes == sorted(sizes, reverse=True)
    if not falling or sum(sizes) != len(data):
        raise RuntimeError("the batch sizes of a packed sequence do not fit its data")
    return _pad_packed(data, batch_sizes, *more)


def set_rng_state(new_state: torch.Tensor) -> None:
    """``torch.set_rng_state`` of a state that stands within its table of 624 words.

    The library believes how many words are left and which is next, and reads on.
    """
    if not isinstance(new_state, torch.Tensor):
        raise TypeError("the state of a generator is a tensor")
    if new_state.dtype != torch.uint8 or new_state.numel() < _STATE_HEAD:
        raise TypeError("the state of a generator is a tensor of its bytes")
    kept = new_state.detach().clone().reshape(-1)
    left = int(kept[8:12].clone().view(torch.int32)[0])
    place = int(kept[16:24].clone().view(torch.int64)[0])
    if not (left > 0 <= place and left + place <= _STATE_WORDS + 1):
        raise RuntimeError("the state of a generator points outside of its own table")
    torch.set_rng_state(kept)


def guard_bounds() -> None:
    """Put the checks where the library's own Python code finds them."""
    _library.ctc_loss = ctc_loss
    _library._VF._pad_packed_sequence = pad_packed_sequence  # noqa: SLF001 - see above


LOADED_LATE = (
    *("torch.autograd.functional", "torch.autograd.gradcheck", "torch.distributions"),
    *("torch.nn.utils.rnn", "torch.utils.data", "torch._tensor_str", "torch._VF"),
    *("torch.utils._contextlib", "torch.utils._device", "torch.autograd.profiler"),
    *("torch._lowrank", "torch._lobpcg", "torch.func", "torch.masked"),
    *("torch._decomp.decompositions_for_jvp", "torch.amp", "torch.utils.checkpoint"),
)
"""What torch imports at first use, which is too late in a jail."""


def _leave_alone(fn: Any = None, *_args: Any, **_options: Any) -> Any:
    # Nothing compiles, so nothing is disabled
    return fn if fn is not None else _leave_alone


def _remove_compiler() -> None:
    # Put a stand-in where torch would import its compiler
    compiler = ModuleType("torch._dynamo")
    compiler.disable = _leave_alone  # type: ignore[attr-defined]  # a module made here
    compiler.graph_break = _do_nothing  # type: ignore[attr-defined]  # as above
    compiler.compiled_autograd = ModuleType("compiled_autograd")  # type: ignore[attr-defined]  # as above
    compiler.compiled_autograd._disable = contextlib.nullcontext  # noqa: SLF001 - as above
    compiler.config = ModuleType("config")  # type: ignore[attr-defined]  # as above
    compiler.config.error_on_nested_fx_trace = False  # of checkpointed functions
    sys.modules["torch._dynamo"] = compiler
    torch._dynamo = compiler  # noqa: SLF001 - as import would


def _remove_prover() -> None:
    # Put plain logic where torch would import a prover for symbolic shapes
    importlib.import_module("torch.fx.experimental._config")
    prover = ModuleType("torch.fx.experimental.symbolic_shapes")
    vars(prover).update(_PLAIN_SHAPES)
    sys.modules[prover.__name__] = prover
    torch.fx.experimental.symbolic_shapes = prover
    algebra = ModuleType("sympy")  # asked whether a number is one of its expressions
    algebra.Basic = type("Basic", (), {})  # type: ignore[attr-defined]  # a module made here
    sys.modules.setdefault("sympy", algebra)  # a flavor may hold the library itself


_PLAIN_SHAPES: dict[str, Callable[..., Any]] = {
    "expect_true": bool,
    "guard_int": int,
    "guard_or_false": bool,
    "guard_or_true": bool,
    "guard_size_oblivious": bool,
    "guarding_hint_or_throw": int,
    "has_free_unbacked_symbols": lambda _value: False,
    "has_guarding_hint": lambda _value: True,
    "is_nested_int": lambda _value: False,
    "statically_known_true": bool,
    "sym_and": lambda *conditions: all(conditions),
    "sym_eq": operator.eq,
    "sym_or": lambda *conditions: any(conditions),
}


def _do_nothing(*_args: Any) -> None:
    pass


def _turn_off_code_makers() -> None:
    backends: Any = torch.backends
    backends.mkldnn.set_flags(_enabled=False)
    backends.nnpack.set_flags(_enabled=False)
    backends.opt_einsum.enabled = False


def _warm_up() -> None:
    # Run what makes torch import, allocate or look at the machine once
    torch.set_num_threads(1)
    layer = torch.nn.Linear(2, 2)
    makers: tuple[Callable[..., Any], ...] = (torch.optim.SGD, torch.optim.Adam)
    for make in makers:
        step = make(layer.parameters(), lr=0.1)
        step.zero_grad()
        layer(torch.zeros(1, 2)).sum().backward()
        step.step()
    repr(layer), repr(layer.weight)
    torch._nnpack_available()  # noqa: SLF001 - reads what the processor is, for convolutions too
    torch.fft.fft(torch.zeros(4))
    torch.linalg.svd(torch.eye(2))
    torch.zeros(2).numpy()


def prepare_torch() -> None:
    """Import, switch off and warm up; slow, once a zygote."""
    _remove_compiler()
    _remove_prover()
    for name in LOADED_LATE:
        importlib.import_module(name)
    _turn_off_code_makers()
    _warm_up()
