import pytest

from stoilo.core.codec import skeleton
from stoilo.core.codec.nodes import BlobRef, ClassRef, FunctionRef, Instance

SOURCE = """
import math
from dataclasses import dataclass

calls = []

class Model:
    def __init__(self):
        calls.append("init")
    def predict(self, x):
        return x * self._w + self.b
    class Inner:
        pass

class Watched:
    @property
    def x(self):
        return 1
    @x.setter
    def x(self, value):
        calls.append("setter")

class Slotted:
    __slots__ = ("a",)

@dataclass(frozen=True)
class Frozen:
    a: int

class Series(list):
    pass

class Table(dict):
    pass

class Text(str):
    pass

def square(x):
    return x * x

helper = lambda x: x + 1

def run(d):
    return ACTION
"""


def bind(language, action, argument, **changes):
    return language.call(SOURCE.replace("ACTION", action), argument, **changes)[0]


def value(language, action, argument, **changes):
    return language.value(SOURCE.replace("ACTION", action), argument, **changes)


def test_functions_and_classes_are_found_by_name(language):
    argument = {"f": FunctionRef("square"), "g": FunctionRef("helper")}
    argument |= {"c": ClassRef("Model"), "i": ClassRef("Model.Inner")}
    action = "[d['f'](3), d['g'](3), d['c'] is Model, d['i'] is Model.Inner]"
    assert value(language, action, argument) == [9, 4, True, True]


def test_library_function_by_facade_name(language):
    assert value(language, "d['f'](9.0)", {"f": FunctionRef("math.sqrt")}) == 3.0


def test_instance_gets_state_without_running_its_code(language):
    model = Instance("Model", {"_w": 2, "b": [1, 2][0]})
    assert value(language, "[d['m'].predict(3), calls]", {"m": model}) == [7, []]


def test_state_never_calls_a_setter(language):
    watched = Instance("Watched", {"x": 5})
    assert value(language, "[d['w'].x, calls]", {"w": watched}) == [1, []]


def test_slots_frozen_and_nested_instances(language):
    argument = {
        "s": Instance("Slotted", {"a": Instance("Frozen", {"a": 3})}),
        "f": [Instance("Frozen", {"a": 4})],
    }
    assert value(language, "[d['s'].a.a, d['f'][0] == Frozen(4)]", argument) == [
        3,
        True,
    ]


def test_builtin_parts_are_restored(language):
    argument = {
        "l": Instance("Series", {"name": "n"}, [1, 2]),
        "t": Instance("Table", {}, {"k": 1}),
        "s": Instance("Text", {}, "abc"),
    }
    action = "[sum(d['l']), d['l'].name, d['t']['k'], d['s'].upper()]"
    assert value(language, action, argument) == [3, "n", 1, "ABC"]


def test_blob_is_read_once_referred_to(language):
    blobs = [skeleton.encode([1, 2, 3])]
    assert value(language, "sum(d['b'])", {"b": BlobRef(0)}, blobs=blobs) == 6


@pytest.mark.parametrize(
    ("node", "code"),
    [
        (FunctionRef("nothing"), "STO-G110"),
        (FunctionRef("calls"), "STO-G110"),
        (FunctionRef("square.__globals__"), "STO-G110"),
        (FunctionRef("__builtins__"), "STO-G110"),
        (ClassRef("square"), "STO-G110"),
        (ClassRef("Model.__class__"), "STO-G110"),
        (Instance("Model", {"__class__": 1}), "STO-G110"),
        (Instance("Model", {"__array_interface__": 1}), "STO-G110"),
        (Instance("Model", {"__len__": 1}), "STO-G110"),
        (Instance("Model", {"_stoilo_x": 1}), "STO-G110"),
        (Instance("Model", {}, [1]), "STO-G110"),
        (Instance("Slotted", {"b": 1}), "STO-G110"),
        (Instance("Series", {}, (1,)), "STO-G110"),
        (Instance("Series", {}, None), "STO-G110"),
        (BlobRef(0), "STO-G110"),
    ],
)
def test_reference_that_fits_nothing_is_refused(language, node, code):
    frame = bind(language, "d", {"x": node})
    assert (frame["status"], frame["code"]) == ("refused", code)


def test_blob_that_refers_to_a_blob_is_refused(language):
    frame = bind(language, "1", {"b": BlobRef(0)}, blobs=[skeleton.encode(BlobRef(0))])
    assert frame["code"] == "STO-G110"


def test_instance_of_a_library_class_is_refused(language):
    source = "from fractions import Fraction\ndef run(d): return 1"
    frame, _ = language.call(source, {"x": Instance("Fraction", {"_numerator": 1})})
    assert frame["code"] == "STO-G110"


EXTENDS = """
from pprint import PrettyPrinter
class Printer(PrettyPrinter):
    pass
def run(d):
    return d.width
"""


def test_state_sets_no_name_that_a_library_base_keeps(language):
    def bind_state(**state):
        return language.call(EXTENDS, Instance("Printer", state))[0]

    assert bind_state(width=7)["status"] == "ok"
    assert bind_state(width=7, _dispatch={})["code"] == "STO-G110"
