"""Sparse matrices and arrays of scipy as nodes and back.

A node's state is what the format stores: arrays of values and of places, and the shape.
scipy's loops in C believe all of them, so each is checked here before scipy sees it: how
many, which types, that every place lies inside. Trust: nodes are hostile.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from stoilo.core.codec import nodes
from stoilo.core.errors import TrustError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from stoilo.core.codec.nodes import Instance, Node

MOST_ROWS = 2**31 - 1
"""Rows and columns, and stored values: what 32-bit places reach."""

MOST_LISTS = 1_000_000
"""Rows of a ``lil``: each takes room here, and none on the wire."""

_PARTS = {
    "csr": ("data", "indices", "indptr"),
    "csc": ("data", "indices", "indptr"),
    "bsr": ("data", "indices", "indptr"),
    "coo": ("data", "row", "col"),
    "dia": ("data", "offsets"),
}
"""Format → the arrays that it stores. ``lil`` and ``dok`` travel in the form of ``coo``."""

_KINDS = frozenset("biufc")


def refuse(message: str) -> TrustError:
    """Return the refusal ``STO-D002`` of a sparse matrix that is none."""
    return TrustError("STO-D002", f"a sparse matrix is malformed: {message}")


def to_node(value: Any, name: str, convert: Callable[[object], Node]) -> Instance:
    """Return the node of the sparse matrix or array `value`, listed as `name`."""
    if len(value.shape) != 2:  # noqa: PLR2004 - rows and columns
        raise UsageError(
            "STO-D001",
            f"a sparse array of {len(value.shape)} dimensions does not travel",
            hint="reshape it to rows and columns",
        )
    stored = value if value.format in _PARTS else value.tocoo()
    state = {part: convert(getattr(stored, part)) for part in _PARTS[stored.format]}
    return nodes.Instance(name, state | {"shape": tuple(map(int, value.shape))})


def from_node(node: Instance, convert: Callable[[Node], object]) -> Any:
    """Return the sparse matrix or array of `node` (hostile).

    Raises:
        TrustError: ``STO-D002``, its parts do not fit one another.
    """
    scipy_sparse: Any = importlib.import_module("scipy.sparse")
    kind = getattr(scipy_sparse, node.class_name.rpartition(".")[2])
    form, _, _ = kind.__name__.partition("_")
    stored = form if form in _PARTS else "coo"
    shape = _shape(node.state.get("shape"))
    if form == "lil" and shape[0] > MOST_LISTS:
        raise refuse("it has a list for each of too many rows")
    if set(node.state) != {"shape", *_PARTS[stored]} or node.base is not None:
        raise refuse("its parts are others than its format has")
    arrays = [_array(node.state[part], convert) for part in _PARTS[stored]]
    _CHECKS[stored](shape, *arrays)
    try:
        return _build(scipy_sparse, kind, stored, shape, arrays)
    except (OverflowError, TypeError, ValueError) as error:
        raise refuse(f"{error!s:.64}") from None


def _build(
    library: Any,
    kind: Any,
    stored: str,
    shape: tuple[int, int],
    arrays: list[Any],
) -> Any:
    data, *places = arrays
    if stored == "coo":
        made = library.coo_array((data, tuple(places)), shape=shape)
        return made if kind is library.coo_array else kind(made)
    return kind((data, *places), shape=shape)


def _shape(found: object) -> tuple[int, int]:
    if type(found) is not tuple or len(found) != 2:  # noqa: PLR2004 - rows and columns
        raise refuse("its shape is not two numbers")
    rows, columns = found
    if not all(type(one) is int and 0 <= one <= MOST_ROWS for one in found):
        raise refuse("its shape is out of bounds")
    return rows, columns


def _array(node: object, convert: Callable[[Node], object]) -> Any:
    if type(node) is not nodes.Ndarray:
        raise refuse("a part is no array")
    made: Any = convert(node)
    if made.dtype.kind not in _KINDS or made.dtype.name == "float16":
        raise refuse(f"values of {made.dtype} are not stored")
    if made.size > MOST_ROWS:
        raise refuse("it stores too many values")
    return made


def check_places(places: Any, bound: int, count: int) -> None:
    """Raise ``STO-D002`` unless `places` are `count` numbers from 0 below `bound`."""
    if places.dtype.name not in {"int32", "int64"} or places.shape != (count,):
        raise refuse("places are of another type or number")
    if count and not 0 <= int(places.min()) <= int(places.max()) < bound:
        raise refuse("a place lies outside")


def check_compressed(indptr: Any, indices: Any, lines: int, bound: int) -> None:
    """Raise ``STO-D002`` unless `indptr` divides `indices` into `lines` lines.

    Args:
        indptr: where each line begins in `indices`, and where the last ends.
        indices: the place of each value within its line, from 0 below `bound`.
        lines: how many rows there are (columns of a ``csc``).
        bound: how long each is.
    """
    check_places(indices, bound, indices.size)
    check_places(indptr, indices.size + 1, lines + 1)
    if indptr.dtype != indices.dtype:
        raise refuse("places are of two types")
    if indptr[0] != 0 or indptr[-1] != indices.size or (indptr[1:] < indptr[:-1]).any():
        raise refuse("its lines do not follow each other")


def _check_csr(shape: tuple[int, int], data: Any, indices: Any, indptr: Any) -> None:
    check_compressed(indptr, indices, *shape)
    _check_values(data, (indices.size,))


def _check_csc(shape: tuple[int, int], data: Any, indices: Any, indptr: Any) -> None:
    _check_csr((shape[1], shape[0]), data, indices, indptr)


def _check_bsr(shape: tuple[int, int], data: Any, indices: Any, indptr: Any) -> None:
    if data.ndim != 3 or 0 in data.shape[1:]:  # noqa: PLR2004 - blocks of rows and columns
        raise refuse("it has no blocks")
    high, wide = data.shape[1:]
    if shape[0] % high or shape[1] % wide:
        raise refuse("its blocks do not fill it")
    check_compressed(indptr, indices, shape[0] // high, shape[1] // wide)
    _check_values(data, (indices.size, high, wide))


def _check_coo(shape: tuple[int, int], data: Any, row: Any, col: Any) -> None:
    check_places(row, shape[0], data.size)
    check_places(col, shape[1], data.size)
    if row.dtype != col.dtype:
        raise refuse("places are of two types")
    _check_values(data, (row.size,))


def _check_dia(shape: tuple[int, int], data: Any, offsets: Any) -> None:
    # A diagonal may lie outside of the matrix: scipy bounds what it reads of it by the shape
    if offsets.dtype.name not in {"int32", "int64"} or offsets.ndim != 1:
        raise refuse("its diagonals have no places")
    if data.ndim != 2 or data.shape[0] != offsets.size:  # noqa: PLR2004 - a row a diagonal
        raise refuse("its diagonals are others than it names")
    if offsets.size != len(set(offsets.tolist())) or (abs(offsets) > MOST_ROWS).any():
        raise refuse("a diagonal lies outside, or there twice")
    if data.shape[1] > MOST_ROWS or (
        data.shape[1] == 0 and min(shape) > 0 < offsets.size
    ):
        raise refuse("its diagonals are empty")


def _check_values(data: Any, shape: tuple[int, ...]) -> None:
    if data.shape != shape:
        raise refuse("it has more or fewer values than places")


_CHECKS: dict[str, Callable[..., None]] = {
    "csr": _check_csr,
    "csc": _check_csc,
    "bsr": _check_bsr,
    "coo": _check_coo,
    "dia": _check_dia,
}


def check_sparse(value: Any) -> None:
    """Raise ``STO-D002`` unless the arrays inside a sparse matrix of scipy's fit.

    A task may write into them; what loops over them in C believes them.
    """
    if value.format in _PARTS and len(value.shape) == 2:  # noqa: PLR2004 - rows and columns
        arrays = (getattr(value, part) for part in _PARTS[value.format])
        _CHECKS[value.format](value.shape, *arrays)
