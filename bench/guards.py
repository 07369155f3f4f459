"""What the language layer costs in one process: ours and the peers, over plain CPython.

Plain CPython, our guards and stock RestrictedPython's run the same text in one process,
in turn; each number is the best of several rounds in processor time. asteval and
smolagents interpret Python in Python: they run a smaller size in their own environment,
each against plain CPython at that size (`bench.interpreters`).
"""

from __future__ import annotations

import builtins
import functools
import multiprocessing
import operator
import statistics
import sys
import time
import types
import warnings
from collections.abc import Callable
from io import StringIO
from typing import Any

from RestrictedPython import compile_restricted, safe_builtins
from RestrictedPython.Eval import default_guarded_getitem, default_guarded_getiter
from RestrictedPython.Guards import (
    guarded_iter_unpack_sequence,
    guarded_unpack_sequence,
    safer_getattr,
)

from bench.corpus import CONVERTING, KERNELS, Program
from bench.interpreters import interpreted_ratios
from bench.rows import Row
from stoilo.policies.levels import load_level
from stoilo.sandbox.language.runtime import (
    LanguageRuntime,
    TaskPrinter,
    prepare_runtime,
)
from stoilo.sandbox.language.transformer import compile_source

Loader = Callable[[str], Callable[[int], Any]]
TARGET = 1.04
CLASS_TARGET = 1.1
STOCK_ROUNDS = 2
IN_PLACE = {
    "+=": operator.iadd,
    "-=": operator.isub,
    "*=": operator.imul,
    "/=": operator.itruediv,
    "//=": operator.ifloordiv,
    "**=": operator.ipow,
    "%=": operator.imod,
    "@=": operator.imatmul,
}


def load_plain(source: str) -> Callable[[int], Any]:
    """Return the kernel as CPython runs it."""
    module = types.ModuleType("bench_kernel")
    sys.modules[module.__name__] = module  # dataclasses look it up
    exec(compile(source, "<plain>", "exec", dont_inherit=True), module.__dict__)  # noqa: S102 - our own kernels
    return module.run


@functools.cache
def _prepared() -> LanguageRuntime:
    return prepare_runtime(load_level("pure"))


def load_ours() -> Loader:
    """Return how our language layer loads a kernel."""
    runtime = _prepared()

    def load(source: str) -> Callable[[int], Any]:
        code = compile_source(source, runtime.level)
        return runtime.load(code, TaskPrinter(StringIO())).run

    return load


class StockWrite:
    """The least a host must write for stock guards to let `self.x = v` through."""

    def __init__(self, target: object) -> None:
        self.__dict__["_target"] = target

    def __setattr__(self, name: str, value: object) -> None:
        setattr(self._target, name, value)

    def __setitem__(self, key: object, value: object) -> None:
        self._target[key] = value

    def __delitem__(self, key: object) -> None:
        del self._target[key]


def load_stock(source: str) -> Callable[[int], Any]:
    """Stock guards, with the hooks its documentation asks for; may refuse a kernel."""
    names = "dict list sum min max enumerate map filter all any set range sorted zip frozenset"
    extra = {name: getattr(builtins, name) for name in (*names.split(), "__import__")}
    space = {
        "__builtins__": {**safe_builtins, **extra},
        "__metaclass__": type,
        "__name__": "bench_kernel",
        "_getattr_": safer_getattr,
        "_getitem_": default_guarded_getitem,
        "_getiter_": default_guarded_getiter,
        "_iter_unpack_sequence_": guarded_iter_unpack_sequence,
        "_unpack_sequence_": guarded_unpack_sequence,
        "_inplacevar_": lambda op, x, y: IN_PLACE[op](x, y),
        "_write_": StockWrite,
        "_apply_": lambda f, *a, **k: f(*a, **k),
    }
    exec(compile_restricted(source, "<stock>", "exec"), space)  # noqa: S102 - our own kernels
    return space["run"]


def cpu_seconds(run: Callable[[], Any]) -> float:
    """Return the processor time of one call, s."""
    start = time.process_time()
    run()
    return time.process_time() - start


def measure_kernel(
    program: Program, load: dict[str, Loader], rounds: int
) -> dict[str, float]:
    """Return the best time of each side, s; stock guards run fewer rounds."""
    sides = {name: loader(program.source) for name, loader in load.items()}
    answers = [run(program.size) for run in sides.values()]
    assert all(answer == answers[0] for answer in answers), program.name
    times: dict[str, list[float]] = {name: [] for name in sides}
    for turn in range(rounds):
        for name, run in sides.items():
            if name != "stock" or turn < STOCK_ROUNDS:
                times[name].append(cpu_seconds(lambda run=run: run(program.size)))
    return {name: min(column) for name, column in times.items()}


def _can_load(program: Program, loader: Loader) -> bool:
    """Whether a peer takes the program at all."""
    try:
        with warnings.catch_warnings(action="ignore"):
            loader(program.source)(program.small)
    except Exception:  # noqa: BLE001 - whatever a peer cannot do
        return False
    return True


def compare(program: Program, rounds: int) -> Row:
    """Return the row of one program."""
    load: dict[str, Loader] = {"plain": load_plain, "ours": load_ours()}
    if _can_load(program, load_stock):
        load["stock"] = load_stock
    best = measure_kernel(program, load, rounds)
    stock = best["stock"] / best["plain"] if "stock" in best else None
    ratio = best["ours"] / best["plain"]
    return Row(
        name=f"guards: {program.name}",
        ours=best["ours"] * 1e3,
        unit="ms",
        peer_name="plain",
        peer=best["plain"] * 1e3,
        ratio=ratio,
        ratio_of="of plain",
        target=f"≤ {CLASS_TARGET}" if program.classes else "",
        met=ratio <= CLASS_TARGET if program.classes else None,
        others={
            "stock guards": stock,
            **interpreted_ratios(program.source, program.small),
        },
    )


def _best(run: Callable[[int], Any], size: int, rounds: int) -> float:
    return min(cpu_seconds(lambda: run(size)) for _ in range(rounds))


def _measure_sealed(program: Program, rounds: int) -> tuple[float, float]:
    """Return ours and plain CPython's best time, s; to be called in a process of its own.

    Plain comes first: loading ours changes `bytearray` for the whole process.
    """
    plain = _best(load_plain(program.source), program.size, rounds)
    return _best(load_ours()(program.source), program.size, rounds), plain


def compare_sealed(program: Program, rounds: int) -> Row:
    """Return the row of a program whose class makes stores into buffers go through Python.

    It is in no mean: it shows the most that one rare pair of features costs together.
    """
    with multiprocessing.get_context("fork").Pool(1) as apart:
        ours, plain = apart.apply(_measure_sealed, (program, rounds))
    return Row(
        name="guards: sieve beside a class that converts",
        ours=ours * 1e3,
        unit="ms",
        peer_name="plain",
        peer=plain * 1e3,
        ratio=ours / plain,
        ratio_of="of plain",
    )


def _mean_of(rows: list[Row], peer: str) -> float | None:
    ratios = [row.others[peer] for row in rows if row.others.get(peer) is not None]
    return statistics.geometric_mean(filter(None, ratios)) if ratios else None


def measure(rounds: int = 5, programs: tuple[Program, ...] = KERNELS) -> list[Row]:
    """Return a row for each kernel, one for sealed buffers, one for the geometric mean."""
    rows = [compare(program, rounds) for program in programs]
    mean = statistics.geometric_mean([row.ratio for row in rows if row.ratio])
    others = {peer: _mean_of(rows, peer) for peer in rows[0].others}
    last = Row.of_mean("guards: geometric mean", mean, TARGET, others)
    return [*rows, compare_sealed(CONVERTING, rounds), last]
