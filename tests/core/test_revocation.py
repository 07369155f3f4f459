import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stoilo.audit.format.facts import RevocationRecord
from stoilo.audit.format.proof import parse_leaf
from stoilo.audit.format.records import (
    MAX_RECORD_BYTES,
    check_record,
    mentions,
    parse_record,
    record_digest,
)
from stoilo.core.errors import TrustError
from stoilo.core.statement import (
    MAX_DIGESTS,
    MAX_EPOCHS,
    MAX_FLAVORS,
    RevocationStatement,
    join_revocations,
    parse_revocation,
    render_revocation,
    revocation_digest,
    split_revocations,
)
from stoilo.executor.verifier.statements import revocation_leaf

STATEMENT = RevocationStatement(
    origin="project.example/log",
    time=1_800_000_000,
    epoch=1,
    issuer="online",
    sequence=7,
    base=2,
    offline="0" * 64,
    epochs=(3,),
    min_epoch=2,
    digests=("a" * 64,),
    flavors=("b" * 64,),
)
counts = st.integers(1, 2**31)
digests = st.binary(min_size=32, max_size=32).map(bytes.hex)


def changed(**fields: object) -> bytes:
    return msgspec.json.encode(msgspec.structs.replace(STATEMENT, **fields))


def test_statement_is_read_as_it_was_written() -> None:
    assert parse_revocation(render_revocation(STATEMENT)) == STATEMENT


def test_statement_is_its_own_record_in_the_log() -> None:
    data = render_revocation(STATEMENT)
    record = check_record(parse_leaf(revocation_leaf(data)), data)
    assert isinstance(record, RevocationRecord)
    assert record_digest(data) == revocation_digest(data)
    assert {one.value for one in mentions(record)} >= {"a" * 64, "b" * 64}


def test_fullest_statement_fits_into_a_record() -> None:
    data = changed(
        origin="o" * 128,
        epochs=(2**31,) * MAX_EPOCHS,
        digests=("a" * 64,) * MAX_DIGESTS,
        flavors=("b" * 64,) * MAX_FLAVORS,
        sequence=2**53 - 1,
    )
    assert len(data) <= MAX_RECORD_BYTES
    assert parse_record(data)


@pytest.mark.parametrize(
    "data",
    [
        changed(digests=("a" * 64,) * (MAX_DIGESTS + 1)),
        changed(digests=("A" * 64,)),
        changed(epochs=(0,)),
        changed(sequence=-1),
        changed(sequence=2**53),
        changed(time=0),
        changed(issuer="thief"),
        changed(origin="a b"),
        changed(min_epoch=0),
        render_revocation(STATEMENT).replace(b'"epochs"', b'"epoch_s"'),
        render_revocation(STATEMENT)[:-1],
        b"{}",
        b"",
        b"\xff",
    ],
)
def test_malformed_statement_is_refused(data: bytes) -> None:
    with pytest.raises(TrustError, match="STO-A071"):
        parse_revocation(data)


@settings(deadline=None)
@given(st.binary(max_size=400))
def test_hostile_bytes_end_in_our_error(data: bytes) -> None:
    with pytest.raises(TrustError):
        parse_revocation(split_revocations(data)[0])


@settings(deadline=None)
@given(st.data())
def test_damaged_statement_is_another_or_refused(data: st.DataObject) -> None:
    text = bytearray(render_revocation(STATEMENT))
    text[data.draw(st.integers(0, len(text) - 1))] = data.draw(st.integers(0, 255))
    try:
        parsed = parse_revocation(bytes(text))
    except TrustError as error:
        assert error.code == "STO-A071"
    else:
        assert parsed != STATEMENT or bytes(text) == render_revocation(STATEMENT)


@settings(deadline=None)
@given(
    st.frozensets(counts, max_size=4),
    st.frozensets(digests, max_size=4),
    st.frozensets(digests, max_size=4),
    counts,
)
def test_statement_covers_what_it_adds_to(
    epochs: frozenset[int], named: frozenset[str], flavors: frozenset[str], low: int
) -> None:
    larger = msgspec.structs.replace(
        STATEMENT,
        epochs=(*STATEMENT.epochs, *epochs),
        digests=(*STATEMENT.digests, *named),
        flavors=(*STATEMENT.flavors, *flavors),
        min_epoch=max(STATEMENT.min_epoch, low),
    )
    assert larger.covers(STATEMENT)
    same = set(larger.epochs) == {3} and set(larger.digests) == {"a" * 64}
    same = same and set(larger.flavors) == {"b" * 64} and larger.min_epoch == 2
    assert STATEMENT.covers(larger) == same


def test_file_is_split_where_it_was_joined() -> None:
    file = join_revocations(b'{"e":1}', b"proof\n\nnote")
    assert split_revocations(file) == (b'{"e":1}', b"proof\n\nnote")


@pytest.mark.parametrize(
    ("data", "code"),
    [(b"", "STO-A071"), (b"x" * 2**20, "STO-A071"), (b"other\n{}\n", "STO-A071")],
)
def test_file_in_another_form_is_refused(data: bytes, code: str) -> None:
    with pytest.raises(TrustError, match=code):
        split_revocations(data)
