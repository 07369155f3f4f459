"""Many steps of a line search in one pass: fewer passes where steps are badly scaled."""

import asyncio
from dataclasses import replace

import numpy as np
import pytest

from stoilo.core.errors import TrustError
from stoilo.learn.backends.local import LocalBackend
from stoilo.learn.core.data import Part
from stoilo.learn.core.models import ArrayModel
from stoilo.learn.core.orders import Reply, Snapshot
from stoilo.learn.driver.acceptance import Guard, check_reply
from stoilo.learn.driver.run import Run
from stoilo.learn.kernels import array_models
from stoilo.learn.methods.lbfgs import LineSearch, Point, Rules
from stoilo.learn.methods.sandblaster import Sandblaster, SandblasterSettings
from tests.support.learning import Net, Volunteers, load_digits, run_serially

FLAT = 1e-7  # curvature: the first step is too short by seven powers of ten
NET = Net((64, 10))


def bowl(parameters, x, _):
    """A wide bowl, the same for each sample: sum of losses and gradient."""
    gap = parameters["w"] - 3000.0
    return 0.5 * FLAT * float(np.sum(gap * gap)) * len(x), {"w": FLAT * gap * len(x)}


def make(ray, parts=(3, 4), **more):
    rules = Rules(ray=ray, tolerance=1e-9, **more)
    start = Snapshot(0, {"w": np.zeros(5)})
    return Sandblaster(start, parts, SandblasterSettings(rules=rules))


def compute(order):
    """What the kernels for arrays answer."""
    kwargs = {
        "function": bowl,
        "parameters": order.snapshot.parameters,
        "data": {"x": np.zeros((order.samples, 1)), "y": np.zeros(order.samples)},
        "rows": None,
        "settings": order.settings,
        "version": order.snapshot.version,
    }
    return getattr(array_models, order.kernel)(kwargs)


def answer(order):
    raw = compute(order)
    return Reply(
        raw["version"], raw["samples"], raw["loss_sum"], raw["tensors"],
        numbers=raw["numbers"],
    )  # fmt: skip


def first_ray(method):
    """Return the method's first order along a ray."""
    order = method.next_orders(1)[0]
    while order.kernel != "ray":
        method.take(order, answer(order))
        order = method.next_orders(1)[0]
    return order


@pytest.mark.parametrize(("ray", "least", "most"), [(8, 4, 10), (0, 20, 40)])
def test_long_search_needs_few_passes_by_rays(ray, least, most):
    """Control: one by one, the step is doubled some twenty times."""
    method = make(ray)
    passes = len(run_serially(method, answer)) / 2
    assert method.coordinator.converged
    assert np.allclose(method.snapshot.parameters["w"], 3000.0, atol=0.1)
    assert least <= passes <= most


def test_rays_find_the_minimum_that_single_trials_find():
    digits = load_digits()
    cut = np.split(np.arange(300), [90, 180])
    crew, found = Volunteers(NET, digits.images, digits.labels, cut), []
    for ray in (0, 8):
        rules = Rules(ray=ray, curvature=0.1)
        settings = SandblasterSettings(2, 1e-3, 3, rules=rules)
        method = Sandblaster(
            Snapshot(0, NET.start(1, spread=1.0)), crew.sizes, settings
        )
        updates = run_serially(method, crew.answer)
        found.append(method.value)
        assert method.coordinator.converged
        assert any("t" in update.key for update in updates) == (ray > 0)
    assert found[0] == pytest.approx(found[1], rel=1e-7)


@pytest.mark.parametrize("numbers", [
    {}, {"loss0": 1.0}, {f"{n}{k}": 1e300 for k in range(8) for n in ("loss", "slope")},
])  # fmt: skip
def test_answer_to_a_ray_without_its_numbers_goes_out_again(numbers):
    method = make(8)
    order = first_ray(method)
    update = method.take(order, replace(answer(order), numbers=numbers))
    assert not update.applied
    assert order.key in {again.key for again in method.next_orders(9)}


def test_lowest_good_point_of_a_ray_is_chosen_and_lies_that_are_no_numbers_are_not():
    search = LineSearch(value=4.0, slope=-8.0, step=1.0)
    points = [Point(t, (t - 2) ** 2, 2 * (t - 2)) for t in (0.1, 1.0, 1.9, 2.5, 9.0)]
    points.append(Point(2.0, float("nan"), 0.0))
    assert search.choose(points, Rules())
    assert search.step == 1.9


def test_ray_without_a_good_point_brackets_one():
    search = LineSearch(value=4.0, slope=-8.0, step=1.0)
    points = [Point(t, (t - 2) ** 2, 2 * (t - 2)) for t in (0.05, 9.0)]
    assert not search.choose(points, Rules(curvature=0.4))
    assert (search.low, search.high) == (0.05, 9.0)
    assert search.spread(3) == pytest.approx((2.2875, 4.525, 6.7625))


def test_driver_carries_rays_like_any_order():
    parts = [Part(np.zeros((n, 1)), np.zeros(n)) for n in (3, 4)]
    model = ArrayModel({"w": np.zeros(5)}, bowl)

    async def train():
        async with Run(make(8), model, parts, LocalBackend()) as run:
            return [update.key async for update in run.updates()], run.method

    keys, method = asyncio.run(train())
    assert any("t" in key for key in keys)
    assert method.coordinator.converged


@pytest.mark.parametrize("keep", [0, 1, 15])
def test_ray_that_lacks_numbers_is_refused(keep):
    order = first_ray(make(8))
    told = compute(order)
    numbers = dict(list(told["numbers"].items())[:keep])
    assert len(told["numbers"]) == 16
    check_reply(told, expect(order))
    with pytest.raises(TrustError, match="STO-T010"):
        check_reply({**told, "numbers": numbers}, expect(order))


def test_ray_whose_slope_is_beyond_every_measure_is_refused():
    order = first_ray(make(8))
    told = compute(order)
    lie = {**told, "numbers": {**told["numbers"], "slope3": 1e300}}
    with pytest.raises(TrustError, match="STO-T010"):
        check_reply(lie, expect(order))


def expect(order):
    return Guard(ArrayModel({"w": np.zeros(5)}, bowl), None).expect(order)
