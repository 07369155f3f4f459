"""pandas values made from nodes: the reading half of `stoilo.core.codec.frames`.

Trust: nodes are hostile, whoever sent them.
"""

from __future__ import annotations

import datetime as dt
import importlib
import re
from typing import TYPE_CHECKING, Any

from stoilo.core.codec.nodes import Instance, Ndarray, Node, NumpyScalar
from stoilo.core.errors import StoiloError, TrustError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

NUMERIC = "biufcmM"
"""Kinds of numpy dtypes whose columns are arrays of the skeleton."""

MASKED = re.compile(r"\A(U?Int(8|16|32|64)|Float(32|64)|boolean)\Z")
FREQUENCY = re.compile(r"\A-?[0-9]{0,9}[A-Za-z][A-Za-z-]{0,31}\Z")
_ZONE = re.compile(r"\A[A-Za-z][A-Za-z0-9_+/-]{0,63}\Z")
_DAY_S = 86_400
_INT64 = range(-(2**63), 2**63)


def _malformed(what: str) -> TrustError:
    return TrustError("STO-D002", f"{what} is malformed")


def load_pandas() -> Any:  # noqa: ANN401
    """Return pandas, loaded in a jail already; raises ``STO-D011`` where there is none."""
    try:
        return importlib.import_module("pandas")
    except ImportError:
        hint = "install pandas; a task: import it"
        raise TrustError("STO-D011", "a frame needs pandas", hint=hint) from None


def from_node(node: Instance, convert: Callable[[Node], object]) -> object:
    """Return the value of `node` (hostile), checked.

    Raises:
        TrustError: ``STO-D002``, it is no such value; ``STO-D011``, there is no pandas.
    """
    pandas = load_pandas()
    name = node.class_name
    if name not in _MAKERS or node.base is not None:
        raise _malformed(f"a value of {name[:40]}")
    try:
        return _Decoder(pandas, convert).make(name, node.state)
    except StoiloError:
        raise
    except (ArithmeticError, LookupError, OSError, TypeError, ValueError) as error:
        raise _malformed(f"a value of {name[:40]}") from error


class _Decoder:
    """Makes values of `pandas`; any mistake in a node raises one of Python's errors."""

    def __init__(self, pandas: Any, convert: Callable[[Node], object]) -> None:  # noqa: ANN401
        self.pandas = pandas
        self.convert = convert

    def make(self, name: str, state: dict[str, Node]) -> object:
        maker, keys = _MAKERS[name]
        if frozenset(state) != keys:
            raise ValueError("other fields")
        return maker(self, **state)

    # Frames and series

    def frame(self, data: Node, index: Node, columns: Node) -> object:
        rows = self.index(index)
        made = [self.column(node, rows) for node in _checked(data, list)]
        frame = self.pandas.DataFrame(dict(enumerate(made)), index=rows)
        frame.columns = self.index(columns)
        return frame

    def series(self, data: Node, index: Node, name: Node) -> object:
        rows = self.index(index)
        column = self.column(data, rows)
        label = self.convert(name)
        return self.pandas.Series(column, index=rows, name=label, copy=True)

    def index(self, node: Node) -> Any:  # noqa: ANN401
        made = self.convert(node)
        if not isinstance(made, self.pandas.Index):
            raise TypeError("not an index")
        return made

    # Columns

    def column(self, node: Node, rows: object = None) -> Any:  # noqa: ANN401
        """Return the array of a column node, as long as `rows` where they are given."""
        if type(node) is Ndarray:
            made = _vector(node)
        else:
            kind, *parts = _checked(node, tuple)
            made = getattr(self, f"_{_COLUMN_MAKERS[kind]}")(*parts)
        if rows is not None and len(made) != len(rows):  # type: ignore[arg-type]  # an index
            raise ValueError("another length")
        return made

    def _make_objects(self, items: Node) -> Any:  # noqa: ANN401
        np = importlib.import_module("numpy")
        made = np.empty(len(_checked(items, list)), object)
        for place, item in enumerate(items):  # one by one: items may be sequences
            made[place] = self.convert(item)
        return self.pandas.arrays.NumpyExtensionArray(made)

    def _make_text(self, missing: Node, text: Node, lengths: Node) -> Any:  # noqa: ANN401
        np = importlib.import_module("numpy")
        na_value = {"nan": np.nan, "NA": self.pandas.NA}[missing]
        sizes = _vector(lengths, "i")
        pieces = list(_cut(_checked(text, str), sizes.tolist()))
        dtype = self.pandas.StringDtype("python", na_value=na_value)
        return self.pandas.array(pieces, dtype=dtype)

    def _make_masked(self, dtype: Node, values: Node, mask: Node) -> Any:  # noqa: ANN401
        if not MASKED.match(_checked(dtype, str)):
            raise ValueError("another dtype")
        numbers, missing = _vector(values), _vector(mask, "b")
        kind = self.pandas.api.types.pandas_dtype(dtype)
        if numbers.dtype != kind.numpy_dtype:
            raise ValueError("another dtype of its values")
        make: Any = kind.construct_array_type()
        return make(numbers, missing, copy=True)

    def _make_category(self, codes: Node, categories: Node, ordered: Node) -> Any:  # noqa: ANN401
        return self.pandas.Categorical.from_codes(
            _vector(codes, "i").copy(),
            self.index(categories),
            ordered=_checked(ordered, bool),
        )

    def _make_zoned(self, moments: Node, zone: Node) -> Any:  # noqa: ANN401
        naive = self.pandas.DatetimeIndex(_vector(moments, "M").copy())
        return naive.tz_localize("UTC").tz_convert(_find_zone(zone)).array

    def _make_period(self, frequency: Node, ordinals: Node) -> Any:  # noqa: ANN401
        freq = _checked_frequency(frequency)
        numbers = _vector(ordinals, "i").copy()
        return self.pandas.PeriodIndex.from_ordinals(numbers, freq=freq).array

    def _make_interval(self, closed: Node, left: Node, right: Node) -> Any:  # noqa: ANN401
        ends = (self.column(left), self.column(right))
        return self.pandas.arrays.IntervalArray.from_arrays(
            *ends, _checked(closed, str), copy=True
        )

    def _make_sparse(self, length: Node, places: Node, values: Node, fill: Node) -> Any:  # noqa: ANN401
        return self.pandas.arrays.SparseArray.from_indices(
            _vector(values).copy(),
            _vector(places, "i").copy(),
            _checked(length, int),
            self.convert(fill),
        )

    # Indexes

    def plain_index(self, data: Node, name: Node) -> object:
        made = self.column(data)
        return self.pandas.Index(
            made, dtype=made.dtype, name=self.convert(name), copy=True
        )

    def dated_index(self, data: Node, name: Node, freq: Node) -> object:
        made = self.pandas.Index(self.column(data), name=self.convert(name), copy=True)
        if freq is not None:
            made.freq = _checked_frequency(freq)
        return made

    def range_index(self, start: Node, stop: Node, step: Node, name: Node) -> object:
        ends = [_checked(end, int) for end in (start, stop, step)]
        if not all(end in _INT64 for end in ends):
            raise ValueError("beyond 64 bits")
        return self.pandas.RangeIndex(*ends, name=self.convert(name))

    def levels_index(self, levels: Node, codes: Node, names: Node) -> object:
        return self.pandas.MultiIndex(
            [self.index(level) for level in _checked(levels, list)],
            [_vector(one, "i").copy() for one in _checked(codes, list)],
            names=[self.convert(name) for name in _checked(names, list)],
            verify_integrity=True,
        )

    def categorical(self, data: Node) -> object:
        return self.column(data)

    # Scalars

    def moment(self, moment: Node, zone: Node) -> object:
        naive = self.pandas.Timestamp(self.convert(_checked(moment, NumpyScalar)))
        if zone is None:
            return naive
        return naive.tz_localize("UTC").tz_convert(_find_zone(zone))

    def span(self, span: Node) -> object:
        return self.pandas.Timedelta(self.convert(_checked(span, NumpyScalar)))

    def period(self, ordinal: Node, freq: Node) -> object:
        if _checked(ordinal, int) not in _INT64:
            raise ValueError("beyond 64 bits")
        return self.pandas.Period(ordinal=ordinal, freq=_checked_frequency(freq))

    def interval(self, left: Node, right: Node, closed: Node) -> object:
        ends = (self.convert(left), self.convert(right))
        return self.pandas.Interval(*ends, closed=_checked(closed, str))

    def no_time(self) -> object:
        return self.pandas.NaT

    def missing(self) -> object:
        return self.pandas.NA


def _checked(node: Node, kind: type) -> Any:  # noqa: ANN401
    if type(node) is not kind:
        raise TypeError("another kind of node")
    return node


def _vector(node: Node, kinds: str = NUMERIC) -> Any:  # noqa: ANN401
    """Return the one-dimensional array over `node`'s bytes: read-only, native order."""
    np = importlib.import_module("numpy")
    dtype = np.dtype(_checked(node, Ndarray).dtype)
    if len(node.shape) != 1 or dtype.kind not in kinds:
        raise ValueError("another shape or dtype")
    flat = np.frombuffer(node.data, dtype=dtype.newbyteorder("<"))
    flat = flat.astype(dtype, copy=False)
    flat.flags.writeable = False
    return flat


def _cut(text: str, lengths: list[int]) -> Iterator[str | None]:
    """Yield the pieces of `text`, which their `lengths` (hostile) use up exactly."""
    start = 0
    for length in lengths:
        if length < -1:
            raise ValueError("a negative length")
        yield None if length < 0 else text[start : start + length]
        start += max(length, 0)
        if start > len(text):
            raise ValueError("more text than there is")
    if start != len(text):
        raise ValueError("text left over")


def _checked_frequency(node: Node) -> str:
    text: str = _checked(node, str)
    if not FREQUENCY.match(text):
        raise ValueError("no frequency")
    return text


def _find_zone(node: Node) -> dt.tzinfo:
    if type(node) is int:
        if abs(node) >= _DAY_S:
            raise ValueError("no time zone")
        return dt.timezone(dt.timedelta(seconds=node))
    if not _ZONE.match(_checked(node, str)):
        raise ValueError("no time zone")
    zoneinfo = importlib.import_module("zoneinfo")
    zone: dt.tzinfo = zoneinfo.ZoneInfo(node)
    return zone


_COLUMN_MAKERS = {
    "object": "make_objects",
    "str": "make_text",
    "masked": "make_masked",
    "category": "make_category",
    "zoned": "make_zoned",
    "period": "make_period",
    "interval": "make_interval",
    "sparse": "make_sparse",
}

_PLAIN = (_Decoder.plain_index, frozenset({"data", "name"}))
_DATED = (_Decoder.dated_index, frozenset({"data", "freq", "name"}))
_MAKERS: dict[str, tuple[Callable[..., object], frozenset[str]]] = {
    "pandas.DataFrame": (_Decoder.frame, frozenset({"columns", "data", "index"})),
    "pandas.Series": (_Decoder.series, frozenset({"data", "index", "name"})),
    "pandas.Index": _PLAIN,
    "pandas.CategoricalIndex": _PLAIN,
    "pandas.PeriodIndex": _PLAIN,
    "pandas.IntervalIndex": _PLAIN,
    "pandas.DatetimeIndex": _DATED,
    "pandas.TimedeltaIndex": _DATED,
    "pandas.RangeIndex": (
        _Decoder.range_index,
        frozenset({"name", "start", "step", "stop"}),
    ),
    "pandas.MultiIndex": (
        _Decoder.levels_index,
        frozenset({"codes", "levels", "names"}),
    ),
    "pandas.Categorical": (_Decoder.categorical, frozenset({"data"})),
    "pandas.Timestamp": (_Decoder.moment, frozenset({"moment", "zone"})),
    "pandas.Timedelta": (_Decoder.span, frozenset({"span"})),
    "pandas.Period": (_Decoder.period, frozenset({"freq", "ordinal"})),
    "pandas.Interval": (_Decoder.interval, frozenset({"closed", "left", "right"})),
    "pandas.api.typing.NaTType": (_Decoder.no_time, frozenset()),
    "pandas.api.typing.NAType": (_Decoder.missing, frozenset()),
}
