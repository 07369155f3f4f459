"""pandas values as nodes: they come back as they were, and forged ones are refused."""

import datetime as dt

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoilo.core.codec import skeleton
from stoilo.core.codec.nodes import Instance, Ndarray, from_node, to_node
from stoilo.core.errors import TrustError, UsageError


def travel(value):
    return from_node(skeleton.decode(skeleton.encode(to_node(value))))


DATES = pd.date_range("2024-03-30", periods=4, freq="D", tz="Europe/Berlin")
COLUMNS = {
    "int8": pd.Series([1, -2, 3], dtype="int8"),
    "uint64": pd.Series([1, 2**63], dtype="uint64"),
    "float32": pd.Series([1.5, np.nan], dtype="float32"),
    "complex": pd.Series([1 + 2j, 0]),
    "bool": pd.Series([True, False]),
    "Int64": pd.Series([1, None, 3], dtype="Int64"),
    "UInt8": pd.Series([1, None, 255], dtype="UInt8"),
    "Float32": pd.Series([1.5, None], dtype="Float32"),
    "boolean": pd.Series([True, None], dtype="boolean"),
    "str": pd.Series(["ä", "", None, "bcd"]),
    "string": pd.Series(["ä", pd.NA, "bcd"], dtype="string"),
    "category": pd.Series(["b", None, "a"], dtype="category"),
    "ordered": pd.Series(pd.Categorical([1, 3], [3, 2, 1], ordered=True)),
    "naive": pd.Series(pd.to_datetime(["2024-01-01 12:30", None])),
    "seconds": pd.Series(pd.to_datetime(["1700-01-01"])).astype("datetime64[s]"),
    "zoned": pd.Series(DATES),
    "fixed": pd.Series(DATES.tz_convert("+05:30")),
    "utc": pd.Series(DATES.tz_convert("UTC")),
    "span": pd.Series(pd.to_timedelta([90, None], unit="s")),
    "period": pd.Series(pd.period_range("2024-01", periods=3, freq="M")),
    "interval": pd.Series(pd.interval_range(0.0, 3.0)),
    "sparse": pd.Series(pd.arrays.SparseArray([0, 0, 5, 0])),
    "object": pd.Series([1, "a", None, [1, 2], pd.Timestamp(0), (3,)], dtype=object),
    "empty": pd.Series([], dtype="float64"),
    "no text": pd.Series([], dtype="str"),
}
INDEXES = {
    "numbers": pd.Index([3, 1, 2], name="n"),
    "floats": pd.Index([0.5, np.nan]),
    "text": pd.Index(["a", "b", "a"], name=("x", 1)),
    "objects": pd.Index([1, "a", (2, 3)], dtype=object),
    "range": pd.RangeIndex(2, 20, 3, name="r"),
    "dates": DATES,
    "irregular": pd.DatetimeIndex(["2024-01-01", "2024-01-05"]),
    "spans": pd.timedelta_range("1h", periods=3, freq="90min"),
    "periods": pd.period_range("2024Q1", periods=3, freq="Q-NOV", name="q"),
    "categories": pd.CategoricalIndex(["a", "b", "a"], ordered=True),
    "intervals": pd.interval_range(
        pd.Timestamp("2024-01-01"), periods=2, closed="left"
    ),
    "levels": pd.MultiIndex.from_product([["a", "b"], [1, 2]], names=["k", None]),
    "masked": pd.Index([1, None], dtype="Int64"),
}
SCALARS = [
    pd.Timestamp("2024-10-27 01:30", tz="UTC").tz_convert("Europe/Berlin"),
    pd.Timestamp("1500-01-01").as_unit("s"),
    pd.Timedelta("1 days 00:00:00.000000001"),
    pd.Period("2024-02", "M"),
    pd.Interval(0, 1.5, closed="both"),
]


@pytest.mark.parametrize("series", COLUMNS.values(), ids=COLUMNS)
def test_series_of_each_dtype_comes_back(series):
    pd.testing.assert_series_equal(travel(series), series)


@pytest.mark.parametrize("index", INDEXES.values(), ids=INDEXES)
def test_index_of_each_kind_comes_back(index):
    came = travel(index)
    pd.testing.assert_index_equal(came, index, exact=True)
    assert getattr(came, "freq", None) == getattr(index, "freq", None)


@pytest.mark.parametrize("index", INDEXES.values(), ids=INDEXES)
def test_frame_keeps_columns_and_rows_of_each_kind(index):
    frame = pd.DataFrame(np.arange(len(index) * 2.0).reshape(-1, 2), index=index)
    pd.testing.assert_frame_equal(travel(frame), frame)
    pd.testing.assert_frame_equal(travel(frame.T), frame.T)


@pytest.mark.parametrize("value", SCALARS, ids=str)
def test_scalar_comes_back_with_its_unit_and_zone(value):
    came = travel(value)
    assert type(came) is type(value)
    assert came == value
    assert repr(came) == repr(value)
    assert getattr(came, "unit", "") == getattr(value, "unit", "")


def test_nothing_comes_back_as_the_very_nothing():
    assert travel(pd.NaT) is pd.NaT
    assert travel(pd.NA) is pd.NA


@pytest.mark.parametrize(
    "frame",
    [
        pd.DataFrame(),
        pd.DataFrame(index=[1, 2]),
        pd.DataFrame({"a": []}),
        pd.DataFrame([[1, "x"], [2, "y"]], columns=["a", "a"]),
        pd.DataFrame({"a": [1], 2: ["b"], None: [True]}),
    ],
)
def test_odd_frame_comes_back(frame):
    pd.testing.assert_frame_equal(travel(frame), frame)


def test_frame_that_arrives_is_writable_and_its_own():
    came = travel(pd.DataFrame({"a": [1.0, 2.0], "b": ["x", "y"]}))
    came.loc[0, "a"] = 7.0
    came["a"] += 1
    assert came["a"].tolist() == [8.0, 3.0]


def test_columns_of_one_dtype_are_views_of_the_sender():
    frame = pd.DataFrame({name: np.arange(1000.0) for name in "abc"})
    columns = to_node(frame).state["data"]
    sent = [np.frombuffer(column.data) for column in columns]
    owned = frame._mgr.blocks[0].values  # noqa: PD011 - a block, no frame
    assert all(np.shares_memory(column, owned) for column in sent)


CELLS = st.one_of(st.integers(-(2**40), 2**40), st.floats(), st.text(max_size=5))
FRAMES = st.lists(
    st.tuples(st.text(max_size=3), st.lists(CELLS, min_size=3, max_size=3)), max_size=4
)


@given(FRAMES)
def test_any_frame_comes_back(columns):
    frame = pd.DataFrame(dict(enumerate(cells for _, cells in columns)))
    frame.columns = [name for name, _ in columns]
    pd.testing.assert_frame_equal(travel(frame), frame)
    again = skeleton.encode(to_node(travel(frame)))
    assert again == skeleton.encode(to_node(frame))


class Foreign:
    pass


@pytest.mark.parametrize(
    ("value", "named"),
    [
        (pd.DataFrame({"bad": [Foreign()]}), "column 'bad'"),
        (pd.Series([Foreign()], name="bad"), "series 'bad'"),
        (pd.DataFrame({"a": [1]}, index=[Foreign()]), "the index"),
        (pd.DataFrame(columns=[Foreign()]), "column names"),
    ],
)
def test_error_names_the_column_that_cannot_travel(value, named):
    with pytest.raises(UsageError, match=named) as caught:
        to_node(value)
    assert caught.value.code == "STO-D001"


def test_attrs_flags_and_custom_calendars_are_refused_by_name():
    marked = pd.Series([1])
    marked.attrs["source"] = "here"
    rule = pd.offsets.CustomBusinessDay(holidays=["2024-01-01"])
    for value, named in (
        (marked, "attrs"),
        (pd.Series([1]).set_flags(allows_duplicate_labels=False), "duplicate"),
        (pd.date_range("2024-01-02", periods=3, freq=rule), "frequency"),
    ):
        with pytest.raises(UsageError, match=named):
            to_node(value)


def numbers(*values, dtype="int64"):
    return to_node(np.array(values, dtype=dtype))


ROWS = to_node(pd.RangeIndex(2))
CATEGORIES = to_node(pd.Index(["a", "b"]))
FORGED = {
    "code beyond its categories": ("category", numbers(0, 2), CATEGORIES, False),
    "code below none": ("category", numbers(-2, 0), CATEGORIES, False),
    "categories that are no index": ("category", numbers(0, 1), [1, 2], False),
    "mask of another length": (
        "masked",
        "Int64",
        numbers(1, 2),
        numbers(1, dtype="bool"),
    ),
    "mask of numbers": ("masked", "Int64", numbers(1, 2), numbers(0, 1)),
    "masked dtype that is code": ("masked", "__class__", numbers(1, 2), numbers(0, 1)),
    "column too short": numbers(1),
    "column in two dimensions": to_node(np.zeros((2, 1))),
    "text cut short": ("str", "nan", "abc", numbers(2, 2)),
    "text left over": ("str", "nan", "abc", numbers(1, 1)),
    "negative length": ("str", "nan", "abc", numbers(5, -2)),
    "unknown missing value": ("str", "none", "ab", numbers(1, 1)),
    "unknown kind": ("pickle", b""),
    "no kind": (),
    "sparse place beyond the end": ("sparse", 2, numbers(5), numbers(1), 0),
    "sparse places out of order": ("sparse", 2, numbers(1, 0), numbers(1, 2), 0),
    "sparse values missing": ("sparse", 2, numbers(0, 1), numbers(1), 0),
    "zone that is a path": ("zoned", numbers(0, 1, dtype="M8[s]"), "../../etc/passwd"),
    "zone that is a folder": ("zoned", numbers(0, 1, dtype="M8[s]"), "America"),
    "zone beyond a day": ("zoned", numbers(0, 1, dtype="M8[s]"), 10**9),
    "interval backwards": ("interval", "right", numbers(5, 6), numbers(1, 2)),
    "frequency that is no word": ("period", "M;import os", numbers(1, 2)),
    "objects that are no list": ("object", "ab"),
}


@pytest.mark.parametrize("column", FORGED.values(), ids=FORGED)
def test_forged_column_is_refused(column):
    state = {"data": column, "index": ROWS, "name": None}
    with pytest.raises(TrustError) as caught:
        from_node(Instance("pandas.Series", state))
    assert caught.value.code == "STO-D002"


LEVELS = [to_node(pd.Index(["a", "b"]))]


@pytest.mark.parametrize(
    ("name", "state"),
    [
        ("pandas.DataFrame", {"data": []}),
        ("pandas.DataFrame", {"data": [1], "index": ROWS, "columns": ROWS, "more": 1}),
        ("pandas.DataFrame", {"data": [], "index": 3, "columns": ROWS}),
        (
            "pandas.MultiIndex",
            {"levels": LEVELS, "codes": [numbers(7)], "names": [None]},
        ),
        ("pandas.MultiIndex", {"levels": LEVELS, "codes": [], "names": [None]}),
        ("pandas.RangeIndex", {"start": 0, "stop": 2**70, "step": 1, "name": None}),
        ("pandas.RangeIndex", {"start": 0, "stop": 1, "step": 0, "name": None}),
        ("pandas.Index", {"data": numbers(1), "name": [1]}),
        ("pandas.Period", {"ordinal": 2**70, "freq": "D"}),
        ("pandas.Timestamp", {"moment": "now", "zone": None}),
        ("pandas.Interval", {"left": 2, "right": 1, "closed": "right"}),
    ],
)
def test_forged_value_is_refused(name, state):
    with pytest.raises(TrustError) as caught:
        from_node(Instance(name, state))
    assert caught.value.code == "STO-D002"


NODES = st.recursive(
    st.none() | st.integers() | st.text(max_size=3) | st.builds(lambda: numbers(0, 1)),
    lambda inner: st.lists(inner, max_size=3) | st.lists(inner, max_size=4).map(tuple),
    max_leaves=6,
)


@given(NODES, st.sampled_from(["str", "masked", "category", "sparse", "object"]))
def test_any_node_is_a_column_or_refused(parts, kind):
    given_parts = parts if isinstance(parts, tuple) else (parts,)
    state = {"data": (kind, *given_parts), "index": ROWS, "name": None}
    try:
        from_node(Instance("pandas.Series", state))
    except TrustError as error:
        assert error.code in {"STO-D002", "STO-D011"}


def test_zone_of_another_library_is_refused():
    class Zone(dt.tzinfo):
        def utcoffset(self, _moment):
            return dt.timedelta(hours=1)

        def dst(self, _moment):
            return None

    with pytest.raises(UsageError, match="time zone"):
        to_node(pd.Timestamp("2024-01-01", tz=Zone()))


def test_another_class_of_pandas_does_not_travel():
    assert isinstance(numbers(1), Ndarray)
    with pytest.raises(UsageError):
        to_node(pd.Series([1, 1]).groupby(level=0))
