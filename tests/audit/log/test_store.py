from hypothesis import given
from hypothesis import strategies as st

from stoilo.audit.log.store import seal, unseal

TEXT = b"log example.com/l+1+x\nquorum none\n"


def test_sealed_text_comes_back() -> None:
    assert unseal(seal(TEXT)) == TEXT


def test_text_of_an_older_version_comes_back_as_it_is() -> None:
    assert unseal(TEXT) == TEXT


@given(st.integers(0, len(seal(TEXT)) - 1), st.integers(0, 7))
def test_any_flipped_bit_gives_another_text_or_none(place: int, bit: int) -> None:
    data = bytearray(seal(TEXT))
    data[place] ^= 1 << bit
    assert unseal(bytes(data)) != TEXT
