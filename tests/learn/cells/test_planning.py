"""The planner against all plans there are, and against the published ones."""

import itertools
import math
import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stoilo.core.errors import UsageError
from stoilo.learn.cells.planning import (
    Layer,
    Level,
    Plan,
    Rules,
    Stage,
    plan,
    plan_copies,
)

FREE = (Level(4),)


def make_layers(*times, output=0, weights=0, kept=0):
    return [Layer(f"layer {i}", t, output, weights, kept) for i, t in enumerate(times)]


# Every plan there is, one after another: no table, no best of anything on the way.


def list_trees(height, begin, end, levels, rules):
    """Yield a unit's plans: (begin, end) of a process, or stages with their replicas."""
    if height == 0:
        yield begin, end
        return
    most = levels[height - 1].units
    for units in range(1 if rules.fewer else most, most + 1):
        yield from list_rows(height, begin, end, units, levels, rules)


def list_rows(height, begin, end, units, levels, rules):
    for replicas in range(1, (1 if rules.straight else units) + 1):
        cuts = range(begin + 1, end) if replicas < units else (end,)
        for cut in cuts:
            firsts = list(list_trees(height - 1, begin, cut, levels, rules))
            rests = [[]]
            if replicas < units:
                left = units - replicas
                rests = list(list_rows(height, cut, end, left, levels, rules))
            for first, rest in itertools.product(firsts, rests):
                yield [(first, replicas), *rest]


def spread(tree):
    """Return a tree's stages as they lie on processes."""
    if isinstance(tree, tuple):
        return [Stage(*tree, 1)]
    return [
        Stage(one.begin, one.end, one.replicas * replicas)
        for inner, replicas in tree
        for one in spread(inner)
    ]


def time_of(tree, height, layers, levels, rules):
    if height == 0:
        return sum(layer.time_s for layer in layers[slice(*tree)])
    speed, slowest = levels[height - 1].bytes_per_s, 0.0
    for inner, replicas in tree:
        stages = spread(inner)
        begin, end = stages[0].begin, stages[-1].end
        compute = time_of(inner, height - 1, layers, levels, rules)
        weights = sum(layer.weight_bytes for layer in layers[begin:end])
        sync = 4 * (replicas - 1) / replicas * weights / speed
        both = max(compute, sync) if rules.overlap else compute + sync
        slowest = max(slowest, both / replicas)
        if begin > spread(tree)[0].begin:
            slowest = max(slowest, 2 * layers[begin - 1].output_bytes / speed)
    return slowest


def fits(stages, layers, rules):
    """Say so by the warm-up of 1F1B: versions are one more than batches ahead."""
    total = sum(one.replicas for one in stages)
    before = 0
    for one in stages:
        versions = (total - 1 - before) // one.replicas + 1
        before += one.replicas
        own = layers[one.begin : one.end]
        kept = sum(layer.kept_bytes + layer.weight_bytes for layer in own)
        kept += layers[one.begin - 1].output_bytes if one.begin else 0
        if versions * kept > rules.memory_bytes:
            return False
    return True


def find_least(layers, levels, rules):
    trees = list_trees(len(levels), 0, len(layers), levels, rules)
    fitting = (one for one in trees if fits(spread(one), layers, rules))
    return min(
        (time_of(one, len(levels), layers, levels, rules) for one in fitting),
        default=math.inf,
    )


def draw_case(rng, levels, most_layers, *, silent):
    """Return random layers, and rules; `silent` layers send nothing."""
    size = 0 if silent else 100
    heavy = (0, size, 30 * size)
    layers = [
        Layer(
            f"layer {i}",
            rng.uniform(0.1, 3),
            rng.choice(heavy) // 3,
            rng.choice(heavy),
            rng.randint(0, 50),
        )
        for i in range(rng.randint(1, most_layers))
    ]
    whole = sum(one.weight_bytes + one.kept_bytes for one in layers)
    memory = rng.choice([math.inf, rng.uniform(0.2, 4) * whole])
    # Below, a unit counts as full: with idle processes memory is only bounded.
    fewer = rng.random() < 0.5 and (len(levels) == 1 or memory == math.inf)
    return layers, Rules(memory, rng.random() < 0.5, rng.random() < 0.4, fewer)


def same_as_all(layers, levels, rules):
    least = find_least(layers, levels, rules)
    if least == math.inf:
        with pytest.raises(UsageError, match="no plan fits"):
            plan(layers, levels, rules)
        return
    found = plan(layers, levels, rules)
    assert found.batch_s == pytest.approx(least, rel=1e-12)
    assert max(found.memory_bytes) <= rules.memory_bytes
    assert [found.stages[0].begin, *found.cuts] == [
        0, *(one.end for one in found.stages[:-1])
    ]  # fmt: skip
    assert found.stages[-1].end == len(layers)


@pytest.mark.parametrize("silent", [True, False])
@pytest.mark.parametrize("seed", range(5))
def test_on_one_network_no_plan_of_all_is_faster(seed, silent):
    rng = random.Random(seed)
    for _ in range(20):
        levels = [Level(rng.randint(1, 5), rng.uniform(50, 2000))]
        layers, rules = draw_case(rng, levels, 7, silent=silent)
        same_as_all(layers, levels, rules)


@pytest.mark.parametrize("silent", [True, False])
@pytest.mark.parametrize("seed", range(5))
def test_on_two_levels_of_network_no_plan_of_all_is_faster(seed, silent):
    rng = random.Random(seed)
    for _ in range(20):
        inside, between = rng.choice([(2, 2), (2, 3), (3, 2), (1, 3), (4, 2)])
        speed = rng.uniform(50, 2000)
        levels = [Level(inside, speed * rng.uniform(1, 20)), Level(between, speed)]
        layers, rules = draw_case(rng, levels, 5, silent=silent)
        same_as_all(layers, levels, rules)


def make_many(count=100):
    for seed in range(count):
        rng = random.Random(seed)
        levels = [Level(rng.randint(2, 5), rng.uniform(50, 2000))]
        layers, _ = draw_case(rng, levels, 7, silent=False)
        yield layers, levels


def test_planner_blind_to_activations_would_be_noticed():
    worse = 0
    for layers, levels in make_many():
        blind = plan([replace(one, output_bytes=0) for one in layers], levels)
        tree = [((one.begin, one.end), one.replicas) for one in blind.stages]
        real = time_of(tree, 1, layers, levels, Rules())
        worse += real > find_least(layers, levels, Rules()) * 1.001
    assert worse >= 5


def test_cases_have_plans_of_many_kinds():
    plans = [plan(layers, levels) for layers, levels in make_many()]
    assert {len(one.stages) for one in plans} >= {1, 2, 3}
    assert sum(len(p.stages) > 1 and p.processes > len(p.stages) for p in plans) >= 10


numbers = st.integers(0, 1000)
layer = st.builds(
    Layer, st.just(""), st.floats(0.01, 10), numbers, numbers, st.integers(0, 100)
)
speeds = st.floats(10, 10000)
rules = st.builds(
    Rules, st.one_of(st.just(math.inf), st.floats(0, 5000)), st.booleans(),
    st.booleans(), st.booleans(),
)  # fmt: skip


@settings(max_examples=200)
@given(
    st.lists(layer, min_size=1, max_size=6),
    st.builds(Level, st.integers(1, 4), speeds),
    rules,
)
def test_no_layers_make_it_miss_the_best_plan(layers, level, rules):
    same_as_all(layers, [level], rules)
