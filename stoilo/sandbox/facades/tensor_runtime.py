"""The torch library as a zygote prepares it: one thread, no compiler, nothing left to load.

Set here once, before any façade of torch is built:

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
import importlib
import operator
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch

LOADED_LATE = (
    *("torch.autograd.functional", "torch.autograd.gradcheck", "torch.distributions"),
    *("torch.nn.utils.rnn", "torch.utils.data", "torch._tensor_str", "torch._VF"),
    *("torch.utils._contextlib", "torch.utils._device", "torch.autograd.profiler"),
    *("torch._lowrank", "torch._lobpcg", "torch.func", "torch.masked"),
    *("torch._decomp.decompositions_for_jvp", "torch.amp", "torch.utils.checkpoint"),
)
"""What torch imports at first use, which is too late in a jail."""


def _leave_alone(fn: Any = None, *_args: Any, **_options: Any) -> Any:
    """Stand for ``torch._dynamo.disable``: nothing compiles, so nothing is disabled."""
    return fn if fn is not None else _leave_alone


def _remove_compiler() -> None:
    """Put a stand-in where torch would import its compiler."""
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
    """Put plain logic where torch would import a prover for symbolic shapes."""
    importlib.import_module("torch.fx.experimental._config")
    prover = ModuleType("torch.fx.experimental.symbolic_shapes")
    vars(prover).update(_PLAIN_SHAPES)
    sys.modules[prover.__name__] = prover
    torch.fx.experimental.symbolic_shapes = prover
    algebra = ModuleType("sympy")  # asked whether a number is one of its expressions
    algebra.Basic = type("Basic", (), {})  # type: ignore[attr-defined]  # a module made here
    sys.modules["sympy"] = algebra


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
    """Stand for what only marks a place in compiled code."""


def _turn_off_code_makers() -> None:
    backends: Any = torch.backends
    backends.mkldnn.set_flags(_enabled=False)
    backends.nnpack.set_flags(_enabled=False)
    backends.opt_einsum.enabled = False


def _warm_up() -> None:
    """Run what makes torch import, allocate or look at the machine once."""
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
