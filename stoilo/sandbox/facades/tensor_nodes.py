"""Nodes of a graph of gradients: looked at, never called.

``loss.grad_fn(x)`` runs a backward kernel without the engine, which alone checks that
what comes in has the shape that went out: half of the kernels read outside of it. So a
task is shown a `Node` that stands for the library's.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.autograd import function

__all__ = ["guard_nodes"]

_Base: Any = torch._C.TensorBase  # noqa: SLF001 - its methods cannot be replaced
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
        """Return what the library calls it."""
        return str(self._node.name())

    @property
    def next_functions(self) -> tuple[Any, ...]:
        """The nodes that its gradients go to, each with the number of its input."""
        return _shown(self._node.next_functions)

    @property
    def metadata(self) -> Any:
        """What was noted on it."""
        return self._node.metadata

    @property
    def requires_grad(self) -> bool:
        """Whether a gradient is asked for here."""
        return bool(self._node.requires_grad)

    @property
    def variable(self) -> Any:
        """The leaf whose gradient is summed here."""
        return self._node.variable

    def register_hook(self, hook: Callable[..., Any]) -> Any:
        """Call `hook` with the gradients that leave and enter it."""
        return self._node.register_hook(hook)

    def register_prehook(self, hook: Callable[..., Any]) -> Any:
        """Call `hook` with the gradients that enter it."""
        return self._node.register_prehook(hook)


@functools.cache
def _kind(name: str) -> type[Node]:
    """Return the class that stands for the library's class `name`."""
    return type(name, (Node,), {"__slots__": (), "__module__": "torch.autograd"})


def _show(node: Any) -> Any:
    """Return what a task sees of `node`; those of its own functions are what they are."""
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
