"""Hooks of own classes: who asks them for what, and what happens without the question."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from stoilo.sandbox.language import hooks, substitutes
from stoilo.sandbox.language import hooks as groups
from stoilo.sandbox.language.rules import GUARDED_DUNDERS, NameKind, attribute_kind

ASKED = """
import queue
seen = []
class Own(@base@):
    def __init__(self):
        self.early = 1
        @init@
    def __getattr__(self, name):
        seen.append(name)
        raise AttributeError(name)
    def __setattr__(self, name, value):
        seen.append(name)
        super().__setattr__(name, value)
def run(kwargs):
    own = Own()
    for name in kwargs["names"]:
        hasattr(own, name)
    return [seen, own.early]
"""
FORGED = """
import numpy as np
class Own:
    def __getattr__(self, name):
        if name != "__array_interface__":
            raise AttributeError(name)
        return {"shape": (2,), "typestr": "|u1", "data": b"ab", "version": 3}
def run(kwargs):
    return np.asarray(Own()).shape
"""


def _admit(*_asked):
    """Stand where a question was: everything is allowed."""
    return True


NAMES = sorted(GUARDED_DUNDERS - {"__class__"})


def asked(language, base="", init="pass", names=()):
    source = ASKED.replace("@base@", base).replace("@init@", init)
    return language.value(source, {"names": list(names)})[0]


def test_own_names_reach_the_hooks(language):
    assert asked(language, names=["x", "_y"]) == ["early", "x", "_y"]


def test_what_a_library_base_uses_does_not(language):
    seen = asked(language, "queue.Queue", "super().__init__(3)", ["x"])
    assert seen == ["early", "x"]


def test_without_the_question_hooks_see_what_a_library_keeps(language, monkeypatch):
    monkeypatch.setattr(hooks, "_is_free", _admit)
    seen = asked(language, "queue.Queue", "super().__init__(3)")
    assert {"mutex", "not_empty"} <= set(seen)


def test_forged_protocol_is_never_asked_for(numeric_language, monkeypatch):
    assert numeric_language.value(FORGED) == ()
    monkeypatch.setattr(hooks, "_is_free", _admit)
    assert numeric_language.value(FORGED) == (2,)  # the control


class Text(str):
    __slots__ = ()


@given(st.one_of(st.sampled_from(NAMES), st.text("_ax", max_size=8)))
def test_free_names_are_those_that_a_source_spells(name):
    class Own:
        __module__ = "stoilo_task"

    free = hooks._is_free(Own, name)
    dunder = len(name) > 4 and name.startswith("__") and name.endswith("__")
    assert free == (attribute_kind(name) is not NameKind.REFUSED and not dunder)
    assert not hooks._is_free(Own, Text(name))


ARRAYS = """
import numpy as np
class Own:
    def __init__(self, made):
        self.made = made
    def __array__(self, dtype=None, copy=None):
        return self.made
def run(kwargs):
    found = []
    for made in (np.ones(2), [1], np.float64(1), np.ma.ones(2), None, "a"):
        try:
            found.append(np.asarray(Own(made)).tolist())
        except ValueError as error:
            found.append("refused")
    return found
"""


def test_array_method_gives_arrays_only(numeric_language):
    assert numeric_language.value(ARRAYS) == [[1.0, 1.0]] + 5 * ["refused"]


def test_numpy_itself_takes_more_than_arrays():
    class Own:
        def __array__(self, dtype=None, copy=None):
            return np.ma.ones(2)

    assert np.asarray(Own()).tolist() == [1.0, 1.0]


STORED = """
class Own: pass
def run(kwargs):
    own = Own()
    vars(own).update({kwargs["name"]: 1})
    return [sorted(vars(own)), own.__dict__ == {kwargs["name"]: 1}]
"""


@given(st.one_of(st.sampled_from(NAMES), st.text("_ax", min_size=1, max_size=8)))
def test_dictionary_takes_the_names_that_a_source_spells(name):
    real = {"kept": 1, "__hidden__": 2}
    shown = substitutes.InstanceDict(real)
    assert dict(shown) == shown.copy() == {"kept": 1}
    try:
        shown[name] = 3
    except Exception as error:  # noqa: BLE001 - its code is what counts
        assert error.code == "STO-G102"
        assert real == {"kept": 1, "__hidden__": 2}
    else:
        assert attribute_kind(name) is not NameKind.REFUSED
        assert real[name] == shown[name] == 3


def test_dictionary_without_the_rule_takes_everything(language, monkeypatch):
    name = {"name": "__array_interface__"}
    assert language.call(STORED, name)[0]["code"] == "STO-G102"
    monkeypatch.setattr(substitutes, "_is_spelled", _admit)
    assert language.value(STORED, name) == [["__array_interface__"], True]


GROUP = """
class Group(ExceptionGroup):
    def split(self, kind):
        return (ExceptionGroup("forged", [ValueError()]), None)
def run(kwargs):
    word = ""
    try:
        raise Group("x", [ValueError()])
    except* ValueError as found:
        word = found.message
    return word
"""


def test_group_with_its_own_split_is_not_handled(language):
    frame, _ = language.call(GROUP)
    assert (frame["status"], frame["code"]) == ("refused", "STO-G105")


def test_without_the_look_at_the_group_its_split_is_believed(language, monkeypatch):
    monkeypatch.setattr(groups, "_is_plain", _admit)
    assert language.value(GROUP) == "forged"
