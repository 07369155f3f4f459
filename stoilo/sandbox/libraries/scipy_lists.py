"""`scipy.sparse`'s matrices of lists, in Python: theirs is compiled and takes addresses.

The library's own functions read arrays of Python objects through their buffers, which no
buffer of ours shows (`stoilo.sandbox.facades.array_memory`): a task's objects in such a
list would run code while the addresses are open. Same answers, same errors.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from typing import Any

from scipy.sparse import _csparsetools


def _place(index: Any, size: int, what: str) -> int:
    place = int(index)
    if not -size <= place < size:
        raise IndexError(f"{what} index ({place}) out of bounds")
    return place % size


def lil_get1(m: int, n: int, rows: Any, datas: Any, i: Any, j: Any) -> Any:
    """Return the value at row `i`, column `j`, zero where none is kept."""
    row, column = _place(i, m, "row"), _place(j, n, "column")
    found = bisect_left(rows[row], column)
    kept = found < len(rows[row]) and rows[row][found] == column
    return datas[row][found] if kept else 0


def lil_insert(m: int, n: int, rows: Any, datas: Any, i: Any, j: Any, x: Any) -> None:
    """Keep `x` at row `i`, column `j`; a zero is not kept."""
    row, column = _place(i, m, "row"), _place(j, n, "column")
    columns, values = rows[row], datas[row]
    found = bisect_left(columns, column)
    kept = found < len(columns) and columns[found] == column
    if kept and x == 0:
        del columns[found], values[found]
    elif kept:
        values[found] = x
    elif x != 0:
        columns.insert(found, column)
        values.insert(found, x)


def lil_get_lengths(rows: Any, lengths: Any) -> None:
    """Write the length of each row."""
    for place, row in enumerate(rows.tolist()):
        lengths[place] = len(row)


def lil_flatten_to_array(rows: Any, flat: Any) -> None:
    """Write what all rows hold, one after the other."""
    for place, value in enumerate(value for row in rows.tolist() for value in row):
        flat[place] = value


def lil_fancy_get(
    m: int, n: int, rows: Any, datas: Any, new_rows: Any, new_datas: Any, i: Any, j: Any
) -> None:
    """Fill new rows with the values at each pair of indices."""
    for place, pairs in enumerate(zip(i.tolist(), j.tolist(), strict=True)):
        found = [
            lil_get1(m, n, rows, datas, *pair) for pair in zip(*pairs, strict=True)
        ]
        new_rows[place] = [column for column, value in enumerate(found) if value != 0]
        new_datas[place] = [value for value in found if value != 0]


def lil_get_row_ranges(  # noqa: PLR0917 - the library's
    m: int,
    n: int,
    rows: Any,
    datas: Any,
    new_rows: Any,
    new_datas: Any,
    chosen: Iterable[Any],
    start: int,
    stop: int,
    stride: int,
    count: int,
) -> None:
    """Fill new rows with a slice of the columns of each row of `chosen`."""
    del n, count
    columns = range(start, stop, stride)
    for place, i in enumerate(chosen):
        row = _place(i, m, "row")
        pairs = zip(rows[row], datas[row], strict=True)
        found = [(columns.index(j), value) for j, value in pairs if j in columns]
        ordered = found if stride > 0 else found[::-1]
        new_rows[place] = [column for column, _ in ordered]
        new_datas[place] = [value for _, value in ordered]


def lil_fancy_set(
    m: int, n: int, rows: Any, datas: Any, i: Any, j: Any, values: Any
) -> None:
    """Keep each value at its pair of indices."""
    if values.dtype == bool:
        values = values.view("u1")  # what theirs keeps
    flat = (i.ravel().tolist(), j.ravel().tolist(), values.ravel().tolist())
    for row, column, value in zip(*flat, strict=True):
        lil_insert(m, n, rows, datas, row, column, value)


def exchange_lists() -> None:
    """Put these in the place of the library's; in the zygote."""
    functions = (lil_fancy_get, lil_fancy_set, lil_flatten_to_array, lil_get1)
    for function in (*functions, lil_get_lengths, lil_get_row_ranges, lil_insert):
        setattr(_csparsetools, function.__name__, function)
