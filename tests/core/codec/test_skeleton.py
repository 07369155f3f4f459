"""The skeleton codec: one encoding a value, total on any bytes, bounded in everything."""

import math
import struct
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoilo.core.codec.nodes import Instance, Ndarray, Tensor
from stoilo.core.codec.reader import DATA_BOUNDS, MAGIC, SkeletonBounds
from stoilo.core.codec.skeleton import decode, encode
from stoilo.core.errors import StoiloError, TrustError, UsageError
from tests.support.strategies import nodes


@given(nodes)
def test_any_node_round_trips_to_the_same_bytes(node):
    encoded = encode(node)
    assert encode(decode(encoded)) == encoded


@given(st.binary(max_size=200))
def test_any_bytes_end_in_a_value_or_our_error(data):
    try:
        node = decode(MAGIC + data)
    except TrustError as error:
        assert error.code.startswith("STO-D")
    else:
        assert encode(node) == MAGIC + data


@given(nodes, st.data())
def test_mutated_encoding_is_refused_or_canonical(node, data):
    encoded = bytearray(encode(node))
    at = data.draw(st.integers(0, len(encoded) - 1))
    encoded[at] ^= data.draw(st.integers(1, 255))
    try:
        mutant = decode(bytes(encoded))
    except TrustError:
        return
    assert encode(mutant) == bytes(encoded)


@given(nodes)
def test_every_truncation_is_refused(node):
    encoded = encode(node)
    for size in {len(encoded) - 1, len(encoded) // 2, 4}:
        with pytest.raises(TrustError):
            decode(encoded[:size])


BOUNDARY_VALUES = (
    2**63 - 1,
    2**63,
    -(2**63),
    -(2**63) - 1,
    0,
    -1,
    2**4000,
    -0.0,
    math.inf,
    "",
    b"",
    [],
    (),
    {},
    set(),
    frozenset(),
    datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
    datetime(1, 1, 1, tzinfo=UTC),
    {(1, "a"): [2]},
)


@pytest.mark.parametrize("value", BOUNDARY_VALUES)
def test_boundary_value_comes_back_equal_and_of_the_same_type(value):
    back = decode(encode(value))
    assert back == value
    assert type(back) is type(value)
    assert repr(back) == repr(value)


def test_nan_payload_is_kept_exactly():
    (payload,) = struct.unpack("<d", bytes.fromhex("010000000000f47f"))
    assert encode(decode(encode(payload))) == encode(payload)


def test_array_data_is_a_view_into_the_input():
    data = encode(Ndarray("float64", (2,), bytes(16)))
    assert decode(data).data.obj is data


def test_array_data_is_aligned_to_sixteen_bytes():
    encoded = encode(["x", Ndarray("uint8", (4,), b"\xaa\xbb\xcc\xdd")])
    assert encoded.index(b"\xaa\xbb\xcc\xdd") % 16 == 0


@pytest.mark.parametrize(
    ("node", "code"),
    [
        (object(), "STO-D001"),
        ({1: object()}, "STO-D001"),
        ({float("nan"): 1}, "STO-D001"),
        ("\ud800", "STO-D001"),
        (Ndarray("float64", (3,), bytes(8)), "STO-D001"),
        (Ndarray("object", (1,), bytes(8)), "STO-D001"),
        (Ndarray("float32", (0, 1 << 62, 1 << 62), b""), "STO-D001"),
        (Ndarray("float32", (0, 1 << 61), b""), "STO-D001"),
        (Tensor("int8", (1 << 63, 0), b""), "STO-D001"),
        (Instance("not a name"), "STO-D001"),
    ],
)
def test_value_that_does_not_travel_is_refused_with_its_code(node, code):
    with pytest.raises(UsageError) as refusal:
        encode(node)
    assert refusal.value.code == code


def test_value_that_contains_itself_is_refused_as_too_deep():
    loop: list[object] = []
    loop.append(loop)
    with pytest.raises(UsageError, match="STO-D005"):
        encode(loop)


@pytest.mark.parametrize("extent", [1 << 61, 1 << 62, 1 << 63, (1 << 64) - 1])
def test_empty_array_of_an_extent_that_no_machine_has_is_refused(extent):
    parts = b"a\x07float32\x02" + struct.pack("<QQ", 0, extent)
    padding = bytes(-(len(MAGIC) + len(parts)) % 16)
    with pytest.raises(TrustError, match="STO-D002"):
        decode(MAGIC + parts + padding)


def test_nesting_beyond_the_bound_is_refused_by_the_decoder():
    deep = MAGIC + (b"l" + struct.pack("<I", 1)) * 70 + b"N"
    with pytest.raises(TrustError, match="STO-D005"):
        decode(deep)


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", "STO-D002"),
        (b"STO\x02N", "STO-D002"),
        (MAGIC + b"NN", "STO-D002"),
        (MAGIC + b"?", "STO-D002"),
        (MAGIC + b"l\xff\xff\xff\xff", "STO-D002"),
        (MAGIC + b"b\xff\xff\xff\xff\xff\xff\xff\xff", "STO-D002"),
        (MAGIC + b"I\x01\x00\x00\x00\x05", "STO-D002"),
        (MAGIC + b"l\x01\x00\x00\x00f" + bytes(8), "STO-D002"),
        (MAGIC + b"L\x00\x00\x00\x00", "STO-D002"),
        (MAGIC + b"e\x02\x00\x00\x00TT", "STO-D002"),
        (MAGIC + b"d\x02\x00\x00\x00TNTN", "STO-D002"),
        (MAGIC + b"d\x01\x00\x00\x00l\x00\x00\x00\x00N", "STO-D001"),
        (MAGIC + b"a\x04bool\x01\x01" + bytes(7) + bytes(13) + b"\x02", "STO-D002"),
        (MAGIC + b"a\x05float\x00", "STO-D002"),
        (MAGIC + b"R\x03a b", "STO-D002"),
        (MAGIC + b"B\xff\x00\x00\x00", "STO-D002"),
        (MAGIC + b"D" + b"\xff" * 7 + b"\x7f" + bytes(10), "STO-D002"),
    ],
)
def test_hostile_bytes_are_refused_with_their_code(data, code):
    with pytest.raises(TrustError) as refusal:
        decode(data)
    assert refusal.value.code == code


def test_array_claiming_terabytes_is_refused_before_allocation():
    shape = struct.pack("<QQ", 2**40, 2**40)
    with pytest.raises(TrustError):
        decode(MAGIC + b"a\x07float64\x02" + shape + bytes(16))


def test_size_and_count_bounds_hold_on_both_sides():
    tight = SkeletonBounds(nodes=3, size=64)
    with pytest.raises(UsageError, match="STO-D005"):
        encode([None] * 4, tight)
    with pytest.raises(TrustError, match="STO-D005"):
        decode(encode([None] * 4), tight)
    with pytest.raises(TrustError, match="STO-D005"):
        decode(encode("x" * 100), tight)


def test_keys_built_to_collide_are_refused_and_honest_keys_are_not():
    modulus = 2**61 - 1
    hostile = {modulus * factor: None for factor in range(1, 200)}
    with pytest.raises(StoiloError, match="STO-D002"):
        decode(encode(hostile))
    honest = {(row, column): 0.5 for row in range(40) for column in range(40)}
    assert decode(encode(honest)) == honest


@pytest.mark.parametrize(
    "form", [b"R\x01f", b"C\x01C", b"O\x01CN\0\0\0\0", b"B\0\0\0\0"]
)
def test_reference_is_refused_where_only_data_may_stand(form):
    data = MAGIC + b"l\x01\0\0\0" + form
    decode(data)
    with pytest.raises(TrustError, match="STO-D002"):
        decode(data, DATA_BOUNDS)
