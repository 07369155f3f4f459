"""Which layers on which processes: the dynamic programme of PipeDream, and what a plan costs.

Layers are cut into stages of neighbours, and a stage may be held by several replicas, which
take turns at the batches and add up their gradients. The slowest stage or link sets the pace:
the planner finds the least time a batch. The network may have levels (processes of a machine,
machines of a room); a level's unit is then a whole plan of the level below, as published
(Narayanan et al., SOSP 2019, section 3.1). Unlike the published program it counts activations
at every cut, and the memory limit knows how many batches are in flight at each place.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from stoilo.core.errors import UsageError


@dataclass(frozen=True)
class Layer:
    """What the planner knows of a layer; all for one batch.

    Attributes:
        time_s: forward and backward together, s.
        output_bytes: of its output, which is as large as the gradient that comes back.
        weight_bytes: of what is trained.
        kept_bytes: what the backward needs of the forward, without the layer's input.
    """

    name: str
    time_s: float
    output_bytes: int
    weight_bytes: int
    kept_bytes: int = 0


@dataclass(frozen=True)
class Level:
    """A level of the network: so many units, and what goes between two of them, bytes/s."""

    units: int
    bytes_per_s: float = math.inf


@dataclass(frozen=True)
class Rules:
    """What a plan may do.

    Attributes:
        memory_bytes: of a process: stashed weights and what is kept of batches in flight.
        overlap: gradients are added up while the next batch is computed (the larger of both
            counts), or after it (their sum).
        straight: no stage has replicas.
        fewer: processes may stay idle.
    """

    memory_bytes: float = math.inf
    overlap: bool = True
    straight: bool = False
    fewer: bool = True


@dataclass(frozen=True)
class Stage:
    """The layers `begin` up to and without `end`, on so many processes."""

    begin: int
    end: int
    replicas: int


@dataclass(frozen=True)
class Plan:
    """Stages in their order, and what is expected of them.

    Attributes:
        batch_s: from one batch's end to the next one's, s, once the pipeline is full.
    """

    layers: tuple[Layer, ...]
    stages: tuple[Stage, ...]
    batch_s: float

    @property
    def processes(self) -> int:
        """Return how many processes work."""
        return sum(stage.replicas for stage in self.stages)

    @property
    def cuts(self) -> tuple[int, ...]:
        """Return before which layers the stages after the first begin."""
        return tuple(stage.begin for stage in self.stages[1:])

    @property
    def config(self) -> str:
        """Return the replicas of each stage, as the paper writes them: ``7-1``."""
        return "-".join(str(stage.replicas) for stage in self.stages)

    @property
    def speedup(self) -> float:
        """Return how many times faster than one process."""
        return sum(layer.time_s for layer in self.layers) / self.batch_s

    @property
    def utilisation(self) -> float:
        """Return the share of time in which working processes compute."""
        return self.speedup / self.processes

    @property
    def depths(self) -> tuple[int, ...]:
        """Return how many batches are in flight at each stage's replica: its versions."""
        ahead = itertools.accumulate((s.replicas for s in self.stages), initial=0)
        return tuple(
            math.ceil((self.processes - before) / stage.replicas)
            for stage, before in zip(self.stages, ahead, strict=False)
        )

    @property
    def noam(self) -> int:
        """Return how many batches each replica of the first stage begins with."""
        return self.depths[0]

    @property
    def memory_bytes(self) -> tuple[int, ...]:
        """Return what a process of each stage holds of weights and activations."""
        costs = _Costs(self.layers)
        held = (costs.held(stage.begin, stage.end) for stage in self.stages)
        return tuple(n * one for n, one in zip(self.depths, held, strict=True))

    @property
    def traffic_bytes(self) -> float:
        """Return what all processes send for one batch: activations both ways, gradients."""
        costs = _Costs(self.layers)
        return sum(
            2 * (s.replicas - 1) / s.replicas * costs.weights(s.begin, s.end)
            for s in self.stages
        ) + sum(2 * self.layers[cut - 1].output_bytes for cut in self.cuts)


class _Costs:
    """Sums over neighbouring layers."""

    def __init__(self, layers: Sequence[Layer]) -> None:
        self._time = [0.0, *itertools.accumulate(one.time_s for one in layers)]
        self._weight = [0, *itertools.accumulate(one.weight_bytes for one in layers)]
        self._kept = [0, *itertools.accumulate(one.kept_bytes for one in layers)]
        self.output = [0, *(one.output_bytes for one in layers)]  # before each layer

    def time(self, begin: int, end: int) -> float:
        return self._time[end] - self._time[begin]

    def weights(self, begin: int, end: int) -> int:
        return self._weight[end] - self._weight[begin]

    def held(self, begin: int, end: int) -> int:
        kept = self._kept[end] - self._kept[begin] + self.output[begin]
        return kept + self.weights(begin, end)


# Time of the slowest part, s; how many stages; the stages.
_Found: TypeAlias = tuple[float, int, tuple[Stage, ...]]
_NOTHING: _Found = (math.inf, 0, ())
_END: _Found = (0.0, 0, ())


class _Search:
    """The tables of one search."""

    def __init__(
        self, layers: Sequence[Layer], levels: Sequence[Level], rules: Rules
    ) -> None:
        self.costs, self.levels, self.rules = _Costs(layers), levels, rules
        # Processes of a unit: of one below all levels, of one made of the first level, ...
        self.sizes = [
            *itertools.accumulate((i.units for i in levels), int.__mul__, initial=1)
        ]
        # The same table is asked for many times; all of them go with the search.
        self.table = functools.cache(self._fill)

    def _fill(self, height: int, end: int, beyond: int) -> list[_Found]:
        """Return, for each first layer, the best plan of one unit up to `end`.

        Args:
            height: 0 is a process, n a unit made of the first n levels.
            end: the layer after the last.
            beyond: how many processes work on later layers for each such unit, as far as
                memory has a limit: so many more batches are in flight here.
        """
        if height == 0:
            return [self._take_alone(begin, end, beyond) for begin in range(end)]
        # rows[n]: the best on exactly n units, which hold the layers from each one to `end`.
        rows: list[list[_Found]] = [[]]
        for units in range(1, self.levels[height - 1].units + 1):
            row = [_NOTHING] * end
            for replicas in range(1, 2 if self.rules.straight else units + 1):
                self._put_before(rows, row, (height, end, beyond), units, replicas)
            rows.append(row)
        if not self.rules.fewer:
            return rows[-1]
        return [min((row[i] for row in rows[1:]), key=_rank) for i in range(end)]

    def _put_before(
        self,
        rows: list[list[_Found]],
        row: list[_Found],
        place: tuple[int, int, int],
        units: int,
        replicas: int,
    ) -> None:
        """Try each first stage of so many replicas before the best of what remains."""
        height, end, beyond = place
        rest, level = units - replicas, self.levels[height - 1]
        later = rest * self.sizes[height - 1] + beyond
        later = math.ceil(later / replicas) if self.rules.memory_bytes < math.inf else 0
        for cut in range(1, end) if rest else (end,):
            after = rows[rest][cut] if rest else _END
            link = 2 * self.costs.output[cut] / level.bytes_per_s if rest else 0.0
            if max(link, after[0]) == math.inf:
                continue
            for begin, inner in enumerate(self.table(height - 1, cut, later)):
                weights = self.costs.weights(begin, cut)
                own = self.share(inner[0], weights, replicas, level)
                found = max(own, link, after[0]), inner[1] + after[1]
                if found < row[begin][:2]:
                    stages = (
                        replace(s, replicas=s.replicas * replicas) for s in inner[2]
                    )
                    row[begin] = (*found, (*stages, *after[2]))

    def share(self, time_s: float, weights: int, replicas: int, level: Level) -> float:
        """Return the time a batch of replicas that add up their gradients, s."""
        sync = 4 * (replicas - 1) * weights / (replicas * level.bytes_per_s)
        both = max(time_s, sync) if self.rules.overlap else time_s + sync
        return both / replicas

    def _take_alone(self, begin: int, end: int, beyond: int) -> _Found:
        if (1 + beyond) * self.costs.held(begin, end) > self.rules.memory_bytes:
            return _NOTHING
        return self.costs.time(begin, end), 1, (Stage(begin, end, 1),)


def plan_stages(
    layers: Sequence[Layer], levels: Sequence[Level], rules: Rules | None = None
) -> Plan:
    """Return the plan with the least time a batch; of equal ones, the one with fewer stages.

    Args:
        layers: in the order of execution.
        levels: of the network, the innermost first.
        rules: what it may do.

    Raises:
        UsageError: ``STO-T040``: there is nothing to plan, or no plan fits into memory.
    """
    _check(layers, levels)
    rules = rules or Rules()
    found = _Search(layers, levels, rules).table(len(levels), len(layers), 0)[0]
    if found[0] == math.inf:
        raise UsageError(
            "STO-T040",
            f"no plan fits into {rules.memory_bytes:,.0f} bytes of memory a process",
            hint="more memory or processes, smaller batches, or layers that can be cut",
        )
    return Plan(tuple(layers), found[2], found[0])


def plan_copies(
    layers: Sequence[Layer], levels: Sequence[Level], rules: Rules | None = None
) -> Plan:
    """Return plain data parallel training, whatever memory it needs: one stage."""
    _check(layers, levels)
    search = _Search(layers, levels, rules or Rules())
    time_s = search.costs.time(0, len(layers))
    for level in levels:
        weights = search.costs.weights(0, len(layers))
        time_s = search.share(time_s, weights, level.units, level)
    return Plan(tuple(layers), (Stage(0, len(layers), search.sizes[-1]),), time_s)


def _rank(found: _Found) -> tuple[float, int]:
    return found[:2]


def _check(layers: Sequence[Layer], levels: Sequence[Level]) -> None:
    wrong = [one for one in levels if one.units < 1 or not one.bytes_per_s > 0]
    if not levels or wrong or not sum(layer.time_s for layer in layers) > 0:
        raise UsageError(
            "STO-T040",
            "a plan needs layers that take time, and levels of some units and bandwidth",
        )
