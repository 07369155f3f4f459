"""Types that would build functions tell what an object is, and build nothing."""

import types

import pytest

from stoilo.sandbox.facades.functions import FACADES
from stoilo.sandbox.language.rules import GuardError

BUILDERS = ("BuiltinFunctionType", "FunctionType", "GeneratorType", "LambdaType")


@pytest.mark.parametrize("name", BUILDERS)
def test_type_of_functions_builds_none(name):
    kind = FACADES["types"][name]
    with pytest.raises(GuardError, match="STO-G108"):
        kind(compile("", "", "exec"), {})


def test_real_type_of_functions_builds_one():
    assert callable(types.FunctionType(compile("", "", "exec"), {}))


def test_functions_are_instances_of_what_a_task_sees(language):
    source = """
from types import BuiltinFunctionType, FunctionType, GeneratorType, LambdaType

def run(kwargs):
    def walk():
        yield 1

    return [
        isinstance(run, FunctionType),
        type(run) is FunctionType is LambdaType,
        isinstance(len, BuiltinFunctionType),
        isinstance(walk(), GeneratorType),
        isinstance(3, FunctionType),
    ]
"""
    assert language.value(source) == [True, True, True, True, False]
