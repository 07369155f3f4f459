# ruff: noqa: ARG005 - lambdas are the subject, used or not
from __future__ import annotations

import ast
import math
from typing import Any

import numpy as np
import pytest

from stoilo.client.capture import capture_calls, capture_task
from stoilo.client.capture.arguments import BLOB_BYTES, StoredValue
from stoilo.core.codec.nodes import BlobRef, FunctionRef
from stoilo.core.codec.skeleton import decode
from stoilo.core.digests import content_digest
from stoilo.core.types import BOUNDS

RATE = 0.5
limits = [1, 2]


def helper(x: int, *, scale: float = RATE) -> float:
    """Scale."""
    return x * scale


def test_plain_task_has_the_function_as_entry_and_kwargs_as_they_are() -> None:
    captured = capture_task(lambda kw: helper(kw["a"]), {"a": 3})
    assert captured.task_module == (
        'def helper(x, *, scale=0.5):\n    """Scale."""\n    return x * scale\n\n\n'
        "def task(kw):\n    return helper(kw['a'])\n"
    )
    assert captured.entry == "task"
    assert decode(captured.arguments) == {"a": 3}
    assert captured.validator_module == ""


def test_validators_have_a_module_of_their_own() -> None:
    captured = capture_task(
        lambda kw: 1, {}, lambda v: v > RATE, lambda a, b: abs(a - b) < 1e-6
    )
    assert captured.init_entry == "init_valid"
    assert captured.compare_entry == "compare_valid"
    assert "RATE = 0.5" in captured.validator_module
    assert "valid" not in captured.task_module


def test_state_travels_beside_kwargs_and_the_entry_takes_one_dict() -> None:
    table = np.arange(5)
    captured = capture_task(lambda kw: table[kw["i"]], {"i": 2})
    assert captured.entry == "run_task"
    assert "def run_task(call):" in captured.task_module
    node = decode(captured.arguments)
    assert node["kwargs"] == {"i": 2}
    assert list(node["state"]) == ["table"]


def test_large_values_become_blobs_each_content_once() -> None:
    big = np.zeros(BLOB_BYTES // 8)
    captured = capture_task(lambda kw: 1, {"a": big, "b": big, "c": 1})
    assert len(captured.blobs) == 1
    node = decode(captured.arguments)
    assert node == {"a": BlobRef(0), "b": BlobRef(0), "c": 1}
    assert len(captured.arguments) < BOUNDS.inline_arguments_bytes


def test_many_middle_sized_values_stay_under_the_inline_bound() -> None:
    values = {f"v{i}": np.full(20_000, i) for i in range(10)}
    captured = capture_task(lambda kw: 1, values)
    assert len(captured.arguments) <= BOUNDS.inline_arguments_bytes
    assert captured.blobs


def test_a_stored_value_is_named_by_its_digest() -> None:
    stored, data = StoredValue.of(list(range(100)))
    captured = capture_task(lambda kw: kw["x"], {"x": stored, "y": {"z": [stored]}})
    assert captured.blobs == (content_digest(data),)
    assert decode(captured.arguments) == {"x": BlobRef(0), "y": {"z": [BlobRef(0)]}}


def test_no_blob_refers_to_another() -> None:
    stored, _ = StoredValue.of(1)
    big = np.zeros(BLOB_BYTES)
    captured = capture_task(lambda kw: 1, {"x": {"in": stored, "big": big}})
    assert decode(captured.arguments) == {"x": {"in": BlobRef(0), "big": BlobRef(1)}}
    assert len(captured.blobs) == 2


def test_map_items_share_state_and_blobs() -> None:
    big = np.ones(BLOB_BYTES)
    calls = capture_calls(lambda kw: big[kw["i"]], [{"i": i} for i in range(5)])
    chunk = calls.pack_items([1, 3])
    assert chunk.map_items == 2
    assert len(chunk.blobs) == 1
    assert [item["kwargs"]["i"] for item in decode(chunk.arguments)] == [1, 3]


def test_functions_in_kwargs_get_the_name_of_their_key() -> None:
    captured = capture_task(integrate, {"f": lambda x: x * math.sin(x), "n": 3})
    assert decode(captured.arguments)["f"] == FunctionRef("f")
    assert "def f(x):" in captured.task_module
    assert "import math" in captured.task_module


def integrate(kw: dict[str, Any]) -> float:
    return float(sum(kw["f"](i) for i in range(kw["n"])))


def test_nothing_is_defined_twice_and_no_builtin_is_shadowed() -> None:
    def make(n: int) -> Any:
        def sum(kw: Any) -> Any:  # noqa: A001 - shadows a builtin on purpose
            return n + kw["x"]

        return sum

    first, second = make(1), make(2)
    captured = capture_task(lambda kw: first(kw) + second(kw) + max(kw["x"], 1), {})
    names = [
        getattr(node, "name", None) or ast.unparse(node).split(" = ")[0]
        for node in ast.parse(captured.task_module).body
    ]
    assert len(names) == len(set(names))
    assert "sum" not in names


def test_a_renamed_reference_never_meets_a_local_of_that_name() -> None:
    alias = helper

    def task(kw: Any) -> Any:
        helper = kw["a"]
        return alias(helper)

    captured = capture_task(task, {"a": 2})
    space: dict[str, Any] = {}
    exec(captured.task_module, space)  # noqa: S102 - our own text
    assert space[captured.entry]({"a": 2}) == 1.0


def test_long_literals_are_wrapped_below_the_gates_line_limit() -> None:
    text = ", ".join(str(i) for i in range(3000))
    source = f"def f(kw):\n    return [{text}]\n"
    wrapped = __import__("stoilo.client.capture.emit", fromlist=["x"]).wrap_long_lines(
        source
    )
    assert max(map(len, wrapped.split("\n"))) < BOUNDS.source_line_chars
    assert ast.dump(ast.parse(wrapped)) == ast.dump(ast.parse(source))


def test_annotations_do_not_drag_anything_along() -> None:
    def task(kw: Unknown) -> Missing:  # type: ignore[name-defined]  # noqa: F821
        total: Absent = kw["a"]  # type: ignore[name-defined]  # noqa: F821
        return total

    source = capture_task(task, {"a": 1}).task_module
    assert source == "def task(kw):\n    total = kw['a']\n    return total\n"


@pytest.mark.parametrize(
    "value", [float("inf"), float("nan"), -0.0, 1e308, 2**70, -5, -2.5, 1j, -1j]
)
def test_odd_numbers_survive_as_constants(value: Any) -> None:
    captured = capture_task(lambda kw: value, {})
    space: dict[str, Any] = {}
    exec(captured.task_module, space)  # noqa: S102 - our own text
    assert repr(space["task"]({})) == repr(value)


def test_the_text_of_an_own_name_with_greek_letters_is_kept() -> None:
    λ = 0.1  # noqa: PLC2401 - research code does this
    assert "λ = 0.1" in capture_task(lambda kw: λ, {}).task_module
