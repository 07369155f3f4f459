"""The façade's assertions against the library's own."""

import subprocess
import sys

import numpy as np
import pytest

from stoilo.sandbox.facades.assertions import FACADES

OURS = FACADES["numpy.testing"]
NAN, INF = float("nan"), float("inf")
PAIRS = [
    (1.0, 1.0),
    (1.0, 1.0 + 1e-9),
    (1.0, 1.001),
    (123.456, 123.4567),
    (0.0, 0.0),
    (NAN, NAN),
    (NAN, 1.0),
    (INF, INF),
    (INF, -INF),
    ([1, 2, 3], [1, 2, 3]),
    ([1, 2, 3], [1, 2, 4]),
    ([1, 2], [1, 2, 3]),
    ([1.0, NAN], [1.0, NAN]),
    ([[1, 2], [3, 4]], [[1, 2], [3, 4]]),
    ([1, 1], 1),
    ([1, 2], [2, 3]),
]
SCALAR_ONLY = {"assert_approx_equal"}


CASES = [
    (name, pair)
    for name in sorted(set(OURS) - {"assert_"})
    for pair in PAIRS
    if not (name in SCALAR_ONLY and isinstance(pair[0], list))
]


def fails(function, *values):
    try:
        function(*values)
    except AssertionError:
        return True
    return False


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")  # the library's
@pytest.mark.parametrize(("name", "pair"), CASES, ids=repr)
def test_assertion_fails_where_the_library_fails(name, pair):
    theirs = getattr(np.testing, name)
    assert fails(OURS[name], *pair) == fails(theirs, *pair)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ({"a": [1, 2]}, {"a": [1, 2]}),
        ({"a": 1}, {"b": 1}),
        ({"a": (1, 2)}, {"a": (1, 3)}),
        ("x", "x"),
        ("x", "y"),
        ([], []),
    ],
)
def test_equality_of_containers_is_the_librarys(left, right):
    theirs = fails(np.testing.assert_equal, left, right)
    assert fails(OURS["assert_equal"], left, right) == theirs


def test_strict_comparison_sees_types():
    left, right = np.zeros(2, "f4"), np.zeros(2, "f8")
    with pytest.raises(AssertionError):
        OURS["assert_array_equal"](left, right, strict=True)


def test_message_names_both_and_the_callers_words():
    with pytest.raises(AssertionError, match=r"(?s)my words.*array\(1\).*array\(2\)"):
        OURS["assert_equal"](1, 2, "my words")


def test_facades_do_not_load_the_test_tools():

    script = (
        "import sys\n"
        "from stoilo.policies.levels import load_level\n"
        "from stoilo.sandbox.language.runtime import build_facades\n"
        "build_facades(load_level('numeric'))\n"
        "print({'unittest', 'subprocess', 'numpy.testing'} & set(sys.modules))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "set()"
