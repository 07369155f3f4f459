import dataclasses
import math
import random
import re
from fractions import Fraction
from io import StringIO

import pytest

from stoilo.sandbox.language.guards import GuardError, import_loaded, is_own_class
from stoilo.sandbox.language.runtime import TaskPrinter
from stoilo.sandbox.language.transformer import compile_source

SOURCE = """
import math, random
from fractions import Fraction
class Own:
    def __init__(self):
        self._x = 1
    def read(self):
        return self._x
class Extends(random.Random):
    def mine(self):
        self._seeded = 3
        return self._seeded
    def theirs(self):
        return self._randbelow
def function(): pass
"""


@pytest.fixture
def task(runtimes):
    runtime = runtimes["pure"]
    code = compile_source(SOURCE, runtime.level)
    return runtime.load(code, TaskPrinter(StringIO()))


@pytest.fixture
def guards(runtimes):
    return runtimes["pure"].guards


def test_own_private_attribute_is_read(task, guards):
    assert guards.getattr(task.Own(), "_x") == 1
    assert is_own_class(task.Own)


def test_library_private_attribute_is_refused(guards):
    with pytest.raises(GuardError) as caught:
        guards.getattr(random.Random(1), "_randbelow")
    assert caught.value.code == "STO-G101"


def test_own_subclass_keeps_its_names_and_not_the_librarys(task):
    extended = task.Extends(1)
    assert extended.mine() == 3
    with pytest.raises(GuardError):
        extended.theirs()


def test_own_method_called_on_a_foreign_object_is_refused(task):
    for foreign in (random.Random(1), math, Fraction(1), int, task.Own):
        with pytest.raises(GuardError):
            task.Own.read(foreign)


def test_attribute_name_must_be_an_exact_string(task, guards):
    class Name(str):
        __slots__ = ()

    for call in (guards.getattr, guards.hasattr):
        with pytest.raises(TypeError):
            call(task.function, Name("__globals__"))
    with pytest.raises(TypeError):
        guards.setattr(task.Own(), Name("x"), 1)


def test_getattr_default_does_not_hide_a_refusal(task, guards):
    assert guards.getattr(task.Own(), "none", 5) == 5
    with pytest.raises(GuardError):
        guards.getattr(task.function, "__globals__", 5)


def test_hasattr_answers_for_operators_only(guards):
    assert guards.hasattr([], "__len__")
    assert not guards.hasattr(3, "__len__")
    with pytest.raises(GuardError):
        guards.hasattr([], "__globals__")


def test_own_objects_are_writable_and_others_are_not(task, guards):
    facade = task.math
    for target in (task.Own(), task.Own, task.function, ValueError("x")):
        assert guards.write(target, "note") is target
    for target in (facade, math, Fraction, Fraction(1), int, len, [], guards):
        with pytest.raises(GuardError) as caught:
            guards.write(target, "note")
        assert caught.value.code == "STO-G102"


def test_type_shows_no_metaclass(task, guards):
    assert guards.type_of(task.Own()) is task.Own
    assert guards.type_of(task.Own) is guards.type_class
    assert isinstance(task.Own, guards.type_class)
    assert not isinstance(3, guards.type_class)
    with pytest.raises(GuardError):
        guards.type_class("X", (), {})


def test_text_format_reads_plain_attributes_only(guards):
    shout = guards.getattr("{0.real} {0:>{1}}", "format")
    assert shout(1, 3) == "1   1"
    for text in ("{0.__class__}", "{0._x}", "{:{0.__class__}}", "{0.gi_frame}"):
        with pytest.raises(Exception, match="format field"):
            guards.getattr(text, "format")(1)


def test_c_callers_get_no_module_and_only_loaded_ones():
    assert import_loaded("math", {}, {}, ["x"], 0) is None
    with pytest.raises(ModuleNotFoundError):
        import_loaded("stoilo_never_loaded")


def test_inner_class_of_a_library_is_told_apart_and_not_called(guards):
    match = re.match("a", "a").__class__
    field = dataclasses.field()
    shown = guards.type_of(field)
    assert guards.type_of(re.match("a", "a")) is match
    assert shown is guards.type_of(field)
    assert isinstance(field, shown)
    assert shown.__name__ == "Field"
    for call in (shown, shown[int]):
        with pytest.raises(GuardError) as caught:
            call()
        assert caught.value.code == "STO-G108"


def test_type_of_a_facade_makes_no_modules(task, guards):
    with pytest.raises(GuardError):
        guards.type_of(task.math)("made")


def test_method_that_a_library_made_works_on_instances_of_its_class_only(language):
    source = """
from dataclasses import dataclass

@dataclass
class Base:
    x: int

class Below(Base):
    def __init__(self, x):
        Base.__init__(self, x + 1)

def run(kwargs):
    return [Below(1).x, Base.__repr__(Below(2))]
"""
    assert language.value(source) == [2, "Below(x=3)"]
