"""Codecs that lose something: what they lose, without bias or with, and hostile frames."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoilo.core.errors import TrustError, UsageError
from stoilo.learn.driver.codecs import (
    Half,
    OneBit,
    PerLayer,
    PowerSGD,
    Quantised,
    Raw,
    Remainder,
    Ternary,
    TopK,
)
from tests.support.framing import (
    FINITE,
    FORM,
    arrive,
    chooser,
    decode,
    draws_of,
    form_of,
    make_frame,
    order_for,
    slope,
)

BIASED = (OneBit(64), TopK(0.1), PowerSGD(2))
UNBIASED = (
    *(Quantised(bits, norm, 64) for bits in (1, 2, 4, 8) for norm in ("max", "l2")),
    *(Remainder(first, Ternary(64)) for first in BIASED),
)
LOSSY = (*UNBIASED, *BIASED, Half("float16"), Half(), PerLayer((("w", TopK(0.1)),)))


def make_gradient(dtype=np.float64):
    return np.random.default_rng(3).standard_t(3, (20, 50)).astype(dtype)


def fitted(array, rng):
    """Quantise as published (learn.md §8, 2 bits): fitted after the draw, then clipped."""
    top, alpha = 1, 0.7
    for _ in range(3):
        steps = np.clip(np.rint(array / alpha), -top, top)
        alpha = float((steps * array).sum() / ((steps**2).sum() + 1.0))
    drawn = np.floor(array / alpha + rng.random(array.shape))
    return alpha * np.clip(drawn, -top, top)


@pytest.mark.parametrize("codec", UNBIASED, ids=str)
def test_drawn_codec_is_unbiased(codec):
    array = make_gradient()
    mean, error = slope(array, draws_of(array, lambda a, rng: arrive(codec, a, rng)))
    assert abs(mean - 1.0) < 3 * error


@pytest.mark.parametrize("seed", range(5))
def test_published_fitted_quantiser_shrinks_the_gradient(seed):
    array = np.random.default_rng(seed).standard_t(3, 1000)
    mean, error = slope(array, draws_of(array, fitted))
    assert 0.55 < mean < 0.67  # 0.62 where it was first measured
    assert abs(mean - 1.0) > 3 * error


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("codec", BIASED, ids=str)
def test_biased_codec_loses_some_of_the_gradient_and_adds_nothing(codec, seed):
    array = np.random.default_rng(seed).standard_t(3, (20, 50))
    left = array - arrive(codec, array)
    assert 0.0 < (left**2).sum() < (array**2).sum()


def sum_of_sent(codec, gradients):
    """Send with error feedback by a worker with a state; return the sum, and the residual."""
    total = residual = np.zeros_like(gradients[0])
    for gradient in gradients:
        sent = arrive(codec, gradient + residual)
        total, residual = total + sent, residual + gradient - sent
    return total, residual


@pytest.mark.parametrize("codec", BIASED, ids=str)
def test_what_a_worker_with_a_state_sends_sums_up_but_for_the_last_residual(codec):
    gradients = np.random.default_rng(0).normal(1.0, 1.0, (60, 20, 50))
    total, residual = sum_of_sent(codec, gradients)
    np.testing.assert_allclose(total + residual, gradients.sum(axis=0), atol=1e-8)
    without = sum(arrive(codec, gradient) for gradient in gradients)
    missing = np.linalg.norm(gradients.sum(axis=0) - without)
    assert np.linalg.norm(residual) < missing


SIZES = {
    Half("float16"): 2000,
    Half(): 2000,
    Quantised(8): 4 * 4 + 1000,
    Quantised(4): 4 * 4 + 500,
    Quantised(2): 4 * 4 + 200,
    Quantised(1): 4 * 4 + 125,
    OneBit(): 4 * 4 + 125,
    TopK(0.01): 10 * 8,
    PowerSGD(2): 2 * (20 + 50) * 4,
    Remainder(TopK(0.01), Ternary()): 4 + 80 + 16 + 200,
    PerLayer((("v*", TopK()), ("w", Half()))): 2000,
    PerLayer((("v*", TopK()),)): 4000,
}


@pytest.mark.parametrize("codec", SIZES, ids=str)
def test_frame_has_exactly_as_many_bytes_as_promised(codec):
    assert make_frame(codec, make_gradient(np.float32)).size == SIZES[codec]


@pytest.mark.parametrize("codec", LOSSY, ids=str)
def test_encoding_needs_no_write_and_repeats_with_its_seed(codec):
    array = make_gradient(np.float32)
    array.setflags(write=False)
    first, again = make_frame(codec, array), make_frame(codec, array)
    np.testing.assert_array_equal(first, again)


@pytest.mark.parametrize("codec", LOSSY, ids=str)
@given(array=FINITE)
def test_any_finite_array_keeps_its_form(codec, array):
    with np.errstate(all="ignore"):
        frame = make_frame(codec, array)
        try:
            found = decode(codec, frame, form_of(array))
        except TrustError:  # beyond the type's numbers on the way
            assert array.size
            assert float(np.abs(array).max()) > float(
                np.finfo(array.dtype).max
            ) / 1e2 or (
                np.abs(array).max() > 1e150  # squares of float64
            )
        else:
            assert form_of(found) == form_of(array)


@pytest.mark.parametrize(
    ("kind", "step"), [("float16", 2.0**-11), ("bfloat16", 2.0**-8)]
)
def test_halves_are_the_nearest(kind, step):
    array = make_gradient(np.float32)
    found = arrive(Half(kind), array)
    assert (np.abs(found - array) <= step * np.abs(array) + 1e-7).all()
    assert np.abs(found - array).max() > 0.0


def test_bfloat16_rounds_as_torch_does():
    torch = pytest.importorskip("torch")
    array = make_gradient(np.float32) * 1e30
    wanted = torch.from_numpy(array).bfloat16().float().numpy()
    np.testing.assert_array_equal(arrive(Half(), array), wanted)


@pytest.mark.parametrize("codec", LOSSY, ids=str)
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_no_number_arrives_as_none_or_is_refused(codec, bad):
    if codec == Half("float16") and bad == np.inf:
        pytest.skip("it becomes the largest float16")
    array = make_gradient(np.float32)
    array[3, 4] = bad
    with np.errstate(all="ignore"):
        frame = make_frame(codec, array)
        try:
            assert not np.isfinite(decode(codec, frame, form_of(array))).all()
        except TrustError as error:
            assert error.code == "STO-T010"


def test_largest_entries_arrive_exactly_and_others_as_nothing():
    array = make_gradient()
    found = arrive(TopK(0.1), array)
    least = np.sort(np.abs(array), axis=None)[-100]
    np.testing.assert_array_equal(found, np.where(np.abs(array) >= least, array, 0.0))


def lose(codec, matrix):
    ways = [matrix - arrive(codec, matrix, chooser(seed)) for seed in range(5)]
    return np.mean([np.linalg.norm(way) for way in ways])


def test_two_rounds_come_near_the_best_product_and_one_does_not():
    rng = np.random.default_rng(1)
    matrix = (
        rng.normal(size=(40, 30))
        @ np.diag(0.8 ** np.arange(30))
        @ rng.normal(size=(30, 30))
    )
    best = math.sqrt((np.linalg.svd(matrix, compute_uv=False)[3:] ** 2).sum())
    losses = [lose(PowerSGD(3, rounds), matrix) for rounds in (1, 2, 3)]
    assert losses[0] > losses[1] > losses[2] >= best
    assert losses[1] < 1.2 * best


def bad_places(*places):
    words = np.array([*places, *[9] * (3 - len(places))], "<u4").view(np.uint8)
    return np.concatenate([words, np.zeros(12, np.uint8)])


def patched(codec, place, value):
    frame = make_frame(codec, np.linspace(-1, 1, 21, dtype=np.float32).reshape(7, 3))
    frame = frame.copy()
    frame[place : place + len(value)] = value
    return frame


NAN = np.frombuffer(np.float32("nan").tobytes(), np.uint8)
FOUR, TOP, THIN = Quantised(4), TopK(0.1), PowerSGD(1)
BOTH = Remainder(TOP, Ternary())
HOSTILE = [
    (Quantised(8), patched(Quantised(8), 9, [255])),
    (FOUR, patched(FOUR, 9, [225])),
    (FOUR, patched(FOUR, 0, NAN)),
    (FOUR, patched(FOUR, 14, [16])),
    (OneBit(), patched(OneBit(), 0, NAN)),
    (OneBit(), patched(OneBit(), 6, [255])),
    (TOP, bad_places(1, 1, 2)),
    (TOP, bad_places(2, 1, 3)),
    (TOP, bad_places(1, 2, 21)),
    (THIN, patched(THIN, 0, NAN)),
    (THIN, patched(THIN, 3, [127])),
    (BOTH, patched(BOTH, 0, [255, 255, 255, 255])),
    (BOTH, patched(BOTH, 0, [0])),
    *((codec, np.append(patched(codec, 0, []), np.uint8(0))) for codec in LOSSY),
    *((codec, patched(codec, 0, [])[:-1]) for codec in LOSSY),
    *((codec, np.zeros(0, np.uint8)) for codec in LOSSY),
]


@pytest.mark.parametrize("case", range(len(HOSTILE)))
def test_hostile_frame_is_refused(case):
    with pytest.raises(TrustError, match="STO-T010"):
        decode(*HOSTILE[case], FORM)


@pytest.mark.parametrize("codec", [*LOSSY, FOUR, TOP, THIN, BOTH], ids=str)
def test_frames_that_hostile_ones_are_made_of_are_good(codec):
    assert np.isfinite(decode(codec, patched(codec, 0, []), FORM)).all()


@pytest.mark.parametrize("codec", LOSSY, ids=str)
@given(data=st.binary(max_size=200))
def test_any_bytes_in_any_codec_give_the_form_or_are_refused(codec, data):
    try:
        found = decode(codec, np.frombuffer(data, np.uint8), FORM)
    except TrustError as error:
        assert error.code == "STO-T010"
    else:
        assert form_of(found) == FORM


def test_first_fitting_pattern_of_a_name_wins():
    codec = PerLayer((("*.bias", Raw()), ("conv*", OneBit()), ("*", TopK())), Half())
    chosen = [
        codec.choose(name) for name in ("conv1.bias", "conv1.weight", "fc.weight")
    ]
    assert chosen == [Raw(), OneBit(), TopK()]
    assert PerLayer(codec.rules[:1], Half()).choose("w") == Half()


@pytest.mark.parametrize(
    "make",
    [
        lambda: Half("float8"), lambda: Quantised(3), lambda: Quantised(8, "l1"),
        lambda: Quantised(8, block=0), lambda: OneBit(0), lambda: TopK(0.0),
        lambda: TopK(math.nan), lambda: PowerSGD(0), lambda: PowerSGD(1, 0),
        lambda: order_for(PerLayer((("*", PerLayer(())),))),
    ],
)  # fmt: skip
def test_settings_of_no_codec_are_refused(make):
    with pytest.raises(UsageError, match="STO-T040"):
        make()
