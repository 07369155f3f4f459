"""Codecs: what was encoded arrives, in as many bytes as promised; the rest is refused."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoilo.core.errors import TrustError, UsageError
from stoilo.learn.core.tensors import Form
from stoilo.learn.driver.codecs import Compressed, Raw, Ternary
from stoilo.learn.driver.transport import as_transport
from stoilo.learn.kernels.encoding import compress
from tests.support.framing import (
    ARRAYS,
    BLOCKS,
    FINITE,
    FORM,
    chooser,
    decode,
    draws_of,
    form_of,
    make_frame,
    slope,
)


def make_ternary(array, block, rng):
    return make_frame(Ternary(block), array, rng)


@given(ARRAYS)
def test_compressed_array_arrives_to_the_last_bit(array):
    frame = compress(array)
    found = decode(Compressed(), frame, form_of(array))
    assert found.tobytes() == array.tobytes()
    assert form_of(found) == form_of(array)
    assert frame.size <= 4 * array.itemsize + array.nbytes


@given(FINITE, BLOCKS)
def test_ternary_array_arrives_as_signs_times_the_largest_of_each_block(array, block):
    frame = make_ternary(array, block, chooser())
    blocks, bytes_ = -(-array.size // block), -(-array.size // 5)
    assert frame.size == blocks * array.itemsize + bytes_
    found = decode(Ternary(block), frame, form_of(array))
    assert form_of(found) == form_of(array)
    for start in range(0, array.size, block):
        sent = array.reshape(-1)[start : start + block]
        came = found.reshape(-1)[start : start + block]
        kept = came != 0
        assert np.all(np.sign(came[kept]) == np.sign(sent[kept]))
        assert np.all(np.abs(came[kept]) == np.abs(sent).max())


def ternary(array, rng):
    codec = Ternary(64)
    return decode(codec, make_ternary(array, 64, rng), form_of(array))


def nearest(array, _):
    """Round to the nearest of three levels: what saves the draw, and is biased."""
    scale = np.abs(array).max()
    return scale * np.rint(array / scale)


@pytest.mark.parametrize(("encode", "is_unbiased"), [(ternary, True), (nearest, False)])
def test_only_the_draw_is_unbiased(encode, is_unbiased):
    array = np.random.default_rng(3).standard_t(3, 1000)
    mean, error = slope(array, draws_of(array, encode))
    assert bool(abs(mean - 1.0) < 4 * error + 1e-9) == is_unbiased


def noise(array, block):
    codec = Ternary(block)
    found = decode(codec, make_ternary(array, block, chooser()), form_of(array))
    return float(((found - array) ** 2).sum() / (array**2).sum())


def test_smaller_blocks_have_less_noise():
    array = np.random.default_rng(3).standard_t(3, 200_000)
    assert noise(array, 16) < noise(array, 256) < noise(array, 200_000) / 5


def test_encoding_leaves_its_input_as_it_is():
    array = np.random.default_rng(0).normal(size=40).astype(np.float32)
    array.setflags(write=False)
    before = array.tobytes()
    make_ternary(array, 16, chooser())
    compress(array)
    assert array.tobytes() == before


def test_ternary_takes_a_bit_more_than_one_and_a_half_bits_an_entry():
    frame = make_ternary(np.ones(256 * 5, np.float32), 256, chooser())
    assert frame.size == 5 * 4 + 256


def ternary_frame(**changes):
    """Return a good frame of `FORM`, in blocks of 16, with single bytes changed."""
    frame = make_ternary(np.ones(FORM.shape, np.float32), 16, chooser()).copy()
    for name, value in changes.items():
        place = int(name.removeprefix("at_"))
        frame[place : place + len(value)] = value
    return frame


HOSTILE_TERNARY = {
    "empty": np.zeros(0, np.uint8),
    "a byte less": ternary_frame()[:-1],
    "a byte more": np.append(ternary_frame(), np.uint8(0)),
    "negative scale": ternary_frame(
        at_0=np.frombuffer(np.float32(-1.0).tobytes(), np.uint8)
    ),
    "infinite scale": ternary_frame(at_0=[0, 0, 128, 127]),
    "scale NaN": ternary_frame(at_4=[1, 0, 192, 127]),
    "byte above 3**5": ternary_frame(at_9=[243]),
    "signs after the last": ternary_frame(at_12=[242]),
}


@pytest.mark.parametrize("case", HOSTILE_TERNARY)
def test_hostile_ternary_frame_is_refused(case):
    with pytest.raises(TrustError, match="STO-T010"):
        decode(Ternary(16), HOSTILE_TERNARY[case], FORM)


def test_frames_that_the_hostile_ones_are_made_of_are_good():
    assert (decode(Ternary(16), ternary_frame(), FORM) == 1.0).all()


def lengths(*numbers):
    return np.frombuffer(np.array(numbers, "<u4").tobytes(), np.uint8)


def bomb(size):
    return compress(np.zeros(size, np.float32))


HOSTILE_COMPRESSED = {
    "empty": np.zeros(0, np.uint8),
    "half a head": lengths(21, 21),
    "more entries than the form": bomb(10_000),
    "fewer entries than the form": bomb(20),
    "one entry more": bomb(22),
    "length beyond the form": np.append(lengths(1 << 31, 0, 0, 0), np.uint8(1)),
    "lengths that wrap": lengths((1 << 32) - 1, 1, 0, 0),
    "bytes after the last plane": np.append(bomb(21), np.uint8(0)),
    "no streams": lengths(0, 0, 0, 0),
    "no stream of zlib": np.append(lengths(3, 21, 21, 21), np.full(66, 7, np.uint8)),
    "cut stream": np.concatenate([lengths(5, 21, 21, 21), bomb(21)[16:21], np.zeros(63, "u1")]),
}  # fmt: skip


@pytest.mark.parametrize("case", HOSTILE_COMPRESSED)
def test_hostile_compressed_frame_is_refused(case):
    with pytest.raises(TrustError, match="STO-T010"):
        decode(Compressed(), HOSTILE_COMPRESSED[case], FORM)


@pytest.mark.parametrize("codec", [Compressed(), Ternary(), Ternary(1)])
@given(data=st.binary(max_size=200))
def test_any_bytes_give_the_form_or_are_refused(codec, data):
    try:
        found = decode(codec, np.frombuffer(data, np.uint8), FORM)
    except TrustError as error:
        assert error.code == "STO-T010"
    else:
        assert form_of(found) == FORM


@given(
    codec=st.sampled_from([Compressed(), Ternary(16)]),
    place=st.integers(0, 1 << 16),
    value=st.integers(0, 255),
)
def test_good_frame_with_one_other_byte_gives_the_form_or_is_refused(
    codec, place, value
):
    array = np.linspace(0.0, 1.0, 21, dtype=np.float32).reshape(FORM.shape)
    good = (
        compress(array) if codec == Compressed() else make_ternary(array, 16, chooser())
    )
    frame = good.copy()
    frame[place % frame.size] = value
    try:
        assert form_of(decode(codec, frame, FORM)) == FORM
    except TrustError as error:
        assert error.code == "STO-T010"


def test_bomb_is_refused_before_it_is_written():
    tracemalloc = pytest.importorskip("tracemalloc")
    one = compress(np.zeros(1 << 24, np.uint8))
    frame = np.concatenate([lengths(one.size - 4, 1 << 16, 1 << 16, 1 << 16), one[4:],
                            np.zeros(3 << 16, np.uint8)])  # fmt: skip
    form = Form("float32", (1 << 16,))
    tracemalloc.start()
    with pytest.raises(TrustError, match="as many entries"):
        decode(Compressed(), frame, form)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 20


@pytest.mark.parametrize("block", [0, -1, 1 << 21, True, 2.0])
def test_block_out_of_range_is_refused(block):
    with pytest.raises(UsageError, match="STO-T040"):
        Ternary(block)


def test_names_stand_for_codecs_and_others_are_refused():
    names = ("raw", "compressed", "ternary")
    assert [type(as_transport(name)) for name in names] == [Raw, Compressed, Ternary]
    assert as_transport(Ternary(8)) == Ternary(8)
    with pytest.raises(UsageError, match="STO-T040"):
        as_transport("int3")
