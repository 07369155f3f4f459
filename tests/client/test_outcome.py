"""A result's bytes, which a volunteer made, on their way to the caller."""

from __future__ import annotations

import numpy as np
import pytest

from stoilo.client.results import read_value
from stoilo.core.codec.nodes import NumpyScalar, to_node
from stoilo.core.codec.skeleton import encode
from stoilo.core.errors import TrustError


def test_scalar_of_no_character_is_refused_and_not_raised_as_numpys_own() -> None:
    data = encode(NumpyScalar("U1", b"\xff\xff\xff\x7f"))
    with pytest.raises(TrustError, match="STO-D002"):
        read_value(data)


def test_whatever_a_library_says_about_a_value_is_a_refusal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(_: object) -> None:
        raise RuntimeError("stride calculation overflowed")

    monkeypatch.setattr("stoilo.client.results.from_node", fail)
    with pytest.raises(TrustError, match=r"overflowed \[STO-D002"):
        read_value(encode(1))


def test_refusal_of_the_codec_keeps_its_code() -> None:
    with pytest.raises(TrustError, match="STO-D002"):
        read_value(b"nothing")


def test_empty_array_is_read_in_its_shape() -> None:
    empty = np.zeros((0, 5), np.float32)
    assert read_value(encode(to_node(empty))).shape == (0, 5)
