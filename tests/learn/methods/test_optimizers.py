import numpy as np
import pytest

from stoilo.learn.core.tensors import flatten
from stoilo.learn.methods.optimizers import (
    AdaDelta,
    Adagrad,
    Adam,
    Momentum,
    RmsProp,
    Sgd,
)

START = {"a": np.array([0.5, -1.0, 2.0]), "b": np.array([0.25])}
SLOPES = [
    {"a": np.array([0.3, -0.2, 0.1]), "b": np.array([-1.0])},
    {"a": np.array([0.1, 0.4, -0.3]), "b": np.array([0.5])},
    {"a": np.array([-0.2, 0.0, 2.0]), "b": np.array([0.125])},
    {"a": np.array([1.0, -1.0, 0.5]), "b": np.array([-0.25])},
]
OURS = {
    "sgd": lambda: Sgd(0.1),
    "momentum and decay": lambda: Sgd(0.1, momentum=0.9, decay=0.01),
    "nesterov": lambda: Sgd(0.1, momentum=0.9, nesterov=True),
    "adam": lambda: Adam(0.01, decay=0.1),
    "adamw": lambda: Adam(0.01, decay=0.1, decoupled=True),
    "adagrad": lambda: Adagrad(0.05),
    "rmsprop": lambda: RmsProp(0.01, kept=0.9),
    "adadelta": lambda: AdaDelta(1.0),
}
TORCH = {  # torch 2.13 in double precision, printed by torch_steps.py
    "sgd": [0.38, -0.92, 1.77, 0.3125],
    "momentum and decay": [
        0.30350113068049994,
        -0.930613349321,
        1.5990159196119997,
        0.45669122572525,
    ],
    "nesterov": [0.20695699999999997, -0.865658, 1.425219, 0.501185],
    "adam": [
        0.47012353152021485,
        -0.9837837966347978,
        1.9722391966938326,
        0.2652058861443623,
    ],
    "adamw": [
        0.4709746156845495,
        -0.9881564356813636,
        1.9753287315234933,
        0.2652940702597263,
    ],
    "adagrad": [
        0.4140854453302256,
        -0.9490778131103985,
        1.9360611025709251,
        0.28293028755693206,
    ],
    "rmsprop": [
        0.44599002055257786,
        -0.9675719392694037,
        1.9592764131807545,
        0.27089615986904747,
    ],
    "adadelta": [
        0.49010739831539235,
        -0.9935768823820843,
        1.9900120493252287,
        0.252369796841308,
    ],
}


def walk(optimizer, rates=()):
    w = START
    for number, slope in enumerate(SLOPES):
        if rates:
            optimizer.rate = rates[number]
        w = optimizer.step(w, slope)
    return flatten(w)


@pytest.mark.parametrize("name", OURS)
def test_steps_are_those_of_torch(name):
    assert np.allclose(walk(OURS[name]()), TORCH[name], rtol=1e-12, atol=1e-14)


def test_adagrad_keeps_the_sum_of_squares_of_what_it_got():
    optimizer = Adagrad(0.05)
    walk(optimizer)
    wanted = sum(slope["a"] ** 2 for slope in SLOPES)
    assert np.allclose(optimizer.squares["a"], wanted, rtol=1e-14)


def test_both_forms_of_momentum_agree_after_a_change_of_rate_when_corrected():
    rates = (0.1, 0.4, 0.4, 0.02)
    outside = walk(Sgd(0.1, momentum=0.9), rates)
    assert np.allclose(walk(Momentum(0.1), rates), outside, rtol=1e-12)
    assert not np.allclose(
        walk(Momentum(0.1, corrected=False), rates), outside, rtol=0.01
    )


def test_types_of_the_parameters_are_kept():
    w = {"a": np.ones(3, np.float32)}
    for optimizer in (Sgd(0.1), Adam(), Adagrad(), Momentum(0.1)):
        assert optimizer.step(w, {"a": np.ones(3)})["a"].dtype == np.float32


def published(optimizer):
    """Return the published AdaDelta's direction: the ratio, without the gradient."""
    square = optimizer._squares["w"]
    return -np.sqrt(optimizer.epsilon) / np.sqrt(square + optimizer.epsilon)


def test_adadelta_steps_against_the_gradient_where_the_published_one_does_not():
    optimizer, slope = AdaDelta(), np.array([-1.0, 1.0])
    moved = optimizer.step({"w": np.zeros(2)}, {"w": slope})["w"]
    assert (np.sign(moved) == [1.0, -1.0]).all()
    assert (np.sign(published(optimizer)) == np.sign(moved[1])).all()


@pytest.mark.parametrize("make", [RmsProp, AdaDelta])
def test_restarted_rule_goes_on_with_the_same_steps(make):
    whole, first, second = make(), make(), make()
    w = START
    for number, slope in enumerate(SLOPES):
        if number == 2:
            second.load(first.save())
            first = second
        w = first.step(w, slope)
    np.testing.assert_array_equal(flatten(w), walk(whole))
