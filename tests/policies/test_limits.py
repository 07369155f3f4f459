import ast

import pytest

from stoilo.core.types import BOUNDS
from stoilo.policies.findings import Lines
from stoilo.policies.limits import find_finally_bombs
from stoilo.sandbox.language.transformer import find_oversize


def oversize(text: str, nodes: int = BOUNDS.ast_nodes) -> list[str]:
    found = find_oversize(ast.parse(text), nodes)
    return [found.code] if found else []


def bombs(text: str) -> list[str]:
    return [found.code for found in find_finally_bombs(ast.parse(text), Lines(text))]


def nest(depth: int, *, last: bool = False) -> str:
    """Return try/finally nested in each other's bodies, or finally blocks."""
    lines = []
    for level in range(depth):
        pad = " " * level
        lines += (
            [f"{pad}try:", f"{pad} pass", f"{pad}finally:"] if last else [f"{pad}try:"]
        )
    lines.append(" " * depth + "pass")
    if not last:
        lines += [f"{' ' * level}finally: pass" for level in reversed(range(depth))]
    return "\n".join(lines)


def test_more_nodes_than_allowed_is_refused() -> None:
    assert oversize("x = [" + "1," * 50_001 + "]") == ["STO-P010"]


def test_nodes_up_to_the_limit_pass() -> None:
    assert oversize("x = 1", 5) == []
    assert oversize("x = 1", 4) == ["STO-P010"]


@pytest.mark.parametrize(
    "text",
    [
        "[" * 60 + "]" * 60,
        "not " * 60 + "x",
        "lambda: " * 60 + "1",
        "\n".join(" " * level + "if x:" for level in range(60)) + " pass",
        "x" + ".a" * 130,
        " + ".join("x" * 130),
    ],
)
def test_deep_nesting_is_refused(text: str) -> None:
    assert oversize(text) == ["STO-P022"]


@pytest.mark.parametrize(
    "text",
    [
        " + ".join("x" * 90),
        "x" + ".a" * 90,
        "if x: pass\n" + "elif x: pass\n" * 90,
        " and ".join("x" * 5000),
        "x = [" + "[1, 2], " * 900 + "]",
    ],
)
def test_chains_that_do_not_nest_pass(text: str) -> None:
    assert oversize(text) == []


@pytest.mark.parametrize("last", [False, True])
def test_finally_nests_four_deep_and_no_deeper(last: bool) -> None:
    assert bombs(nest(4, last=last)) == []
    assert bombs(nest(5, last=last)) == ["STO-P027"]


def test_finally_body_copied_to_many_exits_is_refused() -> None:
    exits = "  if x: return\n" * 600
    body = "  x = 1\n" * 600
    assert bombs(f"def f(x):\n try:\n{exits} finally:\n{body}") == ["STO-P027"]


def test_finally_of_ordinary_size_passes() -> None:
    text = "def f(x):\n try:\n  if x: return\n  return\n finally:\n  x = 1\n"
    assert bombs(text * 50) == []


def test_function_inside_finally_starts_anew() -> None:
    assert bombs("try:\n def f():\n  return 1\nfinally:\n" + " x\n" * 20_000) == []
