"""What the language layer costs: our guards, stock RestrictedPython's, plain CPython.

All three run in one process, interleaved; each number is the best of several rounds in
processor time. Run alone with ``python -m bench guards``.
"""

from __future__ import annotations

import builtins
import operator
import statistics
import time
import types
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any

from RestrictedPython import compile_restricted, safe_builtins
from RestrictedPython.Eval import default_guarded_getitem, default_guarded_getiter
from RestrictedPython.Guards import (
    guarded_iter_unpack_sequence,
    guarded_unpack_sequence,
    safer_getattr,
)

from bench.rows import Row
from stoilo.core.levels import parse_level
from stoilo.sandbox.capture_print import TaskPrinter, TextBuffer
from stoilo.sandbox.loader import prepare_runtime
from stoilo.sandbox.transformer import compile_source

Loader = Callable[[str], Callable[[], Any]]
TARGET = 1.05
KERNELS = Path(__file__).parent / "kernels"
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


def load_plain(source: str) -> Callable[[], Any]:
    """Return the kernel as CPython runs it."""
    module = types.ModuleType("bench_kernel")
    exec(compile(source, "<plain>", "exec", dont_inherit=True), module.__dict__)  # noqa: S102 - our own kernels
    return module.run


def load_ours() -> Loader:
    """Return how our language layer loads a kernel."""
    data = (resources.files("stoilo.policies") / "levels" / "numeric.toml").read_bytes()
    runtime = prepare_runtime(parse_level(data))

    def load(source: str) -> Callable[[], Any]:
        code = compile_source(source, runtime.level)
        return runtime.load(code, TaskPrinter(TextBuffer())).run

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


def load_stock(source: str) -> Callable[[], Any]:
    """Stock guards, with the hooks its documentation asks for; may refuse a kernel."""
    names = "dict list sum min max enumerate map filter all any set range sorted zip"
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


def measure_kernel(source: str, load: dict[str, Loader], rounds: int) -> list[float]:
    """Return the best time of plain CPython, ours and stock, in this order, s."""
    runs = [loader(source) for loader in load.values()]
    answers = [run() for run in runs]
    assert all(answer == answers[0] for answer in answers)
    times = [[cpu_seconds(run) for run in runs] for _ in range(rounds)]
    return [min(column) for column in zip(*times, strict=True)]


def measure(rounds: int = 7) -> list[Row]:
    """Return a row a kernel and one for the geometric mean."""
    load = {"plain": load_plain, "ours": load_ours(), "stock": load_stock}
    rows, ours_ratios, stock_ratios = [], [], []
    for path in sorted(KERNELS.glob("*.py")):
        source = path.read_text(encoding="utf-8")
        plain, ours, stock = measure_kernel(source, load, rounds)
        ours_ratios.append(ours / plain)
        stock_ratios.append(stock / plain)
        rows.append(
            Row(
                name=f"guards: {path.stem} (stock guards {stock / plain:.2f}x)",
                ours=ours * 1e3,
                unit="ms",
                peer_name="plain CPython",
                peer=plain * 1e3,
                ratio=ours / plain,
                ratio_of="of CPython",
            )
        )
    mean, stock_mean = map(statistics.geometric_mean, (ours_ratios, stock_ratios))
    return [
        *rows,
        Row(
            name="guards: geometric mean",
            ours=mean,
            unit="x",
            peer_name="stock RestrictedPython guards",
            peer=stock_mean,
            ratio=mean,
            ratio_of="of CPython",
            target=f"<= {TARGET}",
            met=mean <= TARGET,
        ),
    ]
