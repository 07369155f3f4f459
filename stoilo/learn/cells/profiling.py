"""A torch module as a chain of layers that may be cut apart, and what each layer costs.

A cut is legal where one floating tensor alone goes on: nothing else that was computed before
is used after it. That is read from the module's graph (torch.fx) where it can be traced, and
else from its parts, where its forward does no more than call them one after another. Layers
that share a parameter or buffer become one layer: both uses stay in one stage.
"""

from __future__ import annotations

import contextlib
import copy
import inspect
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import fx, nn

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


class Piece(nn.Module):
    """A part of a traced module; its parameters have the names they have in the whole.

    Functions that know a mode (``F.dropout(x, p, self.training)``) stay in the one that the
    module was traced in; layers (``nn.Dropout``) follow ``train()`` and ``eval()``.
    """

    def __init__(
        self, whole: nn.Module, nodes: Sequence[fx.Node], takes: fx.Node | None
    ) -> None:
        super().__init__()
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
        for node in graph.nodes:
            if node.op in {"call_module", "get_attr"}:
                _adopt(self, whole, str(node.target))
        self._graph = graph

    def forward(self, *inputs: Any) -> Any:  # noqa: ANN401 - what layers take and give
        """Return the last operation's value."""
        return fx.Interpreter(self, graph=self._graph).run(*inputs)


def _adopt(piece: nn.Module, whole: nn.Module, target: str) -> None:
    """Put what has this name in the whole module into the piece, under the same name."""
    *way, last = target.split(".")
    for name in way:
        whole = getattr(whole, name)
        if not hasattr(piece, name):
            piece.add_module(name, nn.Module())
        piece = getattr(piece, name)
    found = getattr(whole, last)
    if isinstance(found, torch.Tensor) and not isinstance(found, nn.Parameter):
        piece.register_buffer(last, found)
    else:
        setattr(piece, last, found)


class _Tracer(fx.Tracer):
    """Takes a part whose forward cannot be traced as one operation."""

    def call_module(
        self,
        m: nn.Module,
        forward: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:  # noqa: ANN401 - as torch has it
        """Trace a part, or forget what came of it and note its call alone."""
        before, depth = len(self.graph.nodes), len(self.module_stack)
        try:
            return super().call_module(m, forward, args, kwargs)
        except Exception:  # noqa: BLE001 - a stranger's forward that got no numbers
            for node in [*self.graph.nodes][: before - 1 : -1]:
                self.graph.erase_node(node)
            while len(self.module_stack) > depth:
                self.module_stack.popitem(last=True)
            return self.create_proxy(
                "call_module", self.path_of_module(m), args, kwargs
            )


def list_layers(module: nn.Module, *inputs: Any) -> dict[str, nn.Module]:  # noqa: ANN401
    """Return a module's layers by name, in the order of execution: a chain.

    They are the module's own parts, with its own parameters. ``Chain(*layers.values())``
    computes what the module computes, and stages are chains of neighbours.

    Args:
        module: in the mode (``train()``) that it is to run in; it is left as it was.
        inputs: a batch, as the module takes it.

    Raises:
        UsageError: ``STO-T001``: it does not run on the batch, or cannot be taken apart.
    """
    with _undisturbed(module, 1):
        wanted = _run(module, module, inputs)
    with _undisturbed(module, 2):  # other numbers: none that were drawn may stay
        layers = _take_apart(module, inputs)
    if layers is None:
        raise _refuse(
            module,
            "cannot be cut: torch.fx cannot trace its forward, which does more than call "
            "its parts one after another",
        )
    layers = _join_shared(layers)
    with _undisturbed(module, 1):
        found = _run(module, Chain(*layers.values()), inputs)
    if not _same(wanted, found):
        raise _refuse(module, "cannot be cut: its layers in a row give something else")
    return layers


def _run(module: nn.Module, chain: nn.Module, inputs: Inputs) -> Any:  # noqa: ANN401
    try:
        return chain(*inputs)
    except Exception as error:  # a stranger's forward
        raise _refuse(module, f"does not run on this batch: {error}") from error


def _refuse(module: nn.Module, problem: str) -> UsageError:
    return UsageError(
        "STO-T001",
        f"{type(module).__name__} {problem}",
        hint="make it an nn.Sequential, or put what depends on values into a part of it",
    )


def _same(one: Any, other: Any) -> bool:  # noqa: ANN401 - what a module gives
    if isinstance(one, torch.Tensor):
        return torch.allclose(one, other, equal_nan=True)
    if isinstance(one, Mapping):
        return one.keys() == other.keys() and all(_same(one[k], other[k]) for k in one)
    if isinstance(one, Sequence):
        return len(one) == len(other) and all(map(_same, one, other))
    return True


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
    whole = module.named_modules(remove_duplicate=False)
    parts: dict[str, nn.Module] | None = {
        n: one for n, one in whole if n and "." not in n
    }
    if type(module).forward is not nn.Sequential.forward:
        layers = _trace(module, inputs)
        if layers is not None:
            return layers
        parts = _watch(module, inputs)
        # Who looks at numbers may go another way with others.
        other = _watch(module, tuple(map(_turn, inputs))) if parts else None
        if parts and (other is None or [*parts.items()] != [*other.items()]):
            return None
    if not parts:
        return None
    found: dict[str, nn.Module] = {}
    for name, part in parts.items():
        inner = _take_apart(part, inputs) if [*part.children()] else None
        for below, layer in (inner or {"": part}).items():
            found[f"{name}.{below}".rstrip(".")] = layer
        inputs = (part(*inputs),)
    return found


def _turn(value: Any) -> Any:  # noqa: ANN401 - what a module takes
    if not isinstance(value, torch.Tensor) or not value.ndim:
        return value
    return -value if value.is_floating_point() else value.flip(0)


def _watch(module: nn.Module, inputs: Inputs) -> dict[str, nn.Module] | None:
    """Return the parts that a module calls, if each takes just what the last one gave."""
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
    try:
        graph = _Tracer().trace(module, concrete_args=usual)
    except Exception:  # noqa: BLE001 - a stranger's forward that got no numbers
        return None
    recorder = _Recorder(module, graph)
    recorder.run(*inputs)
    nodes = [node for node in graph.nodes if node.op != "get_attr"]
    cuts = [*_find_cuts(nodes, recorder.floating), len(nodes) - 1]
    begins = [0, *(cut + 1 for cut in cuts)]
    takes = [None, *(nodes[cut] for cut in cuts)]
    return {
        nodes[min(cut, len(nodes) - 2)].name: Piece(
            module, nodes[begin : cut + 1], value
        )
        for cut, begin, value in zip(cuts, begins, takes, strict=False)
    }


class _Recorder(fx.Interpreter):
    """Notes which operations give a floating tensor."""

    def __init__(self, module: nn.Module, graph: fx.Graph) -> None:
        super().__init__(module, graph=graph)
        self.floating: set[fx.Node] = set()

    def run_node(self, n: fx.Node) -> Any:  # noqa: ANN401 - as torch has it
        """Run an operation and note what it gave."""
        found = super().run_node(n)
        if isinstance(found, torch.Tensor) and found.is_floating_point():
            self.floating.add(n)
        return found


def _find_cuts(nodes: Sequence[fx.Node], floating: set[fx.Node]) -> Iterator[int]:
    """Yield after which operations nothing but their own tensor goes on."""
    place = {node: number for number, node in enumerate(nodes)}
    furthest = -1  # the last use of what was computed before
    for number, node in enumerate(nodes[:-2]):
        used = max((place[user] for user in node.users), default=-1)
        if furthest <= number < used and node in floating and node.op != "placeholder":
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
    return {
        "..".join(dict.fromkeys((next(iter(one)), next(reversed(one))))): (
            Chain(*one.values()) if len(one) > 1 else next(iter(one.values()))
        )
        for one in groups
    }


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
    copies = [
        *copy.deepcopy(dict(layers)).values()
    ]  # in one: what is shared stays shared
    with torch.random.fork_rng(devices=[]):
        weighed = [*_weigh(copies, inputs)]
        measured = [_measure(copies, inputs, clock) for _ in range(warm_up + rounds)]
    times = [statistics.median(one) for one in zip(*measured[warm_up:], strict=True)]
    return tuple(
        Layer(name, time_s, *sizes)
        for name, time_s, sizes in zip(layers, times, weighed, strict=True)
    )


def _measure(
    layers: Sequence[nn.Module], inputs: Inputs, clock: Callable[[], float]
) -> list[float]:
    """Return how long each layer takes for this batch, forward and backward, s."""
    found = []
    for layer in layers:
        inputs = tuple(map(_receive, inputs))
        begin = clock()
        output = layer(*inputs)
        middle = clock()
        given = [one for one in _leaves(output) if one.requires_grad]
        wanted = [
            one for one in (*_leaves(inputs), *layer.parameters()) if one.requires_grad
        ]
        above = [torch.ones_like(one) for one in given]
        start = clock()
        if given:
            torch.autograd.grad(given, wanted, above, allow_unused=True)
        found.append(middle - begin + clock() - start)
        inputs = (output,)
    return found


def _receive(value: Any) -> Any:  # noqa: ANN401 - what layers take
    """Return what another process would get: a tensor of its own, which may be written to."""
    if not isinstance(value, torch.Tensor):
        return value
    return value.detach().requires_grad_(value.requires_grad).clone()


def _leaves(value: Any) -> list[torch.Tensor]:  # noqa: ANN401 - what layers give
    found: list[torch.Tensor] = []
    fx.node.map_aggregate(
        value, lambda one: found.append(one) if isinstance(one, torch.Tensor) else None
    )
    return found


def _weigh(
    layers: Sequence[nn.Module], inputs: Inputs
) -> Iterator[tuple[int, int, int]]:
    """Yield bytes of each layer's output, of what is trained, and of what backward keeps."""
    for layer in layers:
        inputs = tuple(map(_receive, inputs))
        kept: dict[
            int, torch.Tensor
        ] = {}  # by address, held so that none is used again

        def keep(
            tensor: torch.Tensor, kept: dict[int, torch.Tensor] = kept
        ) -> torch.Tensor:
            kept[tensor.untyped_storage().data_ptr()] = tensor
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            output = layer(*inputs)
        for one in _leaves(output):
            keep(one.detach())
        for one in (*layer.parameters(), *layer.buffers(), *_leaves(inputs)):
            kept.pop(one.untyped_storage().data_ptr(), None)
        yield (
            sum(one.nbytes for one in _leaves(output)),
            sum(p.nbytes for p in layer.parameters() if p.requires_grad),
            sum(one.untyped_storage().nbytes() for one in kept.values()),
        )
        inputs = (output,)
