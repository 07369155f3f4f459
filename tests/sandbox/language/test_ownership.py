import json
import random
from fractions import Fraction
from io import StringIO

import pytest

from stoilo.sandbox.language.ownership import (
    handed_out_classes,
    is_own_class,
    is_own_function,
    is_own_method,
    keeps,
    kept_names,
)
from stoilo.sandbox.language.runtime import TaskPrinter
from stoilo.sandbox.language.transformer import compile_source

SOURCE = """
import random
class Own(random.Random):
    def random(self):
        return 0.5
def function(): pass
"""


@pytest.fixture
def task(runtimes):
    code = compile_source(SOURCE, runtimes["pure"].level)
    return runtimes["pure"].load(code, TaskPrinter(StringIO()))


def test_own_is_what_the_source_defined(task):
    assert is_own_class(task.Own)
    assert is_own_function(task.function)
    assert not is_own_class(random.Random)
    assert not is_own_function(json.dumps)
    assert not is_own_function(len)


def test_overridden_method_is_own_and_inherited_is_not(task):
    assert is_own_method(task.Own, "random")
    assert not is_own_method(task.Own, "seed")
    assert not is_own_method(task.Own, "nothing")


def test_library_class_keeps_what_its_dictionary_or_methods_spell():
    assert keeps(random.Random, "_randbelow")
    assert keeps(Fraction, "_numerator")
    assert not keeps(Fraction, "numerator")
    assert not keeps(random.Random, "_free_for_tasks")
    assert kept_names(dict) == frozenset()


def test_classes_to_extend_are_plain_exceptions_or_handed_out(runtimes):
    modules = runtimes["pure"].facades.modules
    bases = handed_out_classes(tuple(modules.values()))
    assert {dict, ValueError, modules["random"].Random, property} <= bases
    assert not {type, type(random)} & bases
