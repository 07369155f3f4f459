"""The command line's JSON forms."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoilo.core.codec.json_values import parse_json_value, render_json_value
from stoilo.core.codec.nodes import FunctionRef, Instance, Ndarray
from stoilo.core.codec.skeleton import encode
from stoilo.core.errors import UsageError
from tests.support.strategies import arrays, plain_values


def has_nan_token(text):
    return any(token in text for token in ("NaN", "Infinity"))


@given(plain_values | arrays())
def test_value_survives_json(value):
    text = json.dumps(render_json_value(value), allow_nan=False)
    back = parse_json_value(text)
    assert render_json_value(back) == render_json_value(value)


@given(st.text(max_size=60) | st.binary(max_size=60))
def test_any_text_ends_in_a_value_or_a_usage_error(text):
    try:
        encode(parse_json_value(text))
    except UsageError as error:
        assert error.code.startswith("STO-D")


@pytest.mark.parametrize(
    ("value", "form"),
    [
        ((1, 2), {"$tuple": [1, 2]}),
        ({3}, {"$set": [3]}),
        (frozenset({3}), {"$frozenset": [3]}),
        (b"hi", {"$bytes": "aGk="}),
        (1 + 2j, {"$complex": [1.0, 2.0]}),
        (float("nan"), {"$float": "nan"}),
        (float("-inf"), {"$float": "-inf"}),
        (2**53 + 1, {"$int": "9007199254740993"}),
        ({1: 2}, {"$dict": [[1, 2]]}),
        ({"$a": 1}, {"$dict": [["$a", 1]]}),
        ({"a": [None, True]}, {"a": [None, True]}),
    ],
)
def test_each_form_is_as_documented(value, form):
    assert render_json_value(value) == form


def test_ndarray_takes_nested_lists_or_base64():
    lists = '{"$ndarray": {"dtype": "float64", "shape": [2, 1], "data": [[1.0], [2]]}}'
    node = parse_json_value(lists)
    assert node == Ndarray("float64", (2, 1), node.data)
    assert parse_json_value(json.dumps(render_json_value(node))) == node


@pytest.mark.parametrize(
    "text",
    [
        "NaN",
        '{"a": 1, "a": 2}',
        '{"$unknown": 1}',
        '{"$int": "1_0"}',
        '{"$float": "1.0"}',
        '{"$bytes": "?"}',
        '{"$set": [[1]]}',
        '{"$set": [1, 1]}',
        '{"$dict": [[1]]}',
        '{"$ndarray": {"dtype": "object", "shape": [1], "data": "AA=="}}',
        '{"$ndarray": {"dtype": "int8", "shape": [1], "data": [300]}}',
        '{"$ndarray": {"dtype": "int8", "shape": [2], "data": [1]}}',
        "[" * 100_000,
        "{",
        "",
    ],
)
def test_bad_json_is_a_usage_error(text):
    with pytest.raises(UsageError):
        parse_json_value(text)


def test_reference_has_no_json_form():
    with pytest.raises(UsageError, match="STO-D009"):
        render_json_value([FunctionRef("f")])


def test_value_of_a_described_library_survives_json():
    node = Instance("pandas.Series", {"data": (1, 2), "name": None})
    form = render_json_value(node)
    assert form["$library"]["type"] == "pandas.Series"
    assert parse_json_value(json.dumps(form)) == node


@pytest.mark.parametrize("name", ["os.system", "pandas.io", "Own", ""])
def test_library_form_names_what_a_library_lists_only(name):
    text = json.dumps({"$library": {"type": name, "state": {}}})
    with pytest.raises(UsageError, match="STO-D009"):
        parse_json_value(text)
