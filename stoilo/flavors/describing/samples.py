"""Arguments for a walk: by level, and for libraries whose functions take their own values."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

Sample = tuple[Any, ...]


def plain_samples() -> list[Sample]:
    """Arguments of plain Python, new ones for every call."""
    return [
        *((), (2,), (2.5,), ("a",), (b"ab",), ([3, 1, 2],), ({"a": 1},), (int,)),
        *((2, 3), ("a", "b"), ([1, 2], [3, 4]), (len, ["a", "b"]), ("a", 1)),
        *((lambda *_: 1,), (iter([1, 2]),), (None,), (ValueError("x"),)),
    ]


def array_samples() -> list[Sample]:
    """Arguments for numpy."""
    import numpy as np  # noqa: PLC0415 - only where it is walked

    ones = np.ones((3, 3)) + np.eye(3)
    return [
        *((ones,), (ones, ones), (ones, 1), (np.arange(3),), (np.float64(1.0),)),
        *(((3, 3),), ("f8",), (np.sin, 1), ("ij,jk->ik", ones, ones)),
    ]


def tensor_samples() -> list[Sample]:
    """Arguments for torch."""
    import torch  # noqa: PLC0415 - only where it is walked

    ones = torch.ones(3, 3) + torch.eye(3)
    leaf = torch.ones(3, requires_grad=True)
    images = torch.ones(1, 3, 8, 8)
    layer = torch.nn.Linear(3, 3)
    return [
        *((ones,), (ones, ones), (ones, 1), (leaf,), ((leaf * 2).sum(),), (images,)),
        *((torch.arange(3),), (torch.float32,), (layer,), ([leaf],), ([leaf], 0.1)),
        *((torch.optim.SGD([leaf], 0.1), 2), (3, 3), (3, 3, 3), (ones, ones, ones)),
        *((torch.distributions.Normal(0.0, 1.0),), (layer.parameters(),)),
        *((lambda x: x.sum(), ones), (layer.state_dict(),), (torch.Size([3]),)),
    ]


def frame_samples() -> list[Sample]:
    """Arguments for pandas."""
    import pandas as pd  # noqa: PLC0415 - only where it is walked

    frame = pd.DataFrame({"a": [3, 1, 2], "b": ["x", "y", "x"]})
    times = pd.Series([1.0, 2.0], index=pd.date_range("2020-01-01", periods=2))
    return [
        *((frame,), (frame, frame), (frame, "a"), ([frame, frame],), (frame["a"],)),
        *((times,), (times, times), (frame.groupby("b"),), (frame.index,)),
    ]


def sparse_samples() -> list[Sample]:
    """Arguments for scipy."""
    import scipy.sparse  # noqa: PLC0415 - only where it is walked

    matrix = scipy.sparse.csr_array([[2.0, 1.0], [1.0, 3.0]])
    return [
        *((matrix,), (matrix, matrix), (lambda x: float(sum(x * x)), [1.0, 2.0])),
        *((lambda x: x - 0.5, 0.0, 1.0), ([0.0, 1.0, 2.0, 3.0], [1.0, 2.0, 0.0, 1.0])),
    ]


def graph_samples() -> list[Sample]:
    """Arguments for networkx."""
    import networkx as nx  # noqa: PLC0415 - only where it is walked

    graph = nx.path_graph(4)
    return [(graph,), (graph, 0), (graph, 0, 2), (graph, graph), (graph.to_directed(),)]


def symbol_samples() -> list[Sample]:
    """Arguments for sympy."""
    import sympy  # noqa: PLC0415 - only where it is walked

    x = sympy.Symbol("x")
    matrix = sympy.Matrix([[1, 2], [3, 4]])
    return [(x,), (x**2 - 1,), (x**2 - 1, x), (x, x), (sympy.sin(x), x, 0), (matrix,)]


def image_samples() -> list[Sample]:
    """Arguments for Pillow."""
    import PIL.Image  # noqa: PLC0415 - only where it is walked

    image = PIL.Image.new("RGB", (4, 4), (1, 2, 3))
    return [
        (image,),
        (image, image),
        (image, (2, 2)),
        ("RGB", (2, 2)),
        ("L", (2, 2), 1),
    ]


def labelled_samples() -> list[Sample]:
    """Arguments for estimators: rows, and what they are labelled with."""
    import numpy as np  # noqa: PLC0415 - only where it is walked

    rows = np.arange(12.0).reshape(6, 2) % 5
    return [(rows, np.array([0, 1, 0, 1, 0, 1])), (rows, rows[:, 0]), ([0, 1], [1, 1])]


_LEVELS = {
    "pure": (plain_samples,),
    "numeric": (plain_samples, array_samples),
    "tensor": (plain_samples, tensor_samples),
}
"""What only a narrower level's modules take is walked there."""

_LIBRARIES: dict[str, Callable[[], list[Sample]]] = {
    "PIL": image_samples,
    "networkx": graph_samples,
    "pandas": frame_samples,
    "scipy": sparse_samples,
    "sklearn": labelled_samples,
    "statsmodels": labelled_samples,
    "sympy": symbol_samples,
}


def level_samples(level: str) -> Callable[[], list[Sample]]:
    """Return what makes the samples of a level.

    They are new ones for every call: a method may have changed the last.
    """
    makers = _LEVELS[level]
    return lambda: [sample for make in makers for sample in make()]


def library_samples(libraries: Iterable[str]) -> Callable[[], list[Sample]]:
    """Return what makes those of libraries, by import name, and the empty ones."""
    own = [_LIBRARIES[name] for name in sorted(set(libraries)) if name in _LIBRARIES]
    return lambda: [(), *(sample for make in own for sample in make())]
