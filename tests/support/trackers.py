"""Fakes of what trackers write to: each keeps what it was given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["FakeMLflow", "FakeRun", "FakeWriter"]


@dataclass
class FakeWriter:
    """TensorBoard's: tag → (step, value) of each scalar."""

    scalars: dict[str, list[tuple[int, float]]] = field(default_factory=dict)
    flushes: int = 0

    def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> None:
        """Keep a scalar."""
        self.scalars.setdefault(tag, []).append((global_step, scalar_value))

    def flush(self) -> None:
        """Count the call."""
        self.flushes += 1


@dataclass
class FakeMLflow:
    """MLflow's functions: step and metrics of each call."""

    logged: list[tuple[int, Mapping[str, float]]] = field(default_factory=list)

    def log_metrics(self, metrics: dict[str, float], *, step: int) -> None:
        """Keep a call, which MLflow refuses when a value is no number."""
        self.logged.append(
            (step, {name: float(value) for name, value in metrics.items()})
        )


@dataclass
class FakeRun:
    """A run of Weights & Biases: one row a step, which only grows."""

    rows: dict[int, dict[str, float]] = field(default_factory=dict)

    def log(self, data: dict[str, float], *, step: int) -> None:
        """Keep a row; one of an earlier step is dropped, as there."""
        if step >= max(self.rows, default=0):
            self.rows.setdefault(step, {}).update(data)
