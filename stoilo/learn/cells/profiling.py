"""A torch module as a chain of layers that may be cut apart, and what each layer costs.

A cut is legal where one floating tensor alone goes on: nothing else that was computed before
is used after it. That is read from the module's graph (torch.fx) where it can be traced, and
else from its parts, where its forward does no more than call them one after another. Layers
that share a parameter or buffer become one layer: both uses stay in one stage.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import inspect
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import torch
from torch import fx, nn
from torch.fx.passes.shape_prop import ShapeProp, TensorMetadata

from stoilo.core.errors import UsageError
from stoilo.learn.cells.planning import Layer

Inputs = tuple[Any, ...]


class Chain(nn.Sequential):
    """Layers one after another; the first may take several inputs."""

    def forward(self, *inputs: Any) -> Any:  # noqa: ANN401 - what layers take and give
        """Return what the last layer gives."""
        for layer in self:
            inputs = (layer(*inputs),)
        return inputs[0]


class _Tracer(fx.Tracer):
    """Takes a part that cannot be traced as one operation."""

    def __init__(self, leaves: dict[nn.Module, bool] | None = None) -> None:
        super().__init__()
        self.leaves = {} if leaves is None else leaves

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        """Say so of torch's own layers too."""
        if m not in self.leaves:
            usual = super().is_leaf_module(m, module_qualified_name)
            self.leaves[m] = usual or _find_graph(m, {}, self.leaves) is None
        return self.leaves[m]


def _find_graph(
    module: nn.Module,
    given: dict[str, Any],
    leaves: dict[nn.Module, bool] | None = None,
) -> fx.Graph | None:
    try:
        return _Tracer(leaves).trace(module, concrete_args=given)
    except Exception:  # noqa: BLE001 - a stranger's forward that gets no numbers
        return None


def list_layers(module: nn.Module, *inputs: Any) -> dict[str, nn.Module]:  # noqa: ANN401
    """Return a module's layers by name, in the order of execution: a chain.

    They are the module's own parts, with its own parameters. ``Chain(*layers.values())``
    computes what the module computes, and stages are chains of neighbours. Functions that
    know a mode (``F.dropout(x, p, self.training)``) keep the one of this call; layers
    (``nn.Dropout``) follow ``train()`` and ``eval()``.

    Args:
        module: in the mode (``train()``) that it is to run in; it is left as it was.
        inputs: a batch, as the module takes it.

    Raises:
        UsageError: ``STO-T001``: it does not run on the batch, or cannot be taken apart.
    """
    with _undisturbed(module, 1):
        wanted = _run(module, module, inputs)
    with _undisturbed(module, 2):  # other numbers: none that were drawn may stay
        layers = _take_apart(module, tuple(map(_receive, inputs)))
    if layers is None:
        raise _refuse(
            module,
            "cannot be cut: torch.fx cannot trace its forward, which does more than call "
            "its parts one after another",
        )
    layers = _join_shared(layers)
    with _undisturbed(module, 1):
        found = _run(module, Chain(*layers.values()), inputs)
    try:
        torch.testing.assert_close(found, wanted, equal_nan=True)
    except (AssertionError, TypeError) as error:
        problem = "cannot be cut: its layers in a row give something else"
        raise _refuse(module, problem) from error
    return layers


def _run(module: nn.Module, chain: nn.Module, inputs: Inputs) -> Any:  # noqa: ANN401
    try:
        return chain(*map(_receive, inputs))  # an operation in place may come first
    except Exception as error:  # a stranger's forward
        raise _refuse(module, f"does not run on this batch: {error}") from error


def _refuse(module: nn.Module, problem: str) -> UsageError:
    hint = "make it an nn.Sequential, or put what depends on values into a part of it"
    return UsageError("STO-T001", f"{type(module).__name__} {problem}", hint=hint)


@contextlib.contextmanager
def _undisturbed(module: nn.Module, seed: int) -> Iterator[None]:
    """Leave buffers and random numbers as they are, and drop what tracing adds."""
    kept = [(buffer, buffer.clone()) for buffer in module.buffers()]
    known = {*vars(module)}
    try:
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            torch.manual_seed(seed)
            yield
    finally:
        for buffer, before in kept:
            buffer.detach().copy_(before)
        for name in {*vars(module)} - known:
            delattr(module, name)


def _take_apart(module: nn.Module, inputs: Inputs) -> dict[str, nn.Module] | None:
    named = module.named_modules(remove_duplicate=False)
    parts: dict[str, nn.Module] | None = {n: m for n, m in named if n and "." not in n}
    if type(module).forward is not nn.Sequential.forward:
        parts = _trace(module, inputs) or _watch(module, inputs)
    if not parts:
        return None
    found: dict[str, nn.Module] = {}
    for name, part in parts.items():
        whole = isinstance(part, fx.GraphModule) or not [*part.children()]
        inner = None if whole else _take_apart(part, inputs)
        for below, layer in (inner or {"": part}).items():
            found[f"{name}.{below}".rstrip(".")] = layer
        inputs = (part(*inputs),)
    return found


def _watch(module: nn.Module, inputs: Inputs) -> dict[str, nn.Module] | None:
    """Return the parts that a module calls, if each takes just what the last one gave."""
    parts = _note_calls(module, inputs)
    # Who looks at numbers may go another way with others.
    other = _note_calls(module, tuple(map(_turn, inputs))) if parts else None
    return parts if other and [*other.items()] == [*(parts or {}).items()] else None


def _turn(value: Any) -> Any:  # noqa: ANN401 - what a module takes
    if not isinstance(value, torch.Tensor) or not value.ndim:
        return value
    return -value if value.is_floating_point() else value.flip(0)


def _note_calls(module: nn.Module, inputs: Inputs) -> dict[str, nn.Module] | None:
    names = {part: name for name, part in _list_parts(module)}
    calls: list[tuple[nn.Module, Inputs, Any]] = []
    hooks = [
        part.register_forward_hook(lambda *call: calls.append(call)) for part in names
    ]
    try:
        result = module(*inputs)
    finally:
        for hook in hooks:
            hook.remove()
    found: dict[str, nn.Module] = {}
    for part, taken, given in calls:
        if part in found.values() or [*map(id, taken)] != [*map(id, inputs)]:
            return None
        found[names[part]] = part
        inputs = (given,)
    return found if result is inputs[0] else None


def _list_parts(module: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    for name, part in module.named_children():
        if isinstance(part, nn.ModuleList | nn.ModuleDict):
            yield from ((f"{name}.{below}", one) for below, one in _list_parts(part))
        else:
            yield name, part


def _trace(module: nn.Module, inputs: Inputs) -> dict[str, nn.Module] | None:
    """Return the pieces between the legal cuts of a module's graph, if it has one."""
    rest = [*inspect.signature(module.forward).parameters.values()][len(inputs) :]
    usual = {one.name: one.default for one in rest if one.default is not one.empty}
    graph = _find_graph(module, usual)
    if graph is None:
        return None
    ShapeProp(fx.GraphModule(module, graph)).propagate(*inputs)
    nodes = [node for node in graph.nodes if node.op != "get_attr"]
    layers: dict[str, nn.Module] = {}
    begin, takes = 0, None
    for cut in (*_find_cuts(nodes), len(nodes) - 1):
        last = nodes[min(cut, len(nodes) - 2)]  # the last node of all is the output
        layers[last.name] = _make_piece(module, nodes[begin : cut + 1], takes)
        begin, takes = cut + 1, last
    return layers


def _make_piece(
    module: nn.Module, nodes: Sequence[fx.Node], takes: fx.Node | None
) -> nn.Module:
    """Return some operations as a module; parameters have the names they have in the whole."""
    given = (takes,) if takes else tuple(n for n in nodes if n.op == "placeholder")
    work = [node for node in nodes if node.op not in {"placeholder", "output"}]
    only = work[0] if len(work) == 1 else None
    if only and only.op == "call_module" and only.args == given and not only.kwargs:
        return module.get_submodule(str(only.target))
    graph, known = fx.Graph(), {}
    if takes is not None:
        known[takes] = graph.placeholder(takes.name)
    for node in nodes:
        for used in node.all_input_nodes:
            if used.op == "get_attr" and used not in known:
                known[used] = graph.node_copy(used)
        known[node] = graph.node_copy(node, known.__getitem__)
    if nodes[-1].op != "output":
        graph.output(known[nodes[-1]])
    return fx.GraphModule(module, graph)


def _find_cuts(nodes: Sequence[fx.Node]) -> Iterator[int]:
    """Yield after which operations nothing but their own floating tensor goes on."""
    place = {node: number for number, node in enumerate(nodes)}
    furthest = -1  # the last use of what was computed before
    for number, node in enumerate(nodes[:-2]):
        used = max((place[user] for user in node.users), default=-1)
        given = node.meta.get("tensor_meta")
        floating = isinstance(given, TensorMetadata) and given.dtype.is_floating_point
        if furthest <= number < used and floating and node.op != "placeholder":
            yield number
        furthest = max(furthest, used)


def _join_shared(layers: Mapping[str, nn.Module]) -> dict[str, nn.Module]:
    """Return the layers, those from the first to the last use of a tensor as one."""
    groups: list[dict[str, nn.Module]] = []
    for name, layer in layers.items():
        own = _tensors(layer)
        shared = (i for i, one in enumerate(groups) if own & _tensors(*one.values()))
        first = min(shared, default=len(groups))
        joined = {n: one for group in groups[first:] for n, one in group.items()}
        groups[first:] = [joined | {name: layer}]
    found: dict[str, nn.Module] = {}
    for one in groups:
        names = [*one]
        name = names[0] if len(names) == 1 else f"{names[0]}..{names[-1]}"
        found[name] = Chain(*one.values()) if len(names) > 1 else one[name]
    return found


def _tensors(*layers: nn.Module) -> set[int]:
    return {id(t) for one in layers for t in (*one.parameters(), *one.buffers())}


def profile(
    layers: Mapping[str, nn.Module],
    *inputs: Any,  # noqa: ANN401 - a batch
    rounds: int = 30,
    warm_up: int = 5,
    clock: Callable[[], float] = time.perf_counter,
) -> tuple[Layer, ...]:
    """Return what each layer costs: medians of so many batches, forward and backward.

    Copies are measured; the layers stay as they are. A layer behind which nothing is trained
    has no backward, and the first one computes no gradient of its input.
    """
    # In one: what is shared stays shared.
    copies = [*copy.deepcopy(dict(layers)).values()]
    measure = functools.partial(_measure, clock=clock)
    with torch.random.fork_rng(devices=[]):
        sizes = [*_pass(copies, inputs, _weigh)]
        times = [[*_pass(copies, inputs, measure)] for _ in range(warm_up + rounds)]
    medians = map(statistics.median, zip(*times[warm_up:], strict=True))
    return tuple(
        Layer(name, time_s, *size)
        for name, time_s, size in zip(layers, medians, sizes, strict=True)
    )


_Found = TypeVar("_Found")


def _pass(
    layers: Sequence[nn.Module],
    inputs: Inputs,
    work: Callable[[nn.Module, Inputs], tuple[Any, _Found]],
) -> Iterator[_Found]:
    """Send a batch through the layers; yield what `work` finds of each."""
    for layer in layers:
        output, found = work(layer, tuple(map(_receive, inputs)))
        inputs = (output,)
        yield found


def _receive(value: Any) -> Any:  # noqa: ANN401 - what layers take
    """Return what another process would get: a tensor of its own, which may be written to."""
    if not isinstance(value, torch.Tensor):
        return value
    return value.detach().requires_grad_(value.requires_grad).clone()


def _measure(
    layer: nn.Module, inputs: Inputs, clock: Callable[[], float]
) -> tuple[Any, float]:
    """Return a layer's output and how long forward and backward took, s."""
    begin = clock()
    output = layer(*inputs)
    forward_s = clock() - begin
    given, wanted = (
        [one for one in tensors if one.requires_grad]
        for tensors in (_leaves(output), (*_leaves(inputs), *layer.parameters()))
    )
    above = [torch.ones_like(one) for one in given]
    begin = clock()
    if given:
        torch.autograd.grad(given, wanted, above, allow_unused=True)
    return output, forward_s + clock() - begin


def _weigh(layer: nn.Module, inputs: Inputs) -> tuple[Any, tuple[int, int, int]]:
    """Return a layer's output; bytes of it, of what is trained, of what backward keeps."""
    kept: dict[int, torch.Tensor] = {}  # by address, and held: none is used again

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        return kept.setdefault(tensor.untyped_storage().data_ptr(), tensor)

    with torch.autograd.graph.saved_tensors_hooks(keep, keep):
        output = layer(*inputs)
    for one in _leaves(output):
        keep(one)
    for one in (*layer.parameters(), *layer.buffers(), *_leaves(inputs)):
        kept.pop(one.untyped_storage().data_ptr(), None)
    return output, (
        sum(one.nbytes for one in _leaves(output)),
        sum(p.nbytes for p in layer.parameters() if p.requires_grad),
        sum(one.untyped_storage().nbytes() for one in kept.values()),
    )


def _leaves(value: Any) -> list[torch.Tensor]:  # noqa: ANN401 - what layers give
    found: list[torch.Tensor] = []
    fx.node.map_aggregate(
        value, lambda one: found.append(one) if isinstance(one, torch.Tensor) else None
    )
    return found
