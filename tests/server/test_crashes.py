"""A crash before or after every durable step: nothing lost, nothing done twice (I1, I6)."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import select

from stoilo.core.codec.skeleton import encode
from stoilo.server.db import schema
from stoilo.server.db.records import AttemptState
from tests.support.server import make_result
from tests.support.serverbench import Bench, make_bench

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

KEYS = ("a", "b", "c")


class CrashError(BaseException):
    """kill -9, as far as one thread can tell."""


class Fuse:
    """Burns down at each durable step and ends the process at the chosen one."""

    def __init__(self, left: int) -> None:
        self.left = left
        self.names: list[str] = []

    def step(self, name: str) -> None:
        self.names.append(name)
        self.left -= 1
        if self.left == 0:
            raise CrashError(name)


def wire(bench: Bench, fuse: Fuse) -> None:
    """Put a possible crash on both sides of every durable step."""

    def around(owner: Any, name: str) -> None:
        real = getattr(owner, name)

        def step(*arguments: Any, **fields: Any) -> Any:
            fuse.step(f"before {name}")
            answer = real(*arguments, **fields)
            fuse.step(f"after {name}")
            return answer

        setattr(owner, name, step)

    for owner, name in (
        (bench.log, "append_many"),
        (bench.signer, "sign_admissions"),
        (bench.engine, "create_workunits"),
    ):
        around(owner, name)
    real_write = bench.store.write

    @contextmanager
    def write() -> Iterator[Any]:
        fuse.step("before commit")
        with real_write() as connection:
            yield connection
        fuse.step("after commit")

    bench.store.write = write  # type: ignore[method-assign]  # the point of the test


def live(bench: Bench) -> None:
    """Submit everything, admit it, and let volunteers finish it."""
    for key in KEYS:
        asyncio.run(bench.submit(key))
    while bench.server.pipeline.run_once():
        pass
    for name in list(bench.engine.specs):
        if name not in bench.engine.ended:
            statement = bench.statement(name.partition("_")[0])
            frame = {"status": "ok", "value": encode(1)}
            files = [make_result(f"{name}_{n}", statement, frame) for n in (0, 1)]
            bench.engine.deliver(name, files)
    while bench.server.pipeline.run_once():
        pass


def reborn(bench: Bench, tmp_path: Path) -> Bench:
    """Start a new server on what the crashed one had made durable."""
    bench.store.engine.dispose()
    again = make_bench(tmp_path)
    again.token = bench.token
    for name in ("leaves", "labels"):
        setattr(again.log, name, getattr(bench.log, name))
    again.engine.specs, again.engine.ended = bench.engine.specs, {}
    return again


def check_whole(bench: Bench) -> None:
    """Count from outside: every key one task, one leaf, one workunit, one outcome."""
    with bench.store.read() as connection:
        tasks = connection.execute(select(schema.task)).all()
        outcomes = connection.execute(select(schema.outcome)).all()
        attempts = connection.execute(select(schema.attempt)).all()
    assert {task.idempotency_key for task in tasks} == set(KEYS)
    assert {task.state for task in tasks} == {"succeeded"}
    assert len(outcomes) == len(attempts) == len(bench.engine.specs) == len(KEYS)
    assert {one.state for one in attempts} == {AttemptState.DONE.value}
    kinds = Counter(bench.kinds())
    assert kinds == dict.fromkeys(("admission", "workunit", "result"), len(KEYS))


def count_steps(folder: Path) -> list[str]:
    folder.mkdir()
    bench, fuse = make_bench(folder), Fuse(0)
    wire(bench, fuse)
    live(bench)
    check_whole(bench)
    return fuse.names


def test_crash_at_every_durable_step_loses_and_repeats_nothing(tmp_path: Path) -> None:
    steps = count_steps(tmp_path / "whole")
    assert {"after append_many", "before sign_admissions"} <= set(steps)
    for number in range(1, len(steps) + 1):
        folder = tmp_path / str(number)
        folder.mkdir()
        bench = make_bench(folder)
        wire(bench, Fuse(number))
        with pytest.raises((CrashError, asyncio.CancelledError)):
            live(bench)
        again = reborn(bench, folder)
        live(again)
        check_whole(again)
        again.store.close()


def test_outcome_whose_delivery_crashed_is_taken_when_it_comes_again(
    bench: Bench,
) -> None:
    name, statement = asyncio.run(bench.issued())
    frame = {"status": "ok", "value": encode(1)}
    files = [make_result(f"{name}_{n}", statement, frame) for n in (0, 1)]
    wire(bench, Fuse(1))
    with pytest.raises(CrashError):
        bench.engine.deliver(name, files)
    bench.engine.deliver(name, files)
    bench.engine.deliver(name, files)
    assert bench.poll(name).state == "succeeded"
