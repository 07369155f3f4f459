"""An optimiser that is given to a trainer is copied: no state goes over to another one."""

import numpy as np
import pytest

from stoilo.learn import Adagrad, Adam, LocalBackend, fit
from tests.support.points import make_model, make_samples


async def train(method, optimizer):
    async with LocalBackend(1) as place:
        trained = await fit(
            method, make_model(), make_samples(), place,
            epochs=2, batch=20, optimizer=optimizer,
        )  # fmt: skip
    return trained.snapshot.parameters["w"]


@pytest.mark.parametrize("method", ["dpbgd", "downpour"])
@pytest.mark.parametrize(
    "make", [lambda: Adam(0.05), lambda: Adagrad(0.1)], ids=["adam", "adagrad"]
)
async def test_optimiser_given_twice_trains_as_two_fresh_ones(method, make):
    shared = make()
    twice = [await train(method, shared) for _ in range(2)]
    fresh = [await train(method, make()) for _ in range(2)]
    np.testing.assert_array_equal(twice, fresh)


async def test_copy_carries_the_state_that_the_optimiser_already_has():
    used = Adagrad(0.1)
    used.step({"w": np.zeros((4, 3))}, {"w": np.full((4, 3), 9.0)})
    assert not np.array_equal(
        await train("dpbgd", used), await train("dpbgd", Adagrad(0.1))
    )
