import pytest

DISPATCH = """
import functools
from typing import NamedTuple

@functools.singledispatch
def kind(value):
    return "other"

kind.register(int, lambda value: "int")

@kind.register(list | tuple)
def _(value):
    return "many"

class Visitor:
    @functools.singledispatchmethod
    def visit(self, value):
        return "other"

    @visit.register(str)
    def _text(self, value):
        return value.upper()

    @visit.register(float)
    @classmethod
    def _float(cls, value):
        return cls.__name__
"""


def test_functions_dispatch_on_the_class(language):
    source = (
        DISPATCH + "def run(d):\n    return [kind(v) for v in (1, True, [], (), '')]"
    )
    assert language.value(source) == ["int", "int", "many", "many", "other"]


def test_methods_dispatch_on_the_class_and_bind_as_written(language):
    source = (
        DISPATCH + "def run(d):\n    return [Visitor().visit(v) for v in ('a', 1.5, 2)]"
    )
    assert language.value(source) == ["A", "Visitor", "other"]


@pytest.mark.parametrize("target", ["kind", "Visitor().visit", "Visitor.visit"])
def test_what_is_no_class_cannot_be_registered(language, target):
    source = DISPATCH + (
        "def run(d):\n"
        "    hidden = NamedTuple('H', [('x', \"print('evaluated')\")])\n"
        f"    {target}.register(hidden(1))"
    )
    frame, output = language.call(source)
    assert frame["status"] != "ok"
    assert "evaluated" not in output
