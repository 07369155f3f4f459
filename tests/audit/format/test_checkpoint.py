import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoilo.audit.format.merkle import (
    EMPTY_ROOT,
    Checkpoint,
    parse_checkpoint,
    render_checkpoint,
)
from stoilo.core.errors import TrustError

BODY = b"log.example/t\n8\nXcnaeacGWamtVZy3Ad7ZoqudgjqtL0lgz+Nw7/RgQyg=\n"


def test_own_vector_is_read_and_written() -> None:
    checkpoint = parse_checkpoint(BODY)
    assert (checkpoint.origin, checkpoint.size) == ("log.example/t", 8)
    assert checkpoint.root.hex().startswith("5dc9da79a70659a9")
    assert render_checkpoint(checkpoint) == BODY


def test_empty_log_needs_the_empty_root() -> None:
    body = render_checkpoint(Checkpoint("log", 0, EMPTY_ROOT))
    assert parse_checkpoint(body).size == 0
    with pytest.raises(TrustError, match="STO-L010"):
        parse_checkpoint(render_checkpoint(Checkpoint("log", 0, bytes(32))))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\n",
        BODY[:-1],
        BODY + b"extension\n",
        BODY.replace(b"\n8\n", b"\n08\n"),
        BODY.replace(b"\n8\n", b"\n-8\n"),
        BODY.replace(b"\n8\n", b"\n+8\n"),
        BODY.replace(b"\n8\n", b"\n9223372036854775808\n"),
        BODY.replace(b"\n8\n", b"\n" + b"9" * 5000 + b"\n"),
        BODY.replace(b"\n8\n", "\n\u0668\n".encode()),
        BODY.replace(b"Qyg=", b"Qyh="),
        BODY.replace(b"XcnaeacG", b""),
        BODY.replace(b"log.example/t", b""),
        BODY.replace(b"log.example/t", b"\xff"),
        BODY.replace(b"log.example/t", b"x" * 256),
    ],
)
def test_malformed_checkpoint_is_refused(body: bytes) -> None:
    with pytest.raises(TrustError, match="STO-L010"):
        parse_checkpoint(body)


@given(st.binary(max_size=200) | st.text(max_size=80).map(lambda t: t.encode() + BODY))
def test_any_bytes_parse_or_raise_trust_error(data: bytes) -> None:
    try:
        checkpoint = parse_checkpoint(data)
    except TrustError:
        return
    assert render_checkpoint(checkpoint) == data
