import ast

import pytest

from stoilo.sandbox.language.bombs import EmittedSize


def emitted(source, nested=4):
    return EmittedSize(nested).measure_all(ast.parse(source).body)


def nested_finally(depth):
    text = "".join(
        f"{'  ' * n}try:\n{'  ' * (n + 1)}x\n{'  ' * n}finally:\n" for n in range(depth)
    )
    return text + "  " * depth + "x"


def test_code_without_finally_counts_its_nodes():
    assert emitted("x = 1\ny = 2") == 2 * emitted("x = 1")


@pytest.mark.parametrize("depth", [2, 3, 4])
def test_each_level_of_finally_doubles_the_code(depth):
    growth = emitted(nested_finally(depth)) / emitted(nested_finally(depth - 1))
    assert 1.6 < growth < 2.4


def test_each_exit_copies_the_finally_body():
    def exits(count):
        leave = "    if y: return\n" * count
        return emitted(f"def f(y):\n  try:\n{leave}  finally:\n" + "    x = 1\n" * 50)

    assert exits(20) > 5 * exits(1)


def test_what_nests_too_deep_is_named_and_not_looked_into():
    counter = EmittedSize(4)
    counter.measure_all(ast.parse(nested_finally(30)).body)
    assert len(counter.too_nested) == 1
