"""Cut, noised and counted: what ε claims, each claim with a control."""

import math
import statistics

import numpy as np
import pytest
from scipy import stats

from stoilo.core.errors import UsageError
from stoilo.learn.core.orders import Reply, Snapshot
from stoilo.learn.core.tensors import flatten, safe_norm
from stoilo.learn.methods.base import LocalWork
from stoilo.learn.methods.federated import FederatedSettings, fedavg
from stoilo.learn.methods.optimizers import Momentum, Sgd
from stoilo.learn.methods.overlapping import DoubleBuffered
from stoilo.learn.methods.privacy import (
    Privacy,
    PrivateSum,
    draw_normals,
    find_epsilon,
    make_private,
)
from stoilo.learn.methods.robust import RobustSum
from stoilo.learn.methods.synchronous import (
    LargeMinibatch,
    LargeMinibatchSettings,
    Synchronous,
    SynchronousSettings,
    sum_gradients,
)
from tests.support.learning import Net, Volunteers, load_digits, run_serially
from tests.support.resuming import store

LIKE = {"w": np.zeros((3, 4)), "b": np.zeros(4)}
CREW = Volunteers(
    Net((64, 10)),
    load_digits().images,
    load_digits().labels,
    np.split(np.arange(60), [9, 20, 33]),
)


def make_replies(seed, sizes=(0.1, 1.0, 300.0), samples=(5, 9, 2)):
    """Return a reply for each part whose mean gradient has that length."""
    rng, found = np.random.default_rng(seed), []
    for size, count in zip(sizes, samples, strict=True):
        way = {name: rng.standard_normal(a.shape) for name, a in LIKE.items()}
        length = size * count / safe_norm(way)
        found.append(Reply(0, count, 0.0, {n: length * a for n, a in way.items()}))
    return found


def average(replies, privacy, parts=3, **more):
    """Return the noised mean of a step as one vector."""
    total = PrivateSum(privacy, parts, LIKE, **more)(replies)
    return flatten(total) / sum(reply.samples for reply in replies)


def make(seed=7, **more):
    settings = SynchronousSettings(**{"epochs": 4, "block": 5, **more})
    method = Synchronous(CREW.start(), CREW.sizes, Momentum(0.1), settings)
    make_private(method, Privacy(1.0, 0.5, seed=seed), 4)
    return method


def exact_delta(epsilon, width):
    """Return δ of Gaussian noise of deviation 1/width (Balle and Wang 2018, theorem 8)."""
    phi = statistics.NormalDist().cdf
    beyond = phi(-width / 2 - epsilon / width)
    return phi(width / 2 - epsilon / width) - math.exp(epsilon) * beyond


@pytest.mark.parametrize(("noise", "steps", "delta", "published", "tight"), [
    (1.0, 1, 1e-5, 4.7283947759597, 4.37717810002877),
    (4.0, 100, 1e-5, 14.13070141770708, 13.206712241919588),
    (0.7, 1, 1e-6, 7.857885954287308, 7.372642733661649),
    (20.0, 1000, 1e-5, 8.07839160271638, 7.5112759040690085),
    (1.1, 10, 1e-5, 16.856677599575107, 15.782719508697252),
    (50.0, 100, 1e-6, 0.8999352677556872, 0.8341175648491818),
])  # fmt: skip
def test_epsilon_is_that_of_a_published_accountant(
    noise, steps, delta, published, tight
):
    """Vectors of dp-accounting 0.6.0: its Rényi accountant, and its loss distributions."""
    found = find_epsilon(steps / (2 * noise**2), delta)
    assert found == pytest.approx(published, rel=1e-4)
    assert tight < found < 1.1 * tight


@pytest.mark.parametrize("delta", [1e-9, 1e-5, 1e-2])
@pytest.mark.parametrize("spent", [1e-6, 1e-3, 0.1, 1.0, 30.0])
def test_epsilon_holds_by_the_exact_formula_and_a_smaller_one_does_not(spent, delta):
    epsilon, width = find_epsilon(spent, delta), math.sqrt(2 * spent)
    assert exact_delta(epsilon, width) <= delta
    if epsilon > 0.1:  # control: nearly as small as can be
        assert exact_delta(0.75 * epsilon, width) > delta


def test_nothing_spent_is_no_epsilon():
    assert find_epsilon(0.0, 1e-5) == 0.0


def test_noise_of_the_operating_system_is_normal_and_independent():
    """Kolmogorov and Smirnov at 1e-6; the control is noise of a tenth more."""
    for entropy in [np.random.Generator(np.random.PCG64(s)).bytes for s in range(5)]:
        found = draw_normals(40_000, entropy)
        assert stats.kstest(found, "norm").pvalue > 1e-6
        assert stats.kstest(1.1 * found, "norm").pvalue < 1e-6
        assert abs(np.corrcoef(found[:-1], found[1:])[0, 1]) < 0.03


def test_no_entropy_gives_a_number_that_is_not_finite():
    for byte in (b"\x00", b"\xff"):
        assert np.isfinite(draw_normals(8, lambda size, b=byte: b * size)).all()


def test_part_changes_a_step_by_no_more_than_the_clip():
    """With equal noise, the step with a part less the step without it; sizes differ."""
    privacy = Privacy(2.0, 1.0, seed=3)
    for seed in range(5):
        replies = make_replies(seed)
        for left in range(3):
            rest = [reply for index, reply in enumerate(replies) if index != left]
            change = average(replies, privacy) - average(rest, privacy)
            own = safe_norm(replies[left].tensors) / replies[left].samples
            assert np.linalg.norm(change) == pytest.approx(min(own, 2.0) / 3)


def test_without_a_clip_a_part_changes_a_step_as_far_as_it_likes():
    """Control: the plain mean, which grows with a part's gradient."""
    found = []
    for size in (1.0, 1e3, 1e6):
        replies = make_replies(0, sizes=(1.0, 1.0, size))
        change = flatten(sum_gradients(replies)) - flatten(sum_gradients(replies[:2]))
        found.append(np.linalg.norm(change))
        moved = average(replies, Privacy(1.0, 0.1, seed=0))
        assert np.linalg.norm(moved) < 2.0
    assert found == pytest.approx([2.0, 2e3, 2e6])


def test_noise_has_the_size_that_is_counted_and_reaches_what_has_no_gradient():
    privacy, parts = Privacy(2.0, 1.5), 4
    like = {"w": np.zeros(20_000), "frozen": np.zeros(20_000)}
    reply = Reply(0, 7, 0.0, {"w": np.zeros(20_000)})
    found = PrivateSum(privacy, parts, like)([reply])
    for name in like:
        noise = found[name] / reply.samples
        assert noise.std() == pytest.approx(1.5 * 2.0 / parts, rel=0.03)
        assert abs(noise.mean()) < 0.03


def tell_apart(noise, rounds=4000):
    """Return how often the better half of guesses says rightly whether a part was in."""
    rng = np.random.default_rng(5)
    like, one = {"w": np.zeros(1)}, Reply(0, 1, 0.0, {"w": np.ones(1)})
    none = Reply(0, 1, 0.0, {"w": np.zeros(1)})
    add_up, right = PrivateSum(Privacy(1.0, noise), 1, like, rng.bytes), 0
    for index in range(rounds):
        answered = add_up([one if index % 2 else none])["w"][0]
        right += (answered > 0.5) == bool(index % 2)
    return right / rounds


def test_best_guess_whether_a_part_took_part_is_as_rarely_right_as_the_noise_says():
    """Φ(1/(2·noise)) of the guesses, for one step; without much noise all of them."""
    for noise in (1.0, 4.0):
        wanted = statistics.NormalDist().cdf(0.5 / noise)
        assert tell_apart(noise) == pytest.approx(wanted, abs=0.03)
    assert tell_apart(0.05) == 1.0


def test_long_way_of_local_steps_is_cut_too():
    local = LocalWork(5.0, batch=2)
    settings = SynchronousSettings(1, local=local)
    method = Synchronous(CREW.start(), CREW.sizes, Sgd(1.0), settings)
    make_private(method, Privacy(1e-3, 1e-6, seed=0), 4)
    run_serially(method, CREW.answer)
    way = flatten(method.snapshot.parameters) - flatten(CREW.start().parameters)
    assert 0 < np.linalg.norm(way) < 1.01e-3


def test_steps_add_up_and_a_resumed_run_goes_on_counting():
    method = make()
    run_serially(method, CREW.answer)
    again = make()
    again.load(store(method.save()))
    assert again.combine.steps == method.steps == 24
    assert again.combine.epsilon == method.combine.epsilon
    assert again.combine.epsilon == find_epsilon(24 * 0.5 / 0.5**2, 1e-5)


def step(method):
    """Answer one step; return by how much it moved the parameters."""
    before = method.snapshot
    for order in method.next_orders(9):
        method.take(order, CREW.answer(order))
    assert method.snapshot.version == before.version + 1
    return flatten(method.snapshot.parameters) - flatten(before.parameters)


@pytest.mark.parametrize("after", [1, 2, 5])
def test_resumed_run_with_a_seed_draws_what_the_unbroken_one_draws_next(after):
    whole, cut = make(), make()
    for _ in range(after):
        step(whole), step(cut)
    resumed = make()
    resumed.load(store(cut.save()))
    assert np.array_equal(step(resumed), step(whole))


@pytest.mark.parametrize("seed", [7, None])
def test_no_noise_is_drawn_twice_neither_by_steps_nor_after_a_resume(seed):
    like, drawn = {"w": np.zeros(500)}, []
    saved = PrivateSum(Privacy(1.0, 1.0, seed=seed), 1, like).save()
    for _ in range(4):  # each taken up by another process
        one = PrivateSum(Privacy(1.0, 1.0, seed=seed), 1, like)
        one.load(store(saved))
        drawn.append(one([Reply(0, 1, 0.0, {"w": np.zeros(500)})])["w"])
        saved = one.save()
    alike = np.abs(np.corrcoef(drawn)[np.triu_indices(4, 1)])
    assert alike.max() < 0.25


def test_noise_of_the_system_differs_when_a_state_is_taken_up_twice():
    """Control: with a seed, which makes a run repeatable, it is the same."""
    saved = store(make(seed=None).save())
    found = {}
    for seed in (None, 7):
        ends = []
        for _ in range(2):
            method = make(seed=seed)
            method.load(saved)
            ends.append(step(method))
        found[seed] = np.array_equal(*ends)
    assert found == {None: False, 7: True}


def with_buffers():
    start = Snapshot(0, CREW.start().parameters, {"mean": np.zeros(3)})
    return Synchronous(start, CREW.sizes, Sgd(0.1), SynchronousSettings(1))


def with_rule():
    settings = SynchronousSettings(1)
    return Synchronous(
        CREW.start(), CREW.sizes, Sgd(0.1), settings, combine=RobustSum()
    )


def plain(kind=Synchronous, **more):
    settings = SynchronousSettings(1, **more)
    return kind(CREW.start(), CREW.sizes, Sgd(0.1), settings)


def averaging():
    return fedavg(CREW.start(), CREW.sizes, FederatedSettings(1, LocalWork(0.1)))


@pytest.mark.parametrize(("make_method", "why"), [
    (with_buffers, "BatchNorm"),
    (with_rule, "robust rule"),
    (lambda: plain(late="queue", fraction=0.5), "queued"),
    (lambda: plain(DoubleBuffered), "DoubleBuffered"),
    (averaging, "Federated"),
])  # fmt: skip
def test_mix_of_which_epsilon_would_be_untrue_is_refused_by_name(make_method, why):
    with pytest.raises(UsageError, match=f"{why}.*STO-T040"):
        make_private(make_method(), Privacy(1.0, 1.0), 4)


def test_large_minibatches_and_partial_steps_can_be_private():
    wanted = LargeMinibatchSettings(1, 5, 0.1)
    large = LargeMinibatch(CREW.start(), CREW.sizes, wanted)
    for method in (large, plain(fraction=0.5)):
        private = make_private(method, Privacy(1.0, 1.0), 4)
        run_serially(method, CREW.answer)
        assert private.steps == method.steps > 0


@pytest.mark.parametrize("wrong", [
    {"clip": 0.0}, {"clip": math.inf}, {"clip": math.nan}, {"noise": 0.0},
    {"noise": math.nan}, {"delta": 0.0}, {"delta": 1.0}, {"seed": -1},
])  # fmt: skip
def test_privacy_that_protects_nothing_is_refused(wrong):
    with pytest.raises(UsageError, match="STO-T040"):
        Privacy(**{"clip": 1.0, "noise": 1.0, **wrong})
