"""Wrong replies among right ones: what each rule lets through."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes

from stoilo.core.errors import UsageError
from stoilo.learn.core.checkpoint import Packs
from stoilo.learn.core.orders import Reply
from stoilo.learn.core.states import State
from stoilo.learn.core.tensors import safe_norm, scale
from stoilo.learn.methods.optimizers import Sgd
from stoilo.learn.methods.robust import (
    CentredClipping,
    Clip,
    CoordinateMedian,
    Krum,
    Mean,
    Memory,
    Near,
    RobustSum,
    TrimmedMean,
    clip,
    combine,
    is_sound,
)
from stoilo.learn.methods.synchronous import (
    Synchronous,
    SynchronousSettings,
    sum_gradients,
)
from tests.support.learning import (
    Net,
    Volunteers,
    load_digits,
    run_serially,
    split_evenly,
)

RULES = (
    Mean(),
    Near(),
    Clip(),
    CoordinateMedian(),
    TrimmedMean(),
    Krum(),
    CentredClipping(),
)
BOUNDED = RULES[1:]


def reply(*entries, samples=1, **fields):
    tensors = {"w": samples * np.array(entries, np.float64)}
    return Reply(0, samples, 1.0, tensors, **fields)


def mean_of(found):
    return found.tensors["w"] / found.samples


@pytest.mark.parametrize("rule", RULES)
def test_equal_replies_give_their_own_mean(rule):
    found = combine([reply(1.0, -2.0, samples=n) for n in (1, 7, 700, 3, 5)], rule)
    assert np.allclose(mean_of(found), [1.0, -2.0], rtol=1e-12)
    assert found.samples == 716


@pytest.mark.parametrize("rule", [Mean(), Clip()])
def test_parts_of_unequal_size_weigh_by_their_samples(rule):
    found = combine([reply(1.0), reply(2.0, samples=3), reply(1.5, samples=2)], rule)
    assert found.tensors["w"].tolist() == [10.0]


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("wrong", [math.nan, math.inf, -math.inf, 1.7e308])
def test_reply_that_is_not_finite_or_has_no_norm_is_refused_by_every_rule(rule, wrong):
    replies = [reply(1.0, 1.0) for _ in range(6)]
    found = combine([*replies[:2], reply(wrong, wrong), *replies[2:]], rule)
    assert found.refused == (2,)
    assert np.allclose(mean_of(found), 1.0)


def test_loss_and_buffers_must_be_finite_too():
    assert is_sound(reply(1.0))
    assert not is_sound(Reply(0, 1, math.nan, {"w": np.ones(1)}))
    assert not is_sound(reply(1.0, buffers={"mean": np.array([math.inf])}))
    assert not is_sound(Reply(0, 0, 1.0, {"w": np.ones(1)}))


@pytest.mark.parametrize("rule", BOUNDED)
def test_two_huge_replies_of_ten_move_the_mean_little(rule):
    honest = [reply(1.0 + 0.01 * k, 1.0 - 0.01 * k) for k in range(8)]
    found = combine([*honest, reply(-1e6, 1e6), reply(1e6, 1e6)], rule)
    assert np.abs(mean_of(found) - 1.0).max() < 1.0


def test_two_huge_replies_of_ten_ruin_the_plain_mean():
    honest = [reply(1.0, 1.0) for _ in range(8)]
    found = combine([*honest, reply(-1e6, 1e6), reply(1e6, 1e6)], Mean())
    assert np.abs(mean_of(found) - 1.0).max() > 1e5


def test_clipped_reply_is_named_and_has_three_medians_norm():
    found = combine([reply(1.0), reply(1.0), reply(1.0), reply(-50.0)])
    assert found.suspects == (3,)
    assert found.tensors["w"].tolist() == [0.0]


def test_indices_count_refused_replies_too():
    found = combine([reply(math.nan), *[reply(1.0)] * 3, reply(-50.0)])
    assert (found.refused, found.suspects) == ((0,), (4,))


def test_median_runs_over_earlier_steps():
    before = Memory(norms=(1.0,) * 50)
    found = combine([reply(100.0)], memory=before)
    assert found.tensors["w"].tolist() == [3.0]
    assert combine([reply(100.0)]).tensors["w"].tolist() == [100.0]


def test_memory_forgets_what_is_old():
    memory = Memory(norms=(1.0,) * 1000).with_norms([2.0])
    assert len(memory.norms) == 200
    assert memory.norms[-1] == 2.0


def test_answers_of_zeros_displace_no_norm():
    memory = Memory(norms=(1.0,) * 5)
    for _ in range(300):
        _, memory = clip(reply(0.0), memory, Clip())
    assert clip(reply(1e30), memory, Clip())[0].tensors["w"].tolist() == [3.0]
    assert len(memory.norms) <= 200


def test_single_reply_is_clipped_on_arrival_in_proportion_to_its_samples():
    memory = Memory(norms=(1.0,) * 5)
    cut, after = clip(reply(-40.0, samples=2), memory, Clip())
    assert cut.tensors["w"].tolist() == [-6.0]
    assert after.norms[-1] == 40.0
    assert clip(reply(2.0), memory, Clip())[0].tensors["w"].tolist() == [2.0]


def test_median_of_coordinates_ignores_weights_and_order():
    replies = [reply(1.0, 9.0), reply(2.0, 8.0, samples=50), reply(3.0, 7.0)]
    assert mean_of(combine(replies, CoordinateMedian())).tolist() == [2.0, 8.0]
    assert mean_of(combine(replies[::-1], CoordinateMedian())).tolist() == [2.0, 8.0]


def test_trimmed_mean_leaves_the_ends_out():
    replies = [reply(v) for v in (-1e9, 1.0, 2.0, 3.0, 1e9)]
    assert mean_of(combine(replies, TrimmedMean(0.2))).tolist() == [2.0]
    with pytest.raises(UsageError, match="STO-T040"):
        combine(replies, TrimmedMean(0.6))


def test_krum_gives_one_of_the_replies_and_names_the_far_ones():
    replies = [reply(1.0), reply(1.1), reply(1.2), reply(1.1), reply(90.0)]
    found = combine(replies, Krum(wrong=1))
    assert mean_of(found)[0] == pytest.approx(1.1)
    assert found.suspects == (4,)


def test_too_few_replies_are_refused_by_name():
    with pytest.raises(UsageError, match="STO-T060"):
        combine([reply(math.nan)])
    with pytest.raises(UsageError, match="STO-T060"):
        combine([reply(1.0)] * 3, Krum(wrong=1))


def test_centred_clipping_starts_from_the_last_result():
    first = combine([reply(1.0)] * 5, CentredClipping(radius=0.5))
    second = combine([reply(9.0)] * 5, CentredClipping(radius=0.5), first.memory)
    assert mean_of(second)[0] == pytest.approx(2.5)  # three moves of 0.5


@pytest.mark.parametrize("rule", RULES)
def test_types_stay_those_of_the_replies(rule):
    small = Reply(0, 2, 1.0, {"w": np.ones((2, 3), np.float32)})
    found = combine([small] * 5, rule)
    assert found.tensors["w"].dtype == np.float32
    assert found.tensors["w"].shape == (2, 3)


def test_norm_neither_overflows_nor_underflows_on_the_way():
    assert safe_norm({"w": np.array([3e200, 4e200])}) == pytest.approx(5e200)
    assert safe_norm({"w": np.array([3e-200, 4e-200])}) == pytest.approx(5e-200)
    assert safe_norm({"w": np.zeros(0)}) == 0.0


@given(
    st.lists(st.floats(0.5, 2.0), min_size=6, max_size=12),
    st.lists(st.floats(allow_nan=True, allow_infinity=True), max_size=2),
)
def test_two_replies_of_any_kind_keep_bounded_rules_bounded(honest, hostile):
    replies = [reply(value) for value in honest] + [reply(value) for value in hostile]
    for rule in (Clip(), CoordinateMedian(), TrimmedMean(0.4)):
        assert abs(mean_of(combine(replies, rule))[0]) <= 6.0


def test_sum_of_a_step_is_scaled_to_all_its_samples():
    together = RobustSum(Mean())
    honest = reply(2.0, samples=6)
    assert together([honest, reply(math.nan, samples=2)])["w"].tolist() == [16.0]
    assert together.last.refused == (1,)


def test_wrong_reply_in_the_very_first_step_is_bounded():
    together = RobustSum()
    replies = [reply(-1e6), reply(1.0), reply(1.0), reply(1.0)]
    assert together(replies)["w"].tolist() == [0.0]
    assert together.last.suspects == (0,)


def synchronous(combine_by):
    parts = split_evenly(1400, 10)
    digits = load_digits()
    crowd = Volunteers(Net((64, 10)), digits.images, digits.labels, parts)
    plan = SynchronousSettings(epochs=30)
    method = Synchronous(crowd.start(), crowd.sizes, Sgd(0.5), plan, combine=combine_by)

    def answer(order):
        honest = crowd.answer(order)
        if order.part:
            return honest
        return replace(honest, tensors=scale(honest.tensors, -100.0))

    run_serially(method, answer, room=10)
    found = method.snapshot.parameters
    return crowd.net.score(found, digits.test_images, digits.test_labels)


def test_synchronous_method_with_a_cheat_learns_by_the_robust_sum():
    assert synchronous(RobustSum()) > 0.8


def test_control_the_same_cheat_spoils_the_plain_sum():
    assert synchronous(sum_gradients) < 0.3


def test_rule_goes_on_with_what_it_remembered():
    rng = np.random.default_rng(5)
    step = [Reply(0, 4, 0.0, {"w": rng.normal(size=3)}) for _ in range(5)]
    one, other = RobustSum(CentredClipping(1e-3)), RobustSum(CentredClipping(1e-3))
    fresh = RobustSum(CentredClipping(1e-3))
    one(step)
    other.load(one.save())
    far = [Reply(0, 4, 0.0, {"w": reply.tensors["w"] + 9.0}) for reply in step]
    np.testing.assert_array_equal(other(far)["w"], one(far)["w"])
    assert not np.allclose(fresh(far)["w"], one(far)["w"])


@given(
    st.lists(array_shapes(min_dims=0, max_dims=3, min_side=0), min_size=1, max_size=4),
    st.sampled_from([np.float32, np.float64]),
    st.integers(0, 2**32),
)
def test_centred_clipping_goes_on_to_the_last_bit(tmp_path_factory, shapes, kind, seed):
    rng = np.random.default_rng(seed)

    def step():
        arrays = [{f"t{i}": rng.normal(size=s) for i, s in enumerate(shapes)}] * 5
        forms = [
            {n: np.asarray(a, kind, order="F") for n, a in t.items()} for t in arrays
        ]
        return [Reply(0, 1 + k, 0.0, scale(t, 1.0 + k)) for k, t in enumerate(forms)]

    one, other = RobustSum(CentredClipping()), RobustSum(CentredClipping())
    one(step())
    other.load(through_a_file(one.save(), tmp_path_factory.mktemp("run")))
    last = step()
    for ours, theirs in zip(one(last).items(), other(last).items(), strict=True):
        assert (ours[0], ours[1].tobytes()) == (theirs[0], theirs[1].tobytes())
        assert ours[1].flags.c_contiguous


def through_a_file(state, folder):
    places = Packs(folder).write(state.tensors)
    return State(Packs(folder).read(places), state.plain)


def test_norm_does_not_depend_on_the_order_of_names():
    rng = np.random.default_rng(0)
    arrays = {f"t{i}": rng.normal(size=7) * 10.0 ** (i % 5) for i in range(9)}
    names = [rng.permutation(list(arrays)) for _ in range(20)]
    assert len({safe_norm({n: arrays[n] for n in order}) for order in names}) == 1


# ------------------------------------------------------------------ steps


def way_of(steps, length=None):
    """A way that grows with the number of steps like an honest one, of 10 samples each."""
    return reply((length or 0.1 * steps**0.75) / (10 * steps), samples=10 * steps)


@pytest.mark.parametrize("steps", [1, 3, 30, 100])
def test_honest_ways_of_any_number_of_steps_are_not_cut(steps):
    memory = Memory()
    for known in (10, 8, 12, 10, 9):
        _, memory = clip(way_of(known), memory, Clip(), steps=known)
    cut, _ = clip(way_of(steps), memory, Clip(), steps=steps)
    assert cut.tensors == way_of(steps).tensors


def test_control_measured_by_the_sample_a_way_of_one_step_is_cut():
    memory = Memory()
    for known in (100, 80, 120, 100, 90):
        # What stood here before: no steps, and no more for few samples.
        _, memory = clip(way_of(known), memory, Clip())
    memory = replace(memory, samples=(1,))
    assert clip(way_of(1), memory, Clip())[0].tensors != way_of(1).tensors


def test_way_of_many_steps_is_no_more_than_a_few_honest_ones():
    memory = Memory()
    for _ in range(9):
        _, memory = clip(way_of(10), memory, Clip(), steps=10)
    honest = safe_norm(way_of(100).tensors)
    cut, _ = clip(way_of(100, 29 * honest), memory, Clip(), steps=100)
    assert safe_norm(cut.tensors) < 4 * honest


# ------------------------------------------------------------------ near


def cloud(rng, samples=4, size=200):
    return reply(*rng.normal(1.0, 1.0, size), samples=samples)


@pytest.mark.parametrize("seed", range(5))
def test_step_of_alike_replies_is_their_exact_sum(seed):
    rng = np.random.default_rng(seed)
    replies = [cloud(rng, samples) for samples in (4, 3, 5, 4, 4, 4)]
    found, plain = combine(replies, Near()), combine(replies, Mean())
    assert np.array_equal(found.tensors["w"], plain.tensors["w"])
    assert found.suspects == ()


@pytest.mark.parametrize("seed", range(5))
def test_replies_that_push_in_one_direction_are_named_and_move_the_step_less(seed):
    rng = np.random.default_rng(seed)
    replies = [cloud(rng) for _ in range(8)] + [
        reply(*np.full(200, -3.0), samples=4)
    ] * 2
    found, plain = combine(replies, Near()), combine(replies, Mean())
    assert found.suspects == (8, 9)
    assert mean_of(found).mean() > mean_of(plain).mean() + 0.3


def test_step_of_few_replies_is_clipped():
    replies = [reply(1.0), reply(1.0), reply(1.0), reply(-50.0)]
    assert combine(replies, Near()).suspects == (3,)
    assert combine(replies, Near()).tensors["w"].tolist() == [0.0]
