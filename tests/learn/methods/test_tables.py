"""Tables that we measured ourselves for published methods, measured again.

The figures called `reference` are our own, of earlier runs of our own on the digits: no
paper has them. What a paper says stands where it is compared with, by its name.

Digits, fixed seeds, a virtual clock, one thread: nothing here depends on how busy the
machine is.
"""

import functools
import itertools
from typing import NamedTuple

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from stoilo.learn.methods.base import LocalWork
from stoilo.learn.methods.downpour import Downpour, DownpourSettings
from stoilo.learn.methods.federated import FederatedSettings, diloco, fedavg
from stoilo.learn.methods.optimizers import Adagrad, Adam, Sgd
from stoilo.learn.methods.synchronous import (
    LargeMinibatch,
    LargeMinibatchSettings,
    Synchronous,
    SynchronousSettings,
)
from stoilo.learn.methods.vcasgd import Vcasgd, VcasgdSettings
from tests.support.learning import (
    Fleet,
    Net,
    Volunteers,
    load_digits,
    make_overlapping,
    run_replicas,
    run_serially,
    split_evenly,
)

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("one_thread")]
NET = Net((64, 64, 10))
SEEDS = range(3)


@pytest.fixture
def one_thread():
    """Small matrices gain nothing from threads, and sums stay in one order."""
    with threadpool_limits(1):
        yield


def gather(parts, net=NET):
    digits = load_digits()
    return Volunteers(net, digits.images, digits.labels, split_evenly(1400, parts))


def score(method, net=NET):
    """Mean training loss and test accuracy of the newest version."""
    digits, w = load_digits(), method.snapshot.parameters
    loss, _, _ = net.differentiate(w, digits.images, digits.labels)
    return loss / 1400, net.score(w, digits.test_images, digits.test_labels)


# --- §1: one step an epoch is weak ------------------------------------------------------


@pytest.mark.parametrize(("epochs", "parts", "block", "fraction", "reference"), [
    (10, 1, 32, 1.0, 0.935),
    (10, 8, 0, 1.0, 0.355),
    (10, 8, 15, 1.0, 0.914),
    (10, 8, 15, 0.875, 0.904),
    (200, 8, 0, 1.0, 0.957),
])  # fmt: skip
def test_steps_an_epoch_decide_what_batches_of_gradients_learn(
    epochs, parts, block, fraction, reference
):
    crew = gather(parts)
    settings = SynchronousSettings(epochs, block=block, fraction=fraction)
    method = Synchronous(crew.start(), crew.sizes, Adam(1e-3), settings)
    run_replicas(method, crew.answer, Fleet([1.0] * parts, jitter=0.5))
    assert score(method)[1] == pytest.approx(reference, abs=0.06)


# --- §2 and test 4, 5: the share that the server keeps ----------------------------------

MIXED = {  # alpha → test accuracy after epochs 1, 5, 20
    0.7: (0.872, 0.938, 0.983),
    "e/(e+1)": (0.857, 0.943, 0.979),
    0.95: (0.798, 0.914, 0.962),
    0.99: (0.242, 0.826, 0.918),
    0.999: (0.156, 0.181, 0.483),
}


class Forgotten(Vcasgd):
    """Does not give out again what was lost."""

    def lose(self, order):
        pass


def mix(alpha, lost=0.0, seed=0, kind=Vcasgd, marks=(1, 5, 20)):
    crew, found = gather(28), []
    local = LocalWork(0.5, batch=10)
    settings = VcasgdSettings(marks[-1], local, alpha, seed=seed)
    method = kind(crew.start(seed), crew.sizes, settings)

    def note(event):
        done = event.update is not None and event.update.epoch_ended
        if done and event.update.epoch + 1 in marks:
            found.append(score(method)[1])
        return False

    fleet = Fleet(np.linspace(1, 3, 6), jitter=0.2, lost=lost, seed=seed)
    run_replicas(method, crew.answer, fleet, note)
    return found


def average(alpha, **more):
    return np.mean([mix(alpha, seed=seed, **more) for seed in SEEDS], axis=0)


def test_share_that_is_kept_decides_how_fast_it_learns():
    found = {alpha: average(alpha) for alpha in MIXED}
    for alpha, reference in MIXED.items():
        assert found[alpha] == pytest.approx(reference, abs=0.06)
    first = [accuracies[0] for accuracies in found.values()]
    assert all(one > other - 0.02 for one, other in itertools.pairwise(first))
    assert all(one > other + 0.05 for one, other in itertools.pairwise(first[1:]))


def test_exchanged_shares_would_not_be_taken_for_it():
    """Control: mixing with ``1 - alpha`` makes the crawling one the fastest."""
    for alpha in (0.95, 0.99, 0.999):
        first = average(1.0 - alpha, marks=(1,))[0]
        assert first != pytest.approx(MIXED[alpha][0], abs=0.06)


def test_a_fifth_of_the_orders_lost_costs_no_accuracy():
    lost, whole = average(0.95, lost=0.2), average(0.95)
    assert abs(lost[-1] - whole[-1]) < 0.01
    assert lost[-1] == pytest.approx(0.960, abs=0.02)


def test_lost_parts_that_do_not_go_out_again_end_no_epoch():
    """Control: the losses are there, and only a second order makes up for one."""
    with pytest.raises(AssertionError, match="not finished"):
        mix(0.95, lost=0.2, kind=Forgotten, marks=(1,))


# --- §3 and test 6: Adagrad rescues asynchrony -------------------------------------------


class Forgetful(Adagrad):
    """Adagrad whose sums of squares end with each task: the toy's mistake."""

    def step(self, parameters, gradient):
        self._squares = {}
        return super().step(parameters, gradient)


def push(optimizer, replicas):
    """Loss, accuracy, virtual time and mean staleness after 3000 updates."""
    crew = gather(replicas)
    settings = DownpourSettings(passes=1000, batch=10, updates=3000)
    method = Downpour(crew.start(), crew.sizes, optimizer, settings)
    times = np.linspace(1, 3, replicas) if replicas > 1 else (1.0,)
    with np.errstate(over="ignore", invalid="ignore"):
        events = run_replicas(method, crew.answer, Fleet(times, jitter=0.2))
    ages = [event.update.staleness for event in events]
    return *score(method), events[-1].time, np.mean(ages)


def test_sixteen_replicas_make_plain_steps_diverge_and_adagrad_rescues_them():
    serial, plain, rescued = (
        push(Sgd(0.5), 1),
        push(Sgd(0.5), 16),
        push(Adagrad(0.05), 16),
    )
    assert (serial[0] < 0.03, serial[1] > 0.98) == (True, True)
    assert (plain[0] > 50, plain[1] < 0.2) == (True, True)
    assert (rescued[0] < 0.12, rescued[1] >= 0.95) == (True, True)
    assert rescued[2] == pytest.approx(327, rel=0.1)
    assert serial[2] == pytest.approx(2999, rel=0.01)
    assert rescued[3] == pytest.approx(15, abs=0.1)


@pytest.mark.parametrize(("kind", "rate", "replicas", "least", "most"), [
    (Adagrad, 0.05, 1, 0.975, 1.0),
    (Adagrad, 0.2, 16, 0.9, 0.965),
    (Forgetful, 0.05, 16, 0.0, 0.93),
])  # fmt: skip
def test_rate_and_place_of_the_squares_matter(kind, rate, replicas, least, most):
    assert least <= push(kind(rate), replicas)[1] <= most


# --- §5 and test 9: linear scaling and warm-up -------------------------------------------

DEEP = Net((64, 64, 64, 64, 64, 64, 64, 10), rectified=True)
FIVE = range(5)  # all that were tried; the page of large minibatches has their numbers
EASY, HARD = load_digits, make_overlapping
EPOCHS = {EASY: 16, HARD: 30}  # false labels are learned late; the page has 30 of both


class Ended(NamedTuple):
    """What came of one seed: training loss, test error (%), worst step of five epochs."""

    loss: float
    error: float
    early: float


def enlarge(data, k, kind, scaled, seed):
    """Train k parts of n = 4 at the rate .005, times k if scaled."""
    known = data()
    crew = Volunteers(DEEP, known.images, known.labels, split_evenly(1400, k))
    rate = 0.005 if scaled else 0.005 / k
    epochs = EPOCHS[data]
    settings = LargeMinibatchSettings(epochs, block=4, rate=rate, kind=kind, seed=seed)
    method = LargeMinibatch(crew.start(seed), crew.sizes, settings)
    with np.errstate(over="ignore", invalid="ignore"):
        updates = run_serially(method, crew.answer)
        w = method.snapshot.parameters
        loss, _, _ = DEEP.differentiate(w, known.images, known.labels)
        right = DEEP.score(w, known.test_images, known.test_labels)
    losses = [update.loss for update in updates if update.epoch < 5]
    steps = np.reshape(losses[: len(losses) // k * k], (-1, k)).mean(axis=1)
    return Ended(loss / 1400, 100 * (1 - right), steps.max())


@functools.cache
def scale(data, k, kind, scaled=True):
    """Return what came of all five seeds, as arrays of five."""
    found = [enlarge(data, k, kind, scaled, seed) for seed in FIVE]
    return Ended(*np.array(found).T)


@pytest.mark.timeout(900)
def test_without_scaling_a_large_minibatch_generalises_worse_where_classes_overlap():
    """The linear rule's claim, of every run of five seeds; the control is the unscaled rate.

    Errors at k = 16 are 15 to 20 % scaled and 25 to 28 % not, which fits the false labels.
    """
    plain = scale(HARD, 16, "none", scaled=False)
    for key in ((1, "none"), (16, "none"), (16, "gradual")):
        assert scale(HARD, *key).error.max() < plain.error.min()
        assert np.all(scale(HARD, *key).loss > plain.loss)


@pytest.mark.timeout(900)
def test_large_minibatches_of_digits_fit_less_than_the_small_one_does():
    """Of the digits no order of all test errors holds in each seed: one sample is .25 %.

    Means of five: 1.8 (small), 4.0 (gradual), 2.8 (no warm-up), 9.0 (constant); 3.2 not
    scaled. The last bits decide what becomes of a seed, and only the constant warm-up is told
    from the others.
    """
    plain, small = scale(EASY, 16, "none", scaled=False), scale(EASY, 1, "none")
    sudden, gradual, constant = (
        scale(EASY, 16, kind) for kind in ("none", "gradual", "constant")
    )
    for other in (plain, sudden, gradual, constant):
        assert 2 * np.median(small.loss) < np.median(other.loss)
    assert np.all(constant.loss > plain.loss)
    others = (plain, sudden, gradual)
    assert constant.error.mean() > 1.2 * max(one.error.mean() for one in others)


@pytest.mark.timeout(900)
def test_with_warmup_no_early_step_of_16_parts_explodes_and_without_it_one_run_does():
    """The worst mean loss of a step of five epochs; the first step's is 2.3 to 2.9.

    Without warm-up one seed of five explodes (to 4.1).
    """
    for kind in ("gradual", "constant"):
        assert np.all(scale(EASY, 16, kind).early < 3.0)
    assert np.sum(scale(EASY, 16, "none").early > 3.5) == 1


@pytest.mark.timeout(900)
def test_linear_rule_breaks_at_32_parts_of_digits_and_not_where_classes_overlap():
    """Control: the rule has an upper limit, which depends on the data.

    It is chaotic there: the last bits of a sum decide which runs end in chance (33 to 56 %
    mean error of a kind). No kind of warm-up lifts it.
    """
    kinds = ("none", "gradual")
    assert np.mean([scale(EASY, 32, kind).error for kind in kinds]) > 25
    for kind in kinds:
        assert np.all(scale(HARD, 32, kind).error < 35)


# --- §12: many local steps, few communications -------------------------------------------


def test_outer_momentum_learns_more_from_as_many_rounds():
    local = LocalWork(1e-3, batch=16, steps=20, optimizer="adamw")
    crew, found = gather(8), []
    for kind in (diloco, fedavg):
        method = kind(crew.start(), crew.sizes, FederatedSettings(30, local))
        run_serially(method, crew.answer)
        found.append(score(method))
    (ours, accuracy), (plain, _) = found
    assert (ours < 0.05, accuracy >= 0.98) == (True, True)
    assert plain > 2 * ours
