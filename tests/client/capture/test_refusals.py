# ruff: noqa: PTH109, PLW0108 - functions that must be refused
# ruff: noqa: ARG005 - lambdas are the subject, used or not
from __future__ import annotations

import asyncio
import collections
import concurrent.futures
import enum
import functools
import importlib.util
import io
import logging
import os
import queue
import random
import re
import socket
import subprocess
import sys
import threading
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stoilo.client.capture import capture_task
from stoilo.core.errors import UsageError


class Holder:
    def __init__(self, inside: Any) -> None:
        self.inside = inside


class Shade(enum.Enum):
    DARK = 1


class Failure(Exception):
    pass


def numbers() -> Any:
    yield 1


def code_of(error: pytest.ExceptionInfo[UsageError]) -> str:
    assert error.value.hint, "every refusal says what to do"
    return error.value.code


REFUSED = {
    "file": io.StringIO("text"),
    "bytes_file": io.BytesIO(),
    "lock": threading.Lock(),
    "rlock": threading.RLock(),
    "event": threading.Event(),
    "generator": numbers(),
    "iterator": iter([1]),
    "mapping": map(str, [1]),
    "logger": logging.getLogger("x"),
    "queue": queue.Queue(),
    "future": concurrent.futures.Future(),
    "view": memoryview(b"x"),
    "array": bytearray(b"x"),
    "match": re.match("a", "a"),
    "rng": random.Random(1),
    "path": Path("x"),
    "failure": Failure("x"),
    "shade": Shade.DARK,
    "counter": collections.Counter(a=1),
    "space": types.SimpleNamespace(a=1),
    "code": compile("1", "x", "eval"),
    "objects": np.array([object()]),
    "module": os,
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_travel_is_refused_by_name(name: str) -> None:
    with pytest.raises(UsageError) as error:
        capture_task(lambda kw: kw, {"ok": 1, name: REFUSED[name]})
    assert f"kwargs['{name}']" in error.value.message
    assert code_of(error) in {"STO-C010", "STO-D001"}


@pytest.mark.parametrize("name", ["lock", "file", "generator"])
def test_the_place_inside_a_value_is_named(name: str) -> None:
    value = {"deep": [1, Holder({"k": REFUSED[name]})]}
    with pytest.raises(UsageError, match="STO-C010") as error:
        capture_task(lambda kw: kw, {"arg": value})
    assert "kwargs['arg']['deep'][1].inside['k']" in error.value.message


def test_sockets_and_processes_are_refused() -> None:
    with socket.socket() as open_socket, pytest.raises(UsageError, match="network"):
        capture_task(lambda kw: kw, {"s": open_socket})
    with (
        subprocess.Popen([sys.executable, "-c", ""]) as process,
        pytest.raises(UsageError, match="process"),
    ):
        capture_task(lambda kw: kw, {"p": process})


LOCK = threading.Lock()
STREAM = sys.stdout


def test_a_global_that_cannot_travel_is_named_with_its_user() -> None:
    def task(kw: Any) -> Any:
        with LOCK:
            return kw

    with pytest.raises(UsageError, match="STO-C010") as error:
        capture_task(task, {})
    assert "`LOCK`" in error.value.message
    assert "test_refusals.py" in error.value.message
    assert str(Path(__file__).parent) not in error.value.message


def test_a_closure_variable_that_cannot_travel_is_named() -> None:
    handle = io.StringIO()
    with pytest.raises(UsageError, match="`handle`"):
        capture_task(lambda kw: handle.write(kw["x"]), {})


def test_a_module_of_no_level_is_refused_with_what_to_do_instead() -> None:
    with pytest.raises(UsageError, match="STO-C012") as error:
        capture_task(lambda _: os.getcwd(), {})
    assert "module os" in error.value.message
    assert "pass the data as an argument" in error.value.hint


def test_a_refusal_names_the_line_of_the_use() -> None:
    def task(_: Any) -> Any:
        first = 1
        return first, os.getcwd()

    with pytest.raises(UsageError, match="STO-C012") as error:
        capture_task(task, {})
    line = task.__code__.co_firstlineno + 2
    assert f"`os` (used in test_refusals.py:{line})" in error.value.message


def test_a_value_that_contains_itself_is_refused() -> None:
    loop: list[Any] = [Holder(1)]
    loop[0].inside = loop
    with pytest.raises(UsageError, match="STO-C010"):
        capture_task(lambda kw: kw, {"loop": loop})


def test_own_module_as_an_object_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text("X = 1\n")
    spec = importlib.util.spec_from_file_location("mine", path)
    assert spec is not None
    mine = importlib.util.module_from_spec(spec)
    with pytest.raises(UsageError, match="STO-C013"):
        capture_task(lambda kw: vars(mine), {})


def test_async_and_generator_functions_are_refused() -> None:
    async def later(kw: Any) -> Any:
        await asyncio.sleep(0)
        return kw

    def many(kw: Any) -> Any:
        yield kw

    for func in (later, many):
        with pytest.raises(UsageError, match="STO-C014"):
            capture_task(func, {})


def test_an_empty_cell_is_refused() -> None:
    def task(kw: Any) -> Any:
        return unbound + kw

    with pytest.raises(UsageError, match="STO-C013"):
        capture_task(task, {})
    unbound = 1


TABLE = list(range(5000))


class NeedsData:
    size = len(TABLE)


def test_data_needed_while_a_class_is_built_are_refused() -> None:
    with pytest.raises(UsageError, match="STO-C010"):
        capture_task(lambda kw: NeedsData.size, {})


def test_a_validator_with_large_data_is_refused() -> None:
    array = np.zeros(10)
    with pytest.raises(UsageError, match="STO-C010"):
        capture_task(lambda kw: 1, {}, lambda v: v in array)


@pytest.mark.parametrize("func", [lambda: 1, lambda a, b: a, 5, "f"])
def test_a_function_that_takes_no_dict_is_refused(func: Any) -> None:
    with pytest.raises(UsageError, match="STO-C021"):
        capture_task(func, {})


def test_validators_of_the_wrong_arity_are_refused() -> None:
    with pytest.raises(UsageError, match="init_valid_func"):
        capture_task(lambda kw: 1, {}, lambda: True)
    with pytest.raises(UsageError, match="compare_valid_func"):
        capture_task(lambda kw: 1, {}, None, lambda a: True)


def test_kwargs_keys_must_be_text() -> None:
    with pytest.raises(UsageError, match="STO-C021"):
        capture_task(lambda kw: 1, {1: 2})  # type: ignore[dict-item]  # wrong on purpose


def test_what_a_library_decorator_made_is_refused() -> None:
    @functools.singledispatch
    def kind(value: Any) -> str:
        return type(value).__name__

    with pytest.raises(UsageError, match="STO-C010"):
        capture_task(lambda kw: kind(kw), {})


def counted(kw: Any) -> Any:
    return kw


counted.calls = 0  # type: ignore[attr-defined]  # the shape under test


def test_data_kept_on_a_function_are_refused_where_they_are_used() -> None:
    with pytest.raises(UsageError, match="STO-C010"):
        capture_task(lambda kw: counted.calls, {})  # type: ignore[attr-defined]  # same
    assert capture_task(lambda kw: counted(kw), {}).task_module


def test_paths_of_this_machine_are_refused() -> None:
    with pytest.raises(UsageError, match="STO-C010"):
        capture_task(lambda kw: __file__, {})


def test_source_over_the_bound_is_refused() -> None:
    text = "x" * 390
    words = {f"k{i}": text for i in range(1000)}
    with pytest.raises(UsageError, match="STO-C0"):
        capture_task(lambda kw: 1, {}, lambda v: v in words)
