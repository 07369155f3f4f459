"""The programs that are measured, with their sizes.

A program is a file with `run(n)`, the same text for plain CPython, for us and for every
peer. `size` takes some 150 ms on one processor of today; `small` is for interpreters that
are hundreds of times slower.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

__all__ = ["CONVERTING", "KERNELS", "LIBRARIES", "NUMPY", "TORCH", "Program"]

KERNELS_FOLDER = Path(__file__).parent / "kernels"


@dataclass(frozen=True, slots=True)
class Program:
    """One program.

    Attributes:
        name: of the file in ``bench/kernels``, without its suffix.
        size: what `run` gets.
        small: what it gets where it is interpreted by Python code; 0 where it is not.
        classes: whether it is mostly small methods on own objects.
    """

    name: str
    size: int
    small: int = 0
    classes: bool = False

    @property
    def source(self) -> str:
        """Return the text of the module."""
        return (KERNELS_FOLDER / f"{self.name}.py").read_text(encoding="utf-8")


KERNELS = (
    Program("binary_trees", 19, 8),
    Program("class_attribute", 45_000, 10, classes=True),
    Program("dict_str", 3000, 2),
    Program("edit_distance", 850, 20),
    Program("events", 350_000, 300, classes=True),
    Program("fannkuch", 8, 5),
    Program("life", 20_000, 15),
    Program("linear_solve", 200, 10),
    Program("mandelbrot", 250, 10),
    Program("monte_carlo", 330_000, 500),
    Program("nbody", 35_000, 30),
    Program("private_state", 180_000, 200, classes=True),
    Program("queens", 11, 5),
    Program("shortest_paths", 18_000, 30),
    Program("sieve", 1_400_000, 500),
    Program("spectral_norm", 220, 5),
    Program("text_parsing", 70_000, 100),
)
"""Interpreter-bound: what the language layer could slow down."""

CONVERTING = Program("sieve_converting", 300_000, 500)
"""A sieve beside a class with ``__index__``: its bytearray's stores go through Python."""

NUMPY = (
    Program("numpy_arrays", 1200),
    Program("numpy_diffusion", 700),
    Program("numpy_fft_filter", 250),
    Program("numpy_kmeans", 24),
    Program("numpy_logistic", 2000),
    Program("numpy_monte_carlo", 200),
    Program("numpy_nbody", 210),
    Program("numpy_pca", 120),
    Program("numpy_sorting", 38),
    Program("numpy_gaussian_process", 12),
)
"""Array programs: what facades, pinned instructions and the jail could slow down."""

TORCH = (
    Program("torch_convolutions", 35),
    Program("torch_lstm", 35),
    Program("torch_mlp", 160),
    Program("torch_tensors", 1200),
    Program("torch_transformer", 40),
)
"""Training, and work on tensors without any: as above, at level ``tensor``."""

LIBRARIES = {
    "scipy": (
        Program("scipy_differential_equations", 80),
        Program("scipy_fits", 50),
        Program("scipy_signals", 90),
        Program("scipy_space", 60),
        Program("scipy_sparse_solvers", 8),
        Program("scipy_statistics", 60),
    ),
    "pandas": (
        Program("pandas_groups", 28),
        Program("pandas_joins", 50),
        Program("pandas_series_in_time", 90),
    ),
    "sklearn": (
        Program("sklearn_clusters", 12),
        Program("sklearn_forest", 150),
        Program("sklearn_pipeline", 8),
    ),
}
"""Import name of a library → programs over it; in the full jail."""
