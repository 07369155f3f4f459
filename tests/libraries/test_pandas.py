"""pandas: research programs give plain CPython's very answer, attacks are stopped."""

import functools

import numpy as np
import pandas as pd
import pytest

from stoilo.client.capture.modules import capture_task
from stoilo.core.codec import skeleton
from stoilo.core.codec.nodes import from_node
from stoilo.core.errors import UsageError
from stoilo.core.types import RunStatus
from stoilo.policies.levels import find_argument_types
from tests.support.libraries import (
    check_program,
    programs_of,
    run_jailed,
    run_plainly,
)


@pytest.mark.parametrize(("path", "name"), programs_of("pandas"))
def test_program_gives_the_plain_answer(path, name):
    check_program(path, name)


SETUP = """
import numpy as np, pandas as pd
df = pd.DataFrame({"a": [1.0, 2.0, 3.0], "k": ["x", "y", "x"]})
s = df["a"]
c = pd.Categorical(["a", "b"])
m = pd.MultiIndex.from_arrays([["a", "b"]])
"""
_attacks: list[str] = []


def body(*lines):
    return SETUP + "def run(args):\n" + "".join(f"    {line}\n" for line in lines)


def listed(roads):
    """Return the mark that runs a test with each road: an expression, or lines."""
    lines = {k: (f"return {v}",) if isinstance(v, str) else v for k, v in roads.items()}
    sources = {name: body(*part) for name, part in lines.items()}
    _attacks.extend(sources.values())
    return pytest.mark.parametrize("source", sources.values(), ids=sources)


@functools.cache
def plain_answers():
    """Run every attack in plain CPython, where it works."""
    answers = run_plainly([(one, "run", {}) for one in _attacks], ["pandas"])
    return dict(zip(_attacks, answers, strict=True))


def stop(source):
    """Assert that an attack works plainly and gives nothing true in the jail."""
    value, error = plain_answers()[source]
    assert not error, error
    assert skeleton.decode(value), "the attack does not work in plain CPython either"
    outcome = run_jailed(source, "run", {}, ["pandas"])
    if outcome.status is RunStatus.OK:
        assert not skeleton.decode(outcome.value)
    return outcome.code


FILES = {
    "to_csv": "df.to_csv('/dev/null') is None",
    "to_csv by keyword": "s.to_csv(path_or_buf='/dev/null') is None",
    "to_json": "df.to_json('/dev/null') is None",
    "to_html": "df.to_html('/dev/null') is None",
    "to_string": "df.to_string(buf='/dev/null') is None",
    "series to_string": "s.to_string('/dev/null') is None",
    "to_pickle": "df.to_pickle('/dev/null') is None",
    "to_stata": "callable(df.to_stata)",
    "to_parquet": "callable(df.to_parquet)",
    "to_sql": "callable(df.to_sql)",
    "to_hdf": "callable(df.to_hdf)",
    "to_clipboard": "callable(df.to_clipboard)",
    "read_csv": "len(pd.read_csv('/etc/passwd', sep='!', header=None)) > 0",
    "read_pickle": "callable(pd.read_pickle)",
    "io": "callable(pd.io.common.get_handle)",
    "style": "callable(df.to_latex)",
    "plot": "df.plot is not None",
    "group plot": "s.groupby(df['k']).hist is not None",
    "zone as a path": "str(pd.Timestamp(0).tz_localize("
    "'dateutil//usr/share/zoneinfo/UTC')) != ''",
    "zone from a file": "callable(pd.Timestamp(0, tz='Europe/Berlin').tzinfo.from_file)",
}


@listed(FILES)
def test_files_are_out_of_reach(source):
    stop(source)


NAMES = {
    "agg": "df.agg('_mgr') is not None",
    "agg of a list": "s.agg(['_mgr']) is not None",
    "agg of a dict": "df.agg({'a': '_mgr'}) is not None",
    "apply": "df.apply('__copy__') is not None",
    "a file": "s.apply('to_pickle', path='/dev/null') is None",
    "series apply": "s.apply('_mgr') is not None",
    "special": "s.agg('__class__') is not None",
    "transform": "callable(s.transform('__copy__').sum)",
    "group agg": "s.groupby(df['k']).agg('__len__') is not None",
    "group apply": "s.groupby(df['k']).apply('_cumcount_array') is not None",
    "named": "df.groupby('k').agg(b=('a', '_cumcount_array')) is not None",
    "windows": "s.rolling(2).agg('__repr__') is not None",
    "resampled": "s.set_axis(pd.date_range('2024', periods=3)).resample('2D')"
    ".agg('_get_binner') is not None",
    "numpy": "s.agg('empty_like') is not None",
    "text that equals anything": (
        "class Name(str):",
        "    __hash__ = str.__hash__",
        "    def __eq__(self, other): return True",
        "return s.agg(Name('_mgr')) is not None",
    ),
}


@listed(NAMES)
def test_names_as_text_reach_listed_methods_only(source):
    stop(source)


EVALUATED = {
    "eval": "df.eval('a + 1') is not None",
    "query": "len(df.query('a > 1')) > 0",
    "pd.eval": "pd.eval('1 + 1') == 2",
}


@listed(EVALUATED)
def test_text_is_not_evaluated(source):
    stop(source)


CHANGED = {
    "accessor": "pd.api.extensions.register_series_accessor('mine')(dict) is dict",
    "option": "pd.set_option('mode.chained_assignment', None) is None",
    "options": "pd.options.mode is not None",
    "option as a pattern": "pd.get_option('display.max_row') > 0",
    "numba": "callable(s.ewm(1).online)",
    "compiled": "pd.arrays is not None",
    "deferred": "pd.col('a') is not None",
    "arrow": "pd.ArrowDtype is not None",
    "raw memory": "s.astype('Int64').dtype.empty(3) is not None",
    "bounds of windows": "pd.api.indexers.BaseIndexer is not None",
}


@listed(CHANGED)
def test_what_is_withheld_is_not_there(source):
    stop(source)


EXTENDED = ["DataFrame", "Series", "Index", "Timestamp", "offsets.Day", "DateOffset"]


@listed(
    {
        base: (
            f"class Mine(pd.{base}):",
            "    def _constructor(self): return dict",
            "return Mine is not None",
        )
        for base in EXTENDED
    }
)
def test_own_class_extends_nothing_of_pandas(source):
    assert stop(source) == "STO-G105"


# Codes: what C code indexes with


CODES = {
    "writable codes": (
        "codes = c.codes",
        "codes.flags.writeable = True",
        "codes[0] = 1",
        "return c[0] == 'b'",
    ),
    "codes of a series": (
        "codes = pd.Series(c).array.codes",
        "codes.flags.writeable = True",
        "codes[0] = 100",
        "return True",
    ),
    "codes that stay the task's": (
        "mine = np.array([0, 1], dtype='int8')",
        "c = pd.Categorical.from_codes(mine, ['a', 'b'])",
        "mine[0] = 1",
        "return c[0] == 'b'",
    ),
    "no validation": (
        "return pd.Categorical.from_codes([7], ['a'], validate=False) is not None",
    ),
    "another view": ("c.view('int8')[0] = 1", "return c[0] == 'b'"),
    "levels": (
        "return pd.MultiIndex([['a']], [[5]], verify_integrity=False) is not None",
    ),
    "codes set": ("return m.set_codes([[5, 5]], verify_integrity=False) is not None",),
    "levels set": ("return m.set_levels([['a']], verify_integrity=False) is not None",),
    "codes of levels": (
        "codes = m.codes[0]",
        "codes.flags.writeable = True",
        "codes[0] = 1",
        "return True",
    ),
    "levels' codes that stay the task's": (
        "mine = np.array([0, 1], dtype='int8')",
        "m = pd.MultiIndex([['a', 'b']], [mine])",
        "mine.flags.writeable = True",
        "mine[0] = 1",
        "return m[0] == ('b',)",
    ),
    "places in sparse arrays": (
        "a = pd.Series([0, 5], dtype=pd.SparseDtype(int, 0)).array",
        "places = a.sp_index.indices",
        "places.flags.writeable = True",
        "places[0] = 0",
        "return a[0] == 5",
    ),
}


@listed(CODES)
def test_codes_stay_within_bounds(source):
    stop(source)


OBJECTS = {
    "memoryview": "memoryview(df['k'].to_numpy(dtype=object)).nbytes > 0",
    "bytes": "len(bytes(df['k'].to_numpy(dtype=object))) > 0",
    "through apply": "pd.Series([np.array([1, 'a'], object), 2], dtype=object)"
    ".iloc[:1].apply(memoryview)[0].nbytes > 0",
}


@listed(OBJECTS)
def test_addresses_of_objects_stay_hidden(source):
    stop(source)


MASKS = {
    "named aggregate": "pd.NamedAgg('a', np.sqrt, where=False) is not None",
    "pipe": "df.pipe((lambda where: True, 'where'))",
    "fields of a format": "'slot' in df[['a']].to_string(float_format='{0.__add__.__class__}')"
    " or 'class' in df[['a']].to_string(float_format='{0.__class__}')",
    "an own object that says it is a frame": (
        "class Fake:",
        "    _typ = 'dataframe'",
        "    def isna(self): return 'forged'",
        "return pd.isna(Fake()) == 'forged'",
    ),
    "accessor's class": "pd.Series.str(s.astype(str)) is not None",
}


@listed(MASKS)
def test_road_around_a_guard_is_closed(source):
    stop(source)


CLOCKS = {
    "now": "pd.Timestamp.now()",
    "zoned": "pd.Timestamp.now('Europe/Berlin')",
    "today": "pd.Timestamp.today()",
    "text": "pd.Timestamp('now')",
    "text of today": "pd.to_datetime('today')",
    "texts": "pd.to_datetime(['now', 'today'])[1]",
    "array": "pd.Series(['now'], dtype='datetime64[ns]')[0]",
    "period": "pd.Period.now('D')",
    "index": "pd.DatetimeIndex(['today'])[0]",
    "instance": "pd.Timestamp(0).now()",
}


@listed({name: f"{clock}.year > 2000" for name, clock in CLOCKS.items()})
def test_clock_is_the_admissions(source):
    stop(source)


UNBOUND = [
    "pd.Timestamp.day_name(5)",
    "pd.Timestamp.normalize('x')",
    "pd.Timedelta.total_seconds(df)",
    "pd.Period.strftime(7, '%Y')",
    "pd.Interval.overlaps(1, 2)",
    "pd.offsets.Day.is_on_offset(1, 2)",
    "pd.offsets.BusinessHour.rollback(1, 2)",
    "pd.DataFrame.sum(5)",
    "pd.Index.is_unique.fget(5)",
    "pd.Categorical.map(5, str)",
    "pd.Categorical.repeat(int, 2)",
    "pd.CategoricalDtype.update_dtype(5, 6)",
]


@pytest.mark.parametrize("call", UNBOUND)
def test_method_read_off_a_class_takes_its_instances_only(call):
    outcome = run_jailed(body(f"return {call}"), "run", {}, ["pandas"])
    assert outcome.code == "STO-G108", outcome.error


def test_objects_that_compare_otherwise_later_break_no_memory():
    source = body(
        "class Odd:",
        "    left = 40",
        "    def __lt__(self, other):",
        "        Odd.left -= 1",
        "        return Odd.left > 0",
        "    __le__ = __gt__ = __ge__ = __lt__",
        "    __hash__ = object.__hash__",
        "for n in range(30):",
        "    Odd.left = 4 * n + 1",
        "    one = pd.Index([Odd() for _ in range(6)], dtype=object)",
        "    two = pd.Index([*one, *[Odd() for _ in range(6)]], dtype=object)",
        "    for how in ('inner', 'left', 'outer'):",
        "        one.join(two, how=how)",
        "    one.union(two), one.intersection(two)",
        "return True",
    )
    outcome = run_jailed(source, "run", {}, ["pandas"])
    assert outcome.status is RunStatus.OK, outcome.error


def test_lists_that_shrink_while_they_are_read_break_no_memory():
    source = body(
        "rows = []",
        "class Row(list):",
        "    def __len__(self):",
        "        rows.clear()",
        "        return 1",
        "for _ in range(50):",
        "    rows.extend([1] for _ in range(500))",
        "    rows.insert(0, Row([1]))",
        "    try:",
        "        pd.DataFrame(rows)",
        "    except (ValueError, TypeError, IndexError):",
        "        pass",
        "return True",
    )
    outcome = run_jailed(source, "run", {}, ["pandas"])
    assert outcome.status is RunStatus.OK, outcome.error


COLLIDING = ["to_pickle", "_mgr", "__class__", "eval", "plot", "shape", "sum"]


@pytest.mark.parametrize("name", COLLIDING)
def test_column_named_like_a_method_is_data_and_nothing_else(name):
    source = body(
        f"odd = pd.DataFrame({{{name!r}: [4, 5]}})",
        f"total = odd[{name!r}].sum() + odd.agg({{{name!r}: 'sum'}}).iloc[0]",
        "try:",
        f"    seen = getattr(odd, {name!r})",
        "except Exception:",
        "    seen = None",
        "return [int(total), isinstance(seen, pd.Series)]",
    )
    outcome = run_jailed(source, "run", {}, ["pandas"])
    assert outcome.status is RunStatus.OK, outcome.error
    assert skeleton.decode(outcome.value) == [18, False]


def test_frame_goes_in_and_a_frame_comes_out():
    source = SETUP + "def run(args):\n    return args['frame'].groupby('k').sum()\n"
    index = pd.date_range("2024", periods=4, freq="h", tz="Europe/Berlin")
    frame = pd.DataFrame({"k": list("abab"), "v": np.arange(4.0)}, index=index)
    outcome = run_jailed(source, "run", {"frame": frame}, ["pandas"])
    assert outcome.status is RunStatus.OK, outcome.error
    came = from_node(skeleton.decode(outcome.value))
    pd.testing.assert_frame_equal(came, frame.groupby("k").sum())


def test_objects_that_hash_otherwise_later_are_counted_without_a_second_look():
    source = body(
        "class Odd:",
        "    seen = 0",
        "    def __hash__(self):",
        "        Odd.seen += 1",
        "        return Odd.seen",
        "counts = pd.Series([Odd() for _ in range(50)], dtype=object).value_counts()",
        "return counts.tolist()",
    )
    outcome = run_jailed(source, "run", {}, ["pandas"])
    assert outcome.status is RunStatus.OK, outcome.error
    assert skeleton.decode(outcome.value) == [1] * 50


def test_frame_is_captured_and_what_cannot_travel_in_it_is_named():
    def total(args):
        return args["frame"].sum()

    captured = capture_task(total, {"frame": pd.DataFrame({"a": [1.0]})})
    assert (
        find_argument_types(skeleton.decode(captured.arguments))[0] == "numpy.ndarray"
    )
    with pytest.raises(UsageError, match=r"kwargs\['frame'\]: column 'bad'"):
        capture_task(total, {"frame": pd.DataFrame({"bad": [object()]})})
