from io import StringIO

import pytest

from stoilo.core.codec import skeleton
from stoilo.core.codec.nodes import Instance
from stoilo.sandbox.process.validate_job import run_validator

COMPARE = "def close(a, b):\n    return abs(a - b) < 0.1"


def test_init_and_compare_give_their_verdicts(language):
    init = "def ok(x): return x > 0"
    assert language.judge(init, "init", 1)["verdict"] == "true"
    assert language.judge(init, "init", -1)["verdict"] == "false"
    assert language.judge(COMPARE, "compare", 1.0, 1.05)["verdict"] == "true"
    assert language.judge(COMPARE, "compare", 1.0, 2.0)["verdict"] == "false"


@pytest.mark.parametrize("value", ["1", "None", "'yes'", "[]", "(True,)"])
def test_anything_but_an_exact_bool_is_not_bool(language, value):
    frame = language.judge(f"def v(x): return {value}", "init", 1)
    assert frame["verdict"] == "not_bool"
    assert "not a bool" in frame["error_text"]


def test_numpy_bool_is_not_bool(numeric_language):
    source = "import numpy as np\ndef v(x): return np.bool_(True)"
    frame = numeric_language.judge(source, "init", 1)
    assert frame["verdict"] == "not_bool"
    assert "numpy.bool" in frame["error_text"]


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("def v(x): raise KeyError('k')", "KeyError: 'k'"),
        ("1 / 0\ndef v(x): return True", "ZeroDivisionError"),
        ("def v(x): return x.__class__.__mro__", "__mro__"),
        ("def v(): return True", "TypeError"),
        ("x = 1", "no function"),
    ],
)
def test_failure_is_raised_with_its_text(language, source, text):
    frame = language.judge(source, "init", 1)
    assert frame["verdict"] == "raised"
    assert text in frame["error_text"]


@pytest.mark.parametrize("op", ["init", "compare"])
def test_value_that_does_not_exist_here_is_the_volunteers_fault(language, op):
    source, strange = "def v(x, y=None): return True", [Instance("none", {})]
    values = [strange] * (1 if op == "init" else 2)
    frame = language.judge(source, op, *values)
    assert frame == {"verdict": "false", "error_text": ""}


@pytest.mark.parametrize(
    "fields",
    [
        {},
        [],
        {"source": COMPARE, "op": "compare", "entry": "", "values": []},
        {"source": COMPARE, "op": ["init"], "entry": "", "values": [b""]},
        {"source": COMPARE, "op": "init", "entry": "", "values": ["x"]},
    ],
)
def test_malformed_request_is_raised(language, fields):
    frame = run_validator(language.runtime, skeleton.encode(fields), StringIO())
    assert frame["verdict"] == "raised"
