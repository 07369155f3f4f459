import operator
import types

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoilo.sandbox.facades.functions import FACADES
from stoilo.sandbox.language.rules import GuardError, NameKind, attribute_kind

attrgetter, methodcaller = (
    FACADES["operator"][name] for name in ("attrgetter", "methodcaller")
)
NAMES = st.from_regex(r"_{0,2}[a-z]{1,8}_{0,2}", fullmatch=True) | st.sampled_from(
    ["__class__", "__globals__", "f_back", "gi_frame", "format", "tofile", "_x", "real"]
)


@given(st.lists(NAMES, min_size=1, max_size=3))
def test_getter_takes_exactly_the_names_that_compile_to_direct_access(names):
    plain = all(attribute_kind(name) is NameKind.PLAIN for name in names)
    try:
        attrgetter(".".join(names))
        taken = True
    except GuardError as error:
        assert error.code == "STO-G101"
        taken = False
    assert taken == plain


@given(NAMES)
def test_caller_takes_exactly_the_names_that_compile_to_direct_access(name):
    try:
        methodcaller(name)
        taken = True
    except GuardError:
        taken = False
    assert taken == (attribute_kind(name) is NameKind.PLAIN)


@pytest.mark.parametrize("make", [attrgetter, methodcaller])
def test_text_of_another_class_is_no_name(make):
    with pytest.raises(TypeError):
        make(type("Name", (str,), {})("real"))


def test_getters_answer_as_operators_do():
    point = types.SimpleNamespace(x=1, inner=types.SimpleNamespace(y=2))
    names = ("x", "inner.y")
    assert attrgetter(*names)(point) == operator.attrgetter(*names)(point) == (1, 2)
    assert methodcaller("split", sep=",")("a,b") == ["a", "b"]
