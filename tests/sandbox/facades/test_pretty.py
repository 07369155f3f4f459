import json
import pprint

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoilo.sandbox.facades.pretty import PrettyPrinter
from stoilo.sandbox.language.refusals import GuardError

DATA = st.recursive(
    st.integers() | st.text(max_size=5) | st.none(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=5), inner),
)


@given(DATA, st.integers(1, 60))
def test_text_is_the_librarys(value, width):
    assert PrettyPrinter(width=width).pformat(value) == pprint.pformat(
        value, width=width
    )


def test_own_methods_are_shown_no_address():
    seen = []

    class Own(PrettyPrinter):
        def format(self, value, context, *_levels):
            seen.append(context)
            return repr(value), True, False

    Own(width=5).pformat([[1, [2, 3]], [4, 5]])
    Own().isreadable([1])
    assert seen
    assert not any(hasattr(context, "__iter__") and list(context) for context in seen)


def test_dictionary_of_a_caller_stays_empty():
    context = {}

    class Spy:
        def __repr__(self):
            return str(len(context))

    assert PrettyPrinter().format([Spy()], context, 0, 0)[0] == "[0]"


def test_loop_is_recognised():
    loop = []
    loop.append(loop)
    assert "Recursion" in PrettyPrinter().pformat(loop)
    assert not PrettyPrinter().isreadable(loop)


@pytest.mark.usefixtures("runtimes")
def test_text_is_no_printer():
    method, text = PrettyPrinter.isrecursive, "--{0.__globals__[__name__]}"
    assert method.__wrapped__(text, json.dumps) == "j"  # the library's own reads it
    with pytest.raises(GuardError):
        method(text, json.dumps)
