"""A library's method works on instances of its own class, whoever reads it off a class."""

import collections
import functools
import inspect
import types

import numpy as np
import pytest

from stoilo.sandbox.language.hardening import (
    bind_receivers,
    classes_with_bases,
    is_bound,
    replace_member,
    trusting_methods,
)
from stoilo.sandbox.language.ownership import class_dict, kept_names
from stoilo.sandbox.language.rules import GuardError
from stoilo.sandbox.language.substitutes import hide_class

pytestmark = pytest.mark.usefixtures("runtimes")


class Foreign:
    """A class as ``self``: what asks for its class is given the real ``type``."""

    maps = ((), {})
    data = int


ROOTS = [
    (collections.UserList.copy, (int,), type),
    (collections.Counter.copy, (int,), type),
    (collections.ChainMap.new_child, (Foreign, "Built"), None),
]


def raw(function):
    return function.__wrapped__ if is_bound(function) else function


class Liar:
    """Says it is whatever was asked for."""

    def __init__(self, cls):
        self.cls = cls

    @property
    def __class__(self):
        return self.cls


@pytest.fixture
def library():
    """A fresh class with a function in every kind of member."""

    class Library:
        def plain(self, a, /, b=2, *c, d=4, **e):
            return (a, b, c, d, e)

        def bare(*args):
            return args[1:]

        @property
        def shown(self):
            return self._hidden

        @shown.setter
        def shown(self, value):
            self._hidden = value

        @functools.cached_property
        def cached(self):
            return 7

        @classmethod
        def made(cls):
            return cls

        @staticmethod
        def free(value):
            return value

    return Library


@pytest.mark.parametrize(("method", "values", "given"), ROOTS)
def test_root_hands_out_the_real_type_only_without_the_check(method, values, given):
    found = raw(method)(*values)
    assert found is given or (given is None and found.__name__ == "Built")
    owner = getattr(collections, method.__qualname__.partition(".")[0])
    with pytest.raises(GuardError, match="STO-G108"):
        getattr(owner, method.__name__)(*values)


@pytest.mark.parametrize("level", ["pure", "numeric"])
def test_no_class_that_is_handed_out_has_a_trusting_method(runtimes, level):
    classes = classes_with_bases(runtimes[level].facades.modules.values())
    assert len(classes) > 200
    assert {
        cls.__name__: found for cls in classes if (found := trusting_methods(cls))
    } == {}


def test_class_that_is_not_bound_yet_is_found(library):
    assert trusting_methods(library) == ["plain", "bare", "shown", "cached"]
    bind_receivers([library])
    assert trusting_methods(library) == []


@pytest.mark.parametrize("foreign", [3, int, len, Liar])
def test_every_kind_of_member_refuses_what_is_no_instance(library, foreign):
    bind_receivers([library])
    foreign = Liar(library) if foreign is Liar else foreign
    plain = functools.partial(library.plain, foreign, 1)
    given = (library.bare, library.shown.fget, library.cached.func)
    calls = [plain, *(functools.partial(call, foreign) for call in given)]
    for call in calls:
        with pytest.raises(GuardError, match="STO-G108"):
            call()
    with pytest.raises(GuardError, match="STO-G108"):
        library.shown.fset(foreign, 1)


def test_lying_class_fools_isinstance_which_is_not_asked(library):
    assert isinstance(Liar(library), library)


def test_class_that_equals_the_owner_is_not_the_owner(library):
    stand_in = hide_class(library)
    bind_receivers([library])
    assert stand_in == library
    with pytest.raises(GuardError):
        library.plain(object.__new__(stand_in), 1)


def test_instances_do_what_they_did(library):
    before, below = library(), type("Below", (library,), {})()
    calls = [((1,), {}), ((1, 3, 5), {"d": 6, "x": 7}), ((1,), {"b": 8})]
    expected = [before.plain(*args, **named) for args, named in calls]
    bind_receivers([library])
    for receiver in (before, below):
        assert [receiver.plain(*a, **n) for a, n in calls] == expected
        assert library.plain(receiver, 1) == expected[0]
        receiver.shown = 5
        assert (receiver.shown, receiver.cached, receiver.bare(1)) == (5, 7, (1,))
    with pytest.raises(TypeError):
        before.plain()


def test_signature_name_and_attributes_stay(library):
    library.plain.note = 1
    before = inspect.signature(library.plain)
    bind_receivers([library])
    bound = library.plain
    assert (bound.__name__, bound.note, inspect.signature(bound)) == (
        "plain",
        1,
        before,
    )
    names = bound.__code__.co_varnames[: bound.__code__.co_argcount]
    assert names == ("self", "a", "b")


def test_binding_twice_is_binding_once(library):
    bind_receivers([library])
    first = dict(class_dict(library))
    bind_receivers([library])
    assert first == dict(class_dict(library))


def test_names_that_methods_use_stay_the_librarys(library):
    bind_receivers([library])
    assert "_hidden" in kept_names(library)


def test_methods_of_a_class_in_c_are_replaced_too():
    counted = collections.deque.count
    replace_member(collections.deque, "count", lambda self, x: (self, x))
    try:
        assert collections.deque([1]).count(1)[1] == 1
    finally:
        replace_member(collections.deque, "count", counted)
    assert collections.deque([1]).count(1) == 1


def test_constructor_of_an_exception_writes_into_its_own_instances_only():
    init = np.exceptions.AxisError.__init__
    taken = Foreign()
    raw(init)(taken, 1, 2)
    assert taken.axis == 1
    with pytest.raises(GuardError):
        init(Foreign(), 1, 2)
    assert np.exceptions.AxisError(1, 2).axis == 1


def test_alias_of_typing_leads_to_bound_methods(runtimes):
    narrow = types.ModuleType("narrow")
    narrow.Alias = runtimes["pure"].facades.modules["typing"].ChainMap
    assert collections.ChainMap in classes_with_bases([narrow])


def test_honest_unbound_calls_work(language):
    source = """
from collections import Counter, UserList
from statistics import NormalDist

class Own(UserList):
    def copy(self):
        return UserList.copy(self)

def run(kwargs):
    mean = NormalDist.mean
    return [type(Own([1]).copy()).__name__, sum(map(Counter.total, [Counter("ab")]))]
"""
    assert language.value(source) == ["Own", 2]


def test_adopted_property_refuses_the_class_that_adopted_it(language):
    source = """
from statistics import NormalDist

class Own:
    mean = NormalDist.mean
    def __init__(self):
        self._mu = "mine"

def run(kwargs):
    return Own().mean
"""
    frame, _ = language.call(source)
    assert frame["code"] == "STO-G108"
