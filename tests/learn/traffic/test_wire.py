"""How a vector is cut, and that no byte of it is missing or comes twice."""

from hypothesis import given
from hypothesis import strategies as st

from stoilo.core.digests import content_digest
from stoilo.learn.traffic.wire import LEAST_SEGMENT, SEGMENTS, cut


@given(st.binary(max_size=100).map(lambda b: b * 8), st.integers(1, 200))
def test_segments_are_whole_words_and_together_the_vector(data: bytes, least: int):
    pieces = cut(1, data, ("a",), least)
    assert b"".join(piece for _, piece in pieces) == data
    assert all(item.size % 8 == 0 for item, _ in pieces)
    assert [(item.segment, item.of) for item, _ in pieces] == [
        (index, len(pieces)) for index in range(len(pieces))
    ]
    assert all(item.digest == content_digest(piece) for item, piece in pieces)


@given(st.integers(0, 400), st.integers(1, 200))
def test_vectors_of_a_length_are_cut_alike(words: int, least: int):
    one, other = (cut(1, bytes([n]) * words * 8, ("a",), least) for n in (1, 2))
    assert [item.size for item, _ in one] == [item.size for item, _ in other]


def test_small_vectors_and_versions_stay_whole():
    assert len(cut(1, bytes(LEAST_SEGMENT), ("a",))) == 1
    assert len(cut(1, bytes(SEGMENTS * LEAST_SEGMENT), ("a",))) == SEGMENTS
    assert len(cut(1, bytes(SEGMENTS * LEAST_SEGMENT), ())) == 1
