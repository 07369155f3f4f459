"""What the language layer costs: our guards, stock RestrictedPython's, plain CPython.

Run with ``python bench/guards.py [--json] [--rounds N]``. All three run in one process,
interleaved; each number is the best of N rounds in CPU time, ratios are to plain CPython.
"""

from __future__ import annotations

import argparse
import json
import math
import operator
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

from stoilo.core.levels import parse_level
from stoilo.sandbox.capture_print import TaskPrinter, TextBuffer
from stoilo.sandbox.loader import prepare_runtime
from stoilo.sandbox.transformer import compile_source

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
    module = types.ModuleType("bench_kernel")
    exec(compile(source, "<plain>", "exec", dont_inherit=True), module.__dict__)  # noqa: S102 - our own kernels
    return module.run


def load_ours() -> Callable[[str], Callable[[], Any]]:
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
    import builtins  # noqa: PLC0415 - only here

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


def seconds(run: Callable[[], Any]) -> float:
    start = time.process_time()
    run()
    return time.process_time() - start


def measure(rounds: int) -> list[dict[str, Any]]:
    loaders = {"plain": load_plain, "ours": load_ours(), "stock": load_stock}
    rows = []
    for path in sorted(KERNELS.glob("*.py")):
        source = path.read_text(encoding="utf-8")
        runs = {name: load(source) for name, load in loaders.items()}
        answers = [run() for run in runs.values()]
        assert all(answer == answers[0] for answer in answers), path.stem
        best = {
            name: min(times)
            for name, times in zip(
                runs,
                zip(*([seconds(r) for r in runs.values()] for _ in range(rounds))),
                strict=True,
            )
        }
        ratios = {name: best[name] / best["plain"] for name in ("ours", "stock")}
        rows.append({"kernel": path.stem, "plain_s": best["plain"], **ratios})
    means = {
        name: math.exp(sum(math.log(row[name]) for row in rows) / len(rows))
        for name in ("ours", "stock")
    }
    rows.append({"kernel": "geometric mean", "plain_s": None, **means})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    rows = measure(options.rounds)
    if options.json:
        print(json.dumps({"guards": rows}))
        return
    print(f"{'kernel':<18}{'plain s':>9}{'ours':>8}{'stock':>8}   (ratio to CPython)")
    for row in rows:
        plain = f"{row['plain_s']:.3f}" if row["plain_s"] else ""
        print(f"{row['kernel']:<18}{plain:>9}{row['ours']:>8.2f}{row['stock']:>8.2f}")


if __name__ == "__main__":
    main()
