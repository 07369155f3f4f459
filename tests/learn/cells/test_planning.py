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
    Rules,
    Stage,
    plan_copies,
    plan_stages,
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
            plan_stages(layers, levels, rules)
        return
    found = plan_stages(layers, levels, rules)
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
        blind = plan_stages([replace(one, output_bytes=0) for one in layers], levels)
        tree = [((one.begin, one.end), one.replicas) for one in blind.stages]
        real = time_of(tree, 1, layers, levels, Rules())
        worse += real > find_least(layers, levels, Rules()) * 1.001
    assert worse >= 5


def test_cases_have_plans_of_many_kinds():
    plans = [plan_stages(layers, levels) for layers, levels in make_many()]
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


def test_where_copies_are_best_there_is_one_stage_of_all_processes():
    layers = make_layers(1, 2, 1, output=10**6, weights=100)
    found = plan_stages(layers, [Level(8, 10**6)])
    assert found == plan_copies(layers, [Level(8, 10**6)])
    assert (found.config, found.cuts, found.noam) == ("8", (), 1)
    assert found.utilisation == 1


def test_where_weights_are_many_the_stages_are_a_straight_pipeline():
    layers = make_layers(1, 1, 1, 1, output=1, weights=10**9, kept=5)
    found = plan_stages(layers, [Level(4, 10**6)])
    assert (found.config, found.cuts) == ("1-1-1-1", (1, 2, 3))
    assert found.depths == (4, 3, 2, 1)
    assert found.batch_s == 1
    versions = 10**9 + 5
    assert found.memory_bytes == (
        4 * versions,
        *(n * (versions + 1) for n in (3, 2, 1)),
    )
    assert found.traffic_bytes == 6


def test_a_heavy_end_on_one_process_begins_with_as_many_batches_as_the_rest_has():
    layers = [*make_layers(3, 3, output=10), *make_layers(1, output=1, weights=10**9)]
    found = plan_stages(layers, [Level(7, 10**4)])
    assert (found.config, found.cuts, found.batch_s) == ("6-1", (2,), 1)
    assert (found.depths, found.noam) == ((2, 1), 2)


def test_straight_pipelines_have_no_replicas():
    layers = make_layers(1, 2, 1)
    assert plan_stages(layers, FREE).config == "4"
    assert plan_stages(layers, FREE, Rules(straight=True)).config == "1-1-1"


def test_idle_processes_are_used_where_that_is_wanted():
    layers = make_layers(1, weights=10**6)
    assert plan_stages(layers, [Level(2, 1000)]).config == "1"
    assert plan_stages(layers, [Level(2, 1000)], Rules(fewer=False)).config == "2"


def test_adding_up_behind_the_computing_costs_the_sum():
    layers = make_layers(1, weights=1000)
    level = Level(2, 2000)  # 4 · 1/2 · 1000 / 2000 = 1 s
    assert plan_copies(layers, [level]).batch_s == 0.5
    assert plan_copies(layers, [level], Rules(overlap=False)).batch_s == 1


def test_on_two_levels_what_is_many_stays_inside():
    layers = make_layers(1, 1, 1, 1, output=10**6, weights=10)
    found = plan_stages(layers, [Level(2, 10**9), Level(2, 10**3)])
    assert found.config == "4"
    heavy = [*layers[:2], *make_layers(1, 1, output=10, weights=10**6)]
    found = plan_stages(heavy, [Level(2, 10**9), Level(2, 10**3)])
    assert (found.config, found.cuts, found.batch_s) == ("2-2", (3,), 1.5)
    assert plan_stages(heavy, [Level(4, 10**3)]).config == "1-1"


WRONG = [([], FREE), (make_layers(0, 0), FREE), (make_layers(1), []),
         (make_layers(1), [Level(0)]), (make_layers(1), [Level(2, 0)])]  # fmt: skip


@pytest.mark.parametrize(("layers", "levels"), WRONG)
def test_nothing_to_plan_is_refused(layers, levels):
    for call in (plan_stages, plan_copies):
        with pytest.raises(UsageError, match="a plan needs") as caught:
            call(layers, levels)
        assert caught.value.code == "STO-T040"


# The published table of VGG16 (arXiv 1806.03377): machines, what copies of the whole
# gained there, and what the pipeline did. Our times are operations, not a measurement; the
# bandwidth is the one at which copies gain just that.

PUBLISHED = [(4, 1.47, 3.14), (8, 2.35, 7.04), (8, 1.36, 6.98), (16, 3.28, 9.86)]


def make_vgg16(batch=32):
    layers, side, before = [], 224, 3
    for width, count in [(64, 2), (128, 2), (256, 3), (512, 3), (512, 3)]:
        for number in range(count):
            weights, places = 9 * before * width, side * side
            side //= 2 if number == count - 1 else 1  # the pool belongs to it
            layers.append(make_part(weights, places, batch, width, side * side))
            before = width
    for inputs, width in [(7 * 7 * 512, 4096), (4096, 4096), (4096, 1000)]:
        layers.append(make_part(inputs * width, 1, batch, width, 1))
    return layers


def make_part(weights, places, batch, width, left):
    return Layer("", 6e-12 * weights * places * batch, 4 * batch * width * left,
                 4 * (weights + width))  # fmt: skip


def find_bandwidth(layers, machines, gain):
    low, high = 1.0, 1e15
    for _ in range(100):
        middle = math.sqrt(low * high)
        slow = plan_copies(layers, [Level(machines, middle)]).speedup < gain
        low, high = (middle, high) if slow else (low, middle)
    return high


def plan_vgg16(machines, gain):
    layers = make_vgg16()
    return plan_stages(
        layers, [Level(machines, find_bandwidth(layers, machines, gain))]
    )


def test_vgg16_has_its_published_parameters():
    assert sum(one.weight_bytes for one in make_vgg16()) == 4 * 138_357_544


def test_vgg16_on_eight_machines_is_planned_as_published():
    for machines, gain, published in PUBLISHED[1:3]:
        found = plan_vgg16(machines, gain)
        assert found.config == "7-1"
        assert 10 <= found.cuts[0] <= 13  # the last convolutions, or what follows them
        assert found.speedup == pytest.approx(published, rel=0.15)


def test_vgg16_on_four_and_sixteen_machines_has_fewer_stages_than_published():
    four, _, _, sixteen = (plan_vgg16(*row[:2]) for row in PUBLISHED)
    assert (four.config, sixteen.config) == ("3-1", "15-1")  # 2-1-1 and 9-5-1-1
    assert four.speedup > PUBLISHED[0][2]
    assert sixteen.speedup > PUBLISHED[3][2]
