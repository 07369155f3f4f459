"""pandas values as nodes and back: frames, series, indexes, scalars of time and of nothing.

A frame is its columns, each with its dtype; numbers, dates and flags are arrays of the
skeleton, text is one long text with the length of each piece. A *column* is a node:

    Ndarray                                    numbers, flags, naive dates and time spans
    ("object", [node, …])                      anything that travels by itself
    ("str", na, text, lengths)                 pieces of text; length -1 where one is missing
    ("masked", dtype, values, mask)            Int64 and kin, Float64 and kin, boolean
    ("category", codes, categories, ordered)   categories are the node of an index
    ("zoned", moments in UTC, zone)            zone: name of the time zone, or s east of UTC
    ("period", frequency, ordinals)
    ("interval", closed, left, right)          two columns
    ("sparse", length, places, values, fill)   values are a column

`from_node` (`stoilo.core.codec.frame_reading`) calls constructors of pandas that check what
they get, and looks first at what they do not check. Trust: nodes are hostile.
"""

from __future__ import annotations

import datetime as dt
import functools
import importlib
from typing import TYPE_CHECKING, Any

from stoilo.core.codec.frame_reading import (
    FREQUENCY,
    MASKED,
    NUMERIC,
    from_node,
    load_pandas,
)
from stoilo.core.codec.nodes import Instance, Node
from stoilo.core.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable


__all__ = ["from_node", "to_node"]

_HINT = "send numbers, text, dates and plain values; make other objects in the function"


def _refuse(what: str, hint: str = "") -> UsageError:
    return UsageError("STO-D001", f"{what} does not travel", hint=hint)


# To nodes -----------------------------------------------------------------------------


def to_node(value: Any, name: str, convert: Callable[[object], Node]) -> Instance:  # noqa: ANN401
    """Return the node of `value`, whose class is listed as `name`.

    Raises:
        UsageError: ``STO-D001``, what it holds does not travel; it names the column.
    """
    return Instance(name, _STATES[name](value, convert))


def _frame_state(frame: Any, convert: Callable[[object], Node]) -> dict[str, Node]:  # noqa: ANN401
    _check_extras(frame)
    names = list(frame.columns)
    column = functools.partial(_column, convert=convert)
    columns = [
        _named(f"column {names[place]!r:.60}", column, frame.iloc[:, place].array)
        for place in range(len(names))
    ]
    return {
        "data": columns,
        "index": _named("the index", convert, frame.index),
        "columns": _named("the row of column names", convert, frame.columns),
    }


def _series_state(series: Any, convert: Callable[[object], Node]) -> dict[str, Node]:  # noqa: ANN401
    _check_extras(series)
    column = functools.partial(_column, convert=convert)
    return {
        "data": _named(f"series {series.name!r:.60}", column, series.array),
        "index": _named("the index", convert, series.index),
        "name": convert(series.name),
    }


def _check_extras(value: Any) -> None:  # noqa: ANN401
    if value.attrs:
        raise _refuse("what stands in attrs", "send it beside the frame, clear attrs")
    if not value._flags.allows_duplicate_labels:  # noqa: SLF001 - `flags` is closed to tasks
        raise _refuse(
            "the flag allows_duplicate_labels=False", "set it in the function"
        )


def _named(place: str, convert: Callable[[Any], Node], part: object) -> Node:
    """Return the node of `part`; what does not travel is said to be at `place`."""
    try:
        return convert(part)
    except UsageError as error:
        message = f"{place} cannot travel: {error.message}"
        raise UsageError(error.code, message, hint=error.hint or _HINT) from None


def _column(array: Any, convert: Callable[[object], Node]) -> Node:  # noqa: ANN401
    """Return the column of `array`, an extension array of pandas."""
    kind = type(array).__name__
    if kind in _COLUMNS:
        return _COLUMNS[kind](array, convert)
    dtype = array.dtype
    if MASKED.match(str(dtype)) and kind != "ArrowExtensionArray":
        numbers = array.to_numpy(dtype.numpy_dtype, na_value=dtype.type(0))
        return ("masked", dtype.name, convert(numbers), convert(array.isna()))
    if dtype.kind not in NUMERIC or kind == "ArrowExtensionArray":
        raise _refuse(f"dtype {dtype!s:.40}", "convert it with astype()")
    return convert(array.to_numpy())


def _object_column(array: Any, convert: Callable[[object], Node]) -> Node:  # noqa: ANN401
    values = array.to_numpy()
    if values.dtype.kind != "O":
        return convert(values)
    return ("object", [convert(item) for item in values])


def _text_column(array: Any, convert: Callable[[object], Node]) -> Node:  # noqa: ANN401
    np = importlib.import_module("numpy")
    missing = array.isna()
    pieces = ["" if none else item for item, none in zip(array, missing, strict=True)]
    if not frozenset({str}).issuperset(map(type, pieces)):
        raise _refuse("text of a class of your own")
    lengths = np.fromiter(map(len, pieces), np.int64, len(pieces))
    lengths[missing] = -1
    is_nan = array.dtype.na_value is not load_pandas().NA
    return ("str", "nan" if is_nan else "NA", "".join(pieces), convert(lengths))


def _date_column(array: Any, convert: Callable[[object], Node]) -> Node:  # noqa: ANN401
    zone = getattr(array.dtype, "tz", None)
    # UTC numbers: what a naive array of the same numbers shows
    moments = array.asi8.view(f"{array.dtype.kind}8[{array.unit}]")
    return (
        convert(moments) if zone is None else ("zoned", convert(moments), _zone(zone))
    )


def _zone(zone: object) -> str | int:
    if type(zone) is dt.timezone:
        return round(zone.utcoffset(None).total_seconds())
    key = getattr(zone, "key", None)
    if type(zone).__module__.startswith("zoneinfo") and isinstance(key, str):
        return key
    raise _refuse(f"a time zone of {type(zone).__module__}", "use the zone's name")


def _category_column(array: Any, convert: Callable[[object], Node]) -> Node:  # noqa: ANN401
    categories = convert(array.categories)
    return ("category", convert(array.codes), categories, bool(array.ordered))


def _period_column(array: Any, convert: Callable[[object], Node]) -> Node:  # noqa: ANN401
    return ("period", _period_frequency(array), convert(array.asi8))


def _interval_column(array: Any, convert: Callable[[object], Node]) -> Node:  # noqa: ANN401
    ends = (_column(side.array, convert) for side in (array.left, array.right))
    return ("interval", array.closed, *ends)


def _sparse_column(array: Any, convert: Callable[[object], Node]) -> Node:  # noqa: ANN401
    places = array.sp_index.indices
    values = convert(array.sp_values)
    fill = convert(array.fill_value)
    return ("sparse", len(array), convert(places), values, fill)


def _frequency(offset: Any) -> str:  # noqa: ANN401
    """Return the text of `offset` if that says all of it (not of custom calendars)."""
    to_offset = importlib.import_module("pandas.tseries.frequencies").to_offset
    text = str(offset.freqstr)
    if not FREQUENCY.match(text) or to_offset(text) != offset:
        raise _refuse(f"the frequency {text:.32}", "set freq=None, or build it there")
    return text


def _period_frequency(value: Any) -> str:  # noqa: ANN401
    text = str(value.freqstr)
    if not FREQUENCY.match(text) or load_pandas().PeriodDtype(text).freq != value.freq:
        raise _refuse(f"the frequency {text:.32}", "use one that its name tells all of")
    return text


_COLUMNS: dict[str, Callable[[Any, Callable[[object], Node]], Node]] = {
    "NumpyExtensionArray": _object_column,
    "StringArray": _text_column,
    "ArrowStringArray": _text_column,
    "DatetimeArray": _date_column,
    "TimedeltaArray": _date_column,
    "Categorical": _category_column,
    "PeriodArray": _period_column,
    "IntervalArray": _interval_column,
    "SparseArray": _sparse_column,
}


def _index_state(index: Any, convert: Callable[[object], Node]) -> dict[str, Node]:  # noqa: ANN401
    column = _column(index.array, convert)
    return {"data": column, "name": convert(index.name)}


def _dated_state(index: Any, convert: Callable[[object], Node]) -> dict[str, Node]:  # noqa: ANN401
    freq = None if index.freq is None else _frequency(index.freq)
    return _index_state(index, convert) | {"freq": freq}


def _range_state(index: Any, convert: Callable[[object], Node]) -> dict[str, Node]:  # noqa: ANN401
    ends = {"start": index.start, "stop": index.stop, "step": index.step}
    return ends | {"name": convert(index.name)}


def _levels_state(index: Any, convert: Callable[[object], Node]) -> dict[str, Node]:  # noqa: ANN401
    return {
        "levels": [convert(level) for level in index.levels],
        "codes": [convert(codes) for codes in index.codes],
        "names": [convert(name) for name in index.names],
    }


def _moment_state(value: Any, convert: Callable[[object], Node]) -> dict[str, Node]:  # noqa: ANN401
    zone = None if value.tzinfo is None else _zone(value.tzinfo)
    return {"moment": convert(value.to_datetime64()), "zone": zone}


def _interval_state(value: Any, convert: Callable[[object], Node]) -> dict[str, Node]:  # noqa: ANN401
    ends = {"left": convert(value.left), "right": convert(value.right)}
    return ends | {"closed": value.closed}


_STATES: dict[str, Callable[[Any, Callable[[object], Node]], dict[str, Node]]] = {
    "pandas.DataFrame": _frame_state,
    "pandas.Series": _series_state,
    "pandas.Index": _index_state,
    "pandas.CategoricalIndex": _index_state,
    "pandas.PeriodIndex": _index_state,
    "pandas.IntervalIndex": _index_state,
    "pandas.DatetimeIndex": _dated_state,
    "pandas.TimedeltaIndex": _dated_state,
    "pandas.RangeIndex": _range_state,
    "pandas.MultiIndex": _levels_state,
    "pandas.Categorical": lambda value, convert: {"data": _column(value, convert)},
    "pandas.Timestamp": _moment_state,
    "pandas.Timedelta": lambda value, convert: {
        "span": convert(value.to_timedelta64())
    },
    "pandas.Period": lambda value, _: {
        "ordinal": int(value.ordinal),
        "freq": _period_frequency(value),
    },
    "pandas.Interval": _interval_state,
    "pandas.api.typing.NaTType": lambda _value, _convert: {},
    "pandas.api.typing.NAType": lambda _value, _convert: {},
}
