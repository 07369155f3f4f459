"""Whole programs: full jail and both layers against plain CPython, from order to answer.

Both sides are warm processes that fork for each program; both compile, load and call it.
What differs is what we add: guards, facades, the jail, the checked result.
"""

from __future__ import annotations

import functools
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from bench.corpus import Program
from bench.rows import Row, seconds_once
from stoilo.core.codec import skeleton
from stoilo.core.levels import Level
from stoilo.sandbox.process.channel import TASK_JOB, TaskRequest
from stoilo.sandbox.process.run import run_task
from stoilo.sandbox.process.supervisor import Jail, zygote_environment

__all__ = ["Jailed", "Plain", "measure_programs", "one_thread", "settled"]

Runner = Callable[[Program], "Ended"]
WRAPPER = '\n\ndef task(kwargs):\n    return run(kwargs["n"])\n'
SERVER = Path(__file__).with_name("plain.py")


def one_thread() -> dict[str, str]:
    """Return this process's environment with one thread for linear algebra."""
    threads = ("OMP", "OPENBLAS", "MKL")
    return {**os.environ, **{f"{name}_NUM_THREADS": "1" for name in threads}}


def settled() -> dict[str, str]:
    """Return the same with every setting that our zygote has too."""
    return {**os.environ, **zygote_environment()}


@dataclass(frozen=True, slots=True)
class Ended:
    """How a program ended: its answer as JSON has it, its process's time in s."""

    answer: Any
    cpu_s: float


class Plain:
    """A `bench.plain` process."""

    def __init__(
        self, modules: tuple[str, ...], environment: Mapping[str, str]
    ) -> None:
        self._scratch = (
            tempfile.TemporaryDirectory()
        )  # torch's compiler leaves a folder
        self._process = subprocess.Popen(
            [sys.executable, str(SERVER), *modules],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**environment, "TMPDIR": self._scratch.name},
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait()
        assert self._process.stdout
        self._process.stdout.close()
        self._scratch.cleanup()

    def run(self, program: Program) -> Ended:
        """Run the program to its end."""
        assert self._process.stdin
        assert self._process.stdout
        order = {"source": program.source + WRAPPER, "n": program.size}
        print(json.dumps(order), file=self._process.stdin, flush=True)
        reply = json.loads(self._process.stdout.readline())
        return Ended(reply["answer"], reply["cpu_s"])


class Jailed:
    """A warm jail of ours."""

    def __init__(self, level: Level) -> None:
        self._level = level
        self._jail = Jail(level, TASK_JOB)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._jail.close()

    def run(self, program: Program) -> Ended:
        """Run the program to its end."""
        request = TaskRequest(
            program.source + WRAPPER, "task", skeleton.encode({"n": program.size})
        )
        outcome = run_task(self._jail, request, self._level.default_limits())
        assert outcome.value is not None, outcome
        value = json.loads(json.dumps(skeleton.decode(outcome.value)))
        return Ended(value, outcome.usage.cpu_s)


def measure_programs(
    title: str,
    programs: tuple[Program, ...],
    sides: Mapping[str, Runner],
    target: float,
    rounds: int,
) -> list[Row]:
    """Return a row for each program and one for the geometric mean.

    Args:
        title: before each program's name.
        programs: what to run.
        sides: how to run it: ``ours``, ``plain`` (which must agree exactly) and further
            ones, whose last digits may differ.
        target: the largest geometric mean of ours/plain.
        rounds: of which the best counts, in elapsed and in processor time.
    """
    rows = [compare(f"{title}: {one.name}", one, sides, rounds) for one in programs]
    mean = statistics.geometric_mean([row.ratio for row in rows if row.ratio])
    others = {
        peer: statistics.geometric_mean([row.others[peer] or 1.0 for row in rows])
        for peer in rows[0].others
    }
    return [*rows, Row.of_mean(f"{title}: geometric mean", mean, target, others)]


def compare(
    name: str,
    program: Program,
    sides: Mapping[str, Runner],
    rounds: int,
) -> Row:
    """Return the row of one program; ours and plain must give the very same answer."""
    assert sides["ours"](program).answer == sides["plain"](program).answer, name
    wall: dict[str, float] = dict.fromkeys(sides, math.inf)
    cpu: dict[str, float] = dict.fromkeys(sides, math.inf)
    for _ in range(rounds):
        for side, run in sides.items():
            elapsed, ended = seconds_once(functools.partial(run, program))
            wall[side] = min(wall[side], elapsed)
            cpu[side] = min(cpu[side], ended.cpu_s)
    further = [side for side in sides if side not in {"ours", "plain"}]
    return Row(
        name=name,
        ours=wall["ours"] * 1e3,
        unit="ms",
        peer_name="plain",
        peer=wall["plain"] * 1e3,
        ratio=wall["ours"] / wall["plain"],
        ratio_of="of plain",
        others={
            "ours, processor time": cpu["ours"] / cpu["plain"],
            **{side: wall[side] / wall["plain"] for side in further},
        },
    )
