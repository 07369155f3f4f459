"""Addresses as people write them."""

import pytest

from stoilo.core.errors import InternalError, UsageError
from stoilo.core.listen import listen, parse_address


@pytest.mark.parametrize(
    "text", ["", "localhost", ":1", "a:b", "h:-1", "h:65536", "h:٣"]
)
def test_bad_address_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="STO-R090"):
        parse_address(text)


@pytest.mark.parametrize(
    ("text", "loopback"),
    [
        ("127.0.0.1:0", True),
        ("[::1]:5", True),
        ("localhost:5", True),
        ("0.0.0.0:5", False),
        ("[::]:5", False),
        ("lab.example:5", False),
    ],
)
def test_loopback_is_known(text: str, loopback: bool) -> None:
    assert parse_address(text).loopback is loopback
    assert parse_address(str(parse_address(text))) == parse_address(text)


def test_address_that_is_taken_is_told() -> None:
    with listen("127.0.0.1:0") as taken:
        taken.listen()
        host, port = taken.getsockname()
        with pytest.raises(InternalError, match="STO-U006"):
            listen(f"{host}:{port}")
