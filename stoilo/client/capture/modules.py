"""The two modules of a task and its encoded arguments."""

from __future__ import annotations

import ast
import inspect
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stoilo.client.capture.arguments import Packer, Values, too_large
from stoilo.client.capture.emit import (
    assign_names,
    order_targets,
    reachable,
    render_module,
)
from stoilo.client.capture.graph import Graph
from stoilo.client.capture.makers import make_target
from stoilo.client.capture.refusals import refuse
from stoilo.client.capture.targets import (
    DataTarget,
    FunctionTarget,
    Mention,
    Target,
    reference,
)
from stoilo.core.codec.nodes import Node
from stoilo.core.errors import UsageError
from stoilo.core.types import BOUNDS

VALIDATOR_LITERAL_CHARS = 64 * 1024


@dataclass(frozen=True, slots=True)
class Captured:
    """One task, ready for the wire."""

    task_module: str  # source text of the task module
    entry: str  # the function in it that is called with one dict
    validator_module: str  # source text of the validators; empty when both are defaults
    init_entry: str  # name of the check of one value; empty = always true
    compare_entry: str  # name of the comparison of two values; empty = equality
    arguments: bytes  # encoded skeleton of the dict (of the list of dicts for a map)
    # large values, in the order the arguments use; text is the digest of a value that
    # was uploaded before
    blobs: tuple[bytes | str, ...]
    map_items: int = 0  # 0 for one call, else the number of calls
    # Of each line of the task module where it was written, empty when it is ours
    origins: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CapturedCalls:
    """One task module and many calls of its entry, packed on demand."""

    task_module: str
    entry: str
    validator_module: str
    init_entry: str
    compare_entry: str
    calls: tuple[Node, ...]
    has_stored: bool = False
    origins: tuple[str, ...] = ()

    def pack_one(self) -> Captured:
        """Return the task of the only call."""
        return self._packed(self.calls[0], 0)

    def pack_items(self, indices: Sequence[int]) -> Captured:
        """Return the map task of the calls at `indices`."""
        return self._packed([self.calls[index] for index in indices], len(indices))

    def _packed(self, node: Node, items: int) -> Captured:
        packer = Packer(has_stored=self.has_stored)
        data = packer.encode(node)
        return Captured(
            self.task_module,
            self.entry,
            self.validator_module,
            self.init_entry,
            self.compare_entry,
            data,
            tuple(packer.blobs.values()),
            items,
            self.origins,
        )


def capture_task(
    func: Callable[[dict[str, Any]], Any],
    kwargs: Mapping[str, Any] | None = None,
    init_valid: Callable[[Any], bool] | None = None,
    compare_valid: Callable[[Any, Any], bool] | None = None,
) -> Captured:
    """Capture ``func(kwargs)`` and its validators.

    Raises:
        UsageError: ``STO-C001`` … ``STO-C010``, naming what cannot travel.
    """
    calls = [dict(kwargs or {})]
    return capture_calls(func, calls, init_valid, compare_valid).pack_one()


@dataclass(frozen=True, slots=True)
class Written:
    """The two texts of a task, without any of its calls."""

    module: TaskModule
    validators: tuple[str, str, str]  # text, names of both entries

    def with_calls(self, calls: Sequence[Mapping[str, Any]]) -> CapturedCalls:
        """Return them with calls whose functions and classes the texts hold."""
        nodes = tuple(self.module.call_nodes(calls))
        stored = self.module.values.has_stored
        text, entry, origins = self.module.text, self.module.entry, self.module.origins
        return CapturedCalls(text, entry, *self.validators, nodes, stored, origins)


def capture_calls(
    # called with one dict; with `spread`, as `func(*args, **kwargs)`
    func: Callable[..., Any],
    # the dicts; with `spread`, each is `{"args": […], "kwargs": {…}}`
    calls: Sequence[Mapping[str, Any]],
    init_valid: Callable[[Any], bool] | None = None,  # one value → bool
    compare_valid: Callable[[Any, Any], bool] | None = None,  # two values → bool
    *,
    spread: bool = False,  # how `func` is called
) -> CapturedCalls:
    """Capture `func` once for many calls."""
    validators = (init_valid, compare_valid)
    return write(func, calls, validators, spread=spread).with_calls(calls)


def write(
    func: Callable[..., Any],
    calls: Sequence[Mapping[str, Any]],
    validators: tuple[Callable[[Any], bool] | None, Callable[[Any, Any], bool] | None],
    *,
    spread: bool,
) -> Written:
    """Write the source that `capture_calls` captures."""
    _check_entry(func, spread=spread)
    module = TaskModule(func, calls, spread=spread)
    found = _capture_validators(*validators)
    for text in (module.text, found[0]):
        if len(text.encode()) > BOUNDS.source_bytes:
            raise too_large("source bytes", len(text.encode()), BOUNDS.source_bytes)
    return Written(module, found)


def _check_entry(func: Callable[..., Any], *, spread: bool) -> None:
    if not callable(func):
        raise UsageError(
            "STO-C021",
            f"func must be a function, not {type(func).__name__}",
            hint="pass the function itself, without calling it",
        )
    if inspect.iscoroutinefunction(func) or inspect.isasyncgenfunction(func):
        raise UsageError(
            "STO-C014",
            "func must return its value: async functions do not travel",
            hint="write async work as plain code",
        )
    if inspect.isgeneratorfunction(func) and not _yields_states(func):
        raise UsageError(
            "STO-C014",
            "func must return its value: generators do not travel",
            hint="return list(...) of what it yields; a long task that yields states, "
            "to go on from after an interruption, is written def f(kwargs, state=None)",
        )
    if not spread:
        check_arity(
            func, 1, "func", "one dict: write def f(kwargs) and use kwargs['a']"
        )


def _yields_states(func: Callable[..., Any]) -> bool:
    """Whether `func` is a generator function that takes its last state back."""
    if not inspect.isgeneratorfunction(func) or not inspect.isfunction(func):
        return False
    taken = inspect.signature(func).parameters.get("state")
    return taken is not None and taken.kind in {
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
        inspect.Parameter.KEYWORD_ONLY,
    }


def check_arity(func: Callable[..., Any], count: int, what: str, takes: str) -> None:
    """Raise ``STO-C021`` unless `func` can be called with `count` arguments."""
    try:
        inspect.signature(func).bind(*[None] * count)
    except TypeError:
        raise UsageError(
            "STO-C021",
            f"{what} cannot be called with {count} argument(s)",
            hint=f"{what} takes {takes}",
        ) from None
    except ValueError:  # a built-in without a signature: the call decides
        return


class TaskModule:
    """Graph, names, text and call nodes of one task module."""

    def __init__(
        self,
        func: Callable[..., Any],
        calls: Sequence[Mapping[str, Any]],
        *,
        spread: bool,
    ) -> None:
        self.graph = Graph(make_target)
        self.values = Values(self.graph)
        self.task = self.graph.place_callable(func, "", _label(func))
        roots = [self.task, *discover_calls(self.values, calls)]
        self.graph.close()
        targets = reachable(roots)
        state = [t for t in targets if isinstance(t, DataTarget) and t.travels]
        self._state, self._spread = state, spread
        self.wrapper = _entry_wrapper(
            self.task, state, spread=spread, steps=_yields_states(func)
        )
        if self.wrapper is not None:
            targets.append(self.wrapper)
        assign_names(targets, self.graph.undefined)
        self.graph.lift_cells()
        ordered = order_targets(targets)
        last = self.wrapper or self.task
        if not any(last in other.now for other in ordered):
            ordered.remove(last)
            ordered.append(last)
        self.text, self.origins = render_module(ordered)
        self.entry = last.name
        self.graph.seal()

    def call_nodes(self, calls: Sequence[Mapping[str, Any]]) -> list[Node]:
        """Return the nodes of calls, each with the data beside the source as they are."""
        state, spread = self._state, self._spread
        self.values.has_stored = False
        self.values.labels.begin()
        data = {target.name: self.values.node(target.value) for target in state}
        self.values.labels.keep()
        made: list[Node] = []
        for call in calls:
            self.values.labels.start_call()
            node = self.values.node(dict(call))
            if state and spread:  # first, because calls may share what it holds
                node = {"state": data, **node}
            elif state:
                node = {"state": data, "kwargs": node}
            made.append(node)
        return made


def discover_calls(values: Values, calls: Sequence[Mapping[str, Any]]) -> list[Target]:
    """Place every function and class that the calls reach, and return the targets."""
    found: list[Target] = []
    for index, call in enumerate(calls):
        where = "kwargs" if len(calls) == 1 else f"items[{index}]"
        for key, value in call.items():
            if not isinstance(key, str):
                refuse("STO-C021", f"{where} has the key {key!r}", "use text keys")
            found += values.discover(value, f"{where}[{key!r}]")
    return found


def _entry_wrapper(
    task: Target, state: list[DataTarget], *, spread: bool, steps: bool
) -> FunctionTarget | None:
    """Return ``def run_task(call)``: bind the travelling data, then call the task.

    Where the task yields states, so does the wrapper (`steps`).
    """
    if not state and not spread:
        return None
    wrapper = FunctionTarget(["run_task"], "the entry")
    body: list[ast.stmt] = []
    if state:
        names = ast.Global(["" for _ in state])
        body.append(names)
        for index, target in enumerate(state):
            body.append(_bind_state(target, index, names))
        wrapper.later += state
    callee = reference(task, wrapper, now=False)
    if spread:
        starred = ast.Starred(_item("call", "args"), ast.Load())
        named = [ast.keyword(None, _item("call", "kwargs"))]
        result = ast.Call(callee, [starred], named)
    else:
        result = ast.Call(callee, [_item("call", "kwargs")], [])
    taken, defaults = [ast.arg("call")], list[ast.expr]()
    if steps:
        taken, defaults = [*taken, ast.arg("state")], [ast.Constant(None)]
        result.keywords.append(ast.keyword("state", ast.Name("state", ast.Load())))
    body.append(ast.Return(ast.YieldFrom(result) if steps else result))
    arguments = ast.arguments([], taken, None, [], [], None, defaults)
    wrapper.node = ast.FunctionDef("run_task", arguments, body, [])
    return wrapper


def _bind_state(target: DataTarget, index: int, names: ast.Global) -> ast.stmt:
    """Return ``name = call["state"]["name"]`` and keep its three names in step."""
    key = ast.Constant("")
    place = ast.Name("", ast.Store())

    def rename(new: str) -> None:
        names.names[index] = new
        key.value = new
        place.id = new

    target.mentions.append(Mention(rename))
    value = ast.Subscript(_item("call", "state"), key, ast.Load())
    return ast.Assign([place], value)


def _item(name: str, key: str) -> ast.Subscript:
    return ast.Subscript(ast.Name(name, ast.Load()), ast.Constant(key), ast.Load())


def _label(func: object) -> str:
    name = getattr(func, "__qualname__", type(func).__name__)
    is_lambda = isinstance(func, types.FunctionType) and func.__name__ == "<lambda>"
    return "the lambda" if is_lambda else f"`{name}`"


def _capture_validators(
    init_valid: Callable[[Any], bool] | None,
    compare_valid: Callable[[Any, Any], bool] | None,
) -> tuple[str, str, str]:
    """Return the validator module's text and the names of its two entries."""
    if init_valid is None and compare_valid is None:
        return "", "", ""
    graph = Graph(
        make_target, literal_chars=VALIDATOR_LITERAL_CHARS, state_allowed=False
    )
    Values(graph)
    roots: list[Target] = []
    found: list[Target | None] = []
    for func, count, name in (
        (init_valid, 1, "init_valid_func"),
        (compare_valid, 2, "compare_valid_func"),
    ):
        if func is None:
            found.append(None)
            continue
        check_arity(func, count, name, f"{count} returned value(s), gives a bool")
        role = name.removesuffix("_func")
        target = graph.place_callable(func, role, name)
        if target not in found:  # the server knows its own checks by these names
            target.wanted.insert(0, role)
        found.append(target)
        roots.append(target)
    graph.close()
    targets = reachable(roots)
    assign_names(targets, graph.undefined)
    graph.lift_cells()
    text, _ = render_module(order_targets(targets))
    init, compare = (target.name if target else "" for target in found)
    return text, init, compare
