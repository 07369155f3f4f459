"""Models and gradients among project nodes: star, tree, ours and the bound, simulated.

Nodes have access lines of 155 to 455 Mbit/s, drawn by a seed, and a model has 1000 Mbit; a
flow is fluid and max-min fair. C is the mean time until a node has the version, G the time
until the root has the round's sum (Sections 6.2 and 6.3 of the paper). The same networks
serve all four. What is measured is the virtual clock: no machine is too slow for it.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random

from bench.best_schedule import find_best
from bench.rows import Row
from bench.traffic.simulation import Network, aggregate, distribute
from bench.traffic.trees import (
    Access,
    Tree,
    TreeAggregation,
    TreeDistribution,
    balance,
    bound_receipts,
    bound_sum,
    star,
)
from stoilo.learn.traffic.aggregation import Aggregation
from stoilo.learn.traffic.distribution import Distribution
from stoilo.learn.traffic.links import MEMORY, LinkMatrix, Node
from stoilo.learn.traffic.wire import SEGMENTS

MBIT = 1e6 / 8  # bytes
SIZE = int(1000 * MBIT)
SLOWEST, FASTEST = 155 * MBIT, 455 * MBIT  # bytes/s
ROUNDS = 40
LEARNT = 10  # rounds after which what was learnt counts
LEASE_S = 1e6  # a star of 128 takes its time
# Of the paper's abstract: workers → (distribution, aggregation) saved against the star.
PUBLISHED = {128: (0.95, 0.90)}
TRAININGS = {"AlexNet": 0.58, "MobileNet": 0.34}  # of a training's time, 12 workers


def name_workers(count: int) -> list[Node]:
    """Return the names of so many workers."""
    return [f"w{i}" for i in range(count)]


def draw_access(workers: int, seed: int) -> dict[Node, Access]:
    """Return a root and workers whose lines are alike in both directions."""
    chance = Random(seed)  # noqa: S311 - a simulation's own
    nodes = ["root", *name_workers(workers)]
    return {node: Access(*[chance.uniform(SLOWEST, FASTEST)] * 2) for node in nodes}


@dataclass(frozen=True, slots=True)
class Times:
    """What one network took, s: C or G of each way."""

    star: float
    tree: float
    first: float  # ours, the first round
    ours: float  # mean of the rounds after `LEARNT`
    bound: float  # no schedule is faster


def time_distribution(
    access: dict[Node, Access],
    seed: int,
    rounds: int = ROUNDS,
    memory: int | None = MEMORY,
) -> Times:
    """Return C of each way on one network; `memory` of ours, iterations."""
    workers = [node for node in access if node != "root"]

    def fixed(tree: Tree) -> float:
        schedule = TreeDistribution(
            "v", SIZE, "root", workers, LinkMatrix(), Random(0), tree=tree,  # noqa: S311
            lease_s=LEASE_S,
        )  # fmt: skip
        return statistics.fmean(distribute(Network(access), schedule).values())

    links, chance, network = LinkMatrix(memory), Random(seed), Network(access)  # noqa: S311
    means = []
    for number in range(rounds):
        schedule = Distribution(
            f"v{number}", SIZE, "root", workers, links, chance, iteration=number,
            lease_s=LEASE_S,
        )  # fmt: skip
        means.append(statistics.fmean(distribute(network, schedule).values()))
    bound = statistics.fmean(bound_receipts(access, "root", SIZE))
    trees = (fixed(make("root", workers)) for make in (star, balance))
    return Times(*trees, means[0], statistics.fmean(means[LEARNT:] or means), bound)


def time_aggregation(access: dict[Node, Access], rounds: int = ROUNDS) -> Times:
    """Return G of each way on one network; ours in segments, the others whole."""
    workers = [node for node in access if node != "root"]
    values = dict.fromkeys(workers, 1)

    def play(network: Network, schedule: Aggregation, segments: int = 1) -> float:
        took, total = aggregate(network, schedule, values, segments=segments)
        assert total == len(workers), "a contribution was lost or counted twice"
        return took

    def fixed(tree: Tree) -> float:
        schedule = TreeAggregation(
            "r", SIZE, "root", workers, LinkMatrix(), tree=tree, lease_s=LEASE_S
        )
        return play(Network(access), schedule)

    links, network = LinkMatrix(), Network(access)
    means = [
        play(network, Aggregation(
            f"r{number}", SIZE // SEGMENTS, "root", workers, links, iteration=number,
            lease_s=LEASE_S,
        ), SEGMENTS)
        for number in range(rounds)
    ]  # fmt: skip
    bound = bound_sum(access, "root", SIZE)
    trees = (fixed(make("root", workers)) for make in (star, balance))
    return Times(*trees, means[0], statistics.fmean(means[LEARNT:] or means), bound)


def average(times: Sequence[Times]) -> Times:
    """Return the mean over networks."""
    names = ("star", "tree", "first", "ours", "bound")
    return Times(*(statistics.fmean(getattr(t, name) for t in times) for name in names))


SIZES = ((12, range(20), ROUNDS), (128, range(5), 12))


def compare(
    sizes: Sequence[tuple[int, Sequence[int], int]] = SIZES,
) -> Iterator[tuple[int, Times, Times]]:
    """Yield workers, and C and G, means over seeds.

    Args:
        sizes: workers, the seeds of their networks, and rounds of ours.
    """
    for workers, seeds, rounds in sizes:
        nets = [(draw_access(workers, seed), seed) for seed in seeds]
        down = average([time_distribution(net, seed, rounds) for net, seed in nets])
        up = average([time_aggregation(net, rounds) for net, _ in nets])
        yield workers, down, up


def measure(
    sizes: Sequence[tuple[int, Sequence[int], int]] = SIZES, searched: int = 9
) -> list[Row]:
    """Return rows of C and G for each number of workers.

    Args:
        sizes: as for `compare`.
        searched: workers for whom the best schedule is found beside the bound.
    """
    rows, times = [], list(compare(sizes))
    for workers, down, up in times:
        rows += [
            _row(f"a version to {workers} nodes, mean receipt", down, 0.35),
            _row(f"a sum of {workers} nodes", up, 0.3),
        ]
    if len(times) > 1:
        print(render_published(times[0][1:], times[1][1:]))
    found = [draw_access(searched, seed) for seed in range(5)]
    best = [statistics.fmean(find_best(one, "root", SIZE)) for one in found]
    ours = [time_distribution(one, seed).ours for seed, one in enumerate(found)]
    mean, least = statistics.fmean(ours), statistics.fmean(best)
    title = f"traffic: a version to {searched} nodes, beside the best known beforehand"
    return [
        *rows,
        Row(title, mean, "virtual s", "best", least, mean / least, "ours/best"),
    ]


def _row(name: str, times: Times, target: float) -> Row:
    ratio = times.ours / times.star
    return Row(
        f"traffic: {name} (tree {times.tree:.1f} s, bound {times.bound:.1f} s)",
        times.ours, "virtual s", "star", times.star, ratio, "ours/star",
        f"≤ {target}", ratio <= target,
    )  # fmt: skip


def render_published(small: tuple[Times, Times], large: tuple[Times, Times]) -> str:
    """Return the paper's figures beside ours as text; each pair is of C and G."""

    def saved(times: Times) -> float:
        return 1.0 - times.ours / times.star

    lines = ["what                               published   ours"]
    for what, published, times in zip(
        ("distribution", "aggregation"), PUBLISHED[128], large, strict=True
    ):
        name = f"{what}, 128 workers"
        lines.append(f"{name:<34} {-published:>9.0%} {-saved(times):>6.0%}")
    both = 1.0 - sum(t.ours for t in small) / sum(t.star for t in small)
    for model, published in TRAININGS.items():
        name = f"training of {model}, 12 workers"
        share = f"{-both:.0%} of communication: as published where that is"
        lines.append(f"{name:<34} {-published:>9.0%} {share} {published / both:.0%}")
    return "\n".join(lines)
