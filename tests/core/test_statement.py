import contextlib
import dataclasses
import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoilo.core.digests import content_digest
from stoilo.core.errors import TrustError
from stoilo.core.limits import RunLimits
from stoilo.core.signatures import IN_TOTO_PAYLOAD, pae
from stoilo.core.statement import (
    Statement,
    _encode,
    make_nonce,
    parse_statement,
    render_statement,
    statement_digest,
)
from stoilo.core.types import Redundancy

D = [content_digest(bytes([n])) for n in range(9)]
PLAIN = Statement(
    origin="project.example/log",
    nonce=make_nonce(),
    task_id="t-1",
    attempt=1,
    entry="integrate",
    map_items=0,
    task_module=D[0],
    validator_module=D[1],
    arguments=D[2],
    blobs=(D[3], D[4]),
    flavor=D[5],
    level="pure",
    level_digest=D[6],
    policy_digest=D[7],
    language_digest=D[8],
    python="3.11",
    codec=1,
    limits=RunLimits(),
    redundancy=Redundancy(),
    seed=make_nonce(),
    submitter=D[0],
    admitted_at=1_800_000_000,
    not_after=1_800_086_400,
    epoch=1,
)


def document() -> dict[str, Any]:
    return json.loads(render_statement(PLAIN))


def code_of(changed: dict[str, Any] | bytes) -> str:
    data = changed if isinstance(changed, bytes) else json.dumps(changed).encode()
    with pytest.raises(TrustError) as caught:
        parse_statement(data)
    return caught.value.code


def test_statement_survives_rendering() -> None:
    assert parse_statement(render_statement(PLAIN)) == PLAIN


def test_statement_is_an_in_toto_statement_naming_every_input() -> None:
    seen = document()
    assert seen["_type"] == "https://in-toto.io/Statement/v1"
    assert seen["predicateType"] == "urn:stoilo:task-admission:v1"
    names = [subject["name"] for subject in seen["subject"]]
    assert names == ["task_module", "validator_module", "arguments", "blob/0", "blob/1"]


def test_digest_is_of_the_signed_encoding() -> None:
    data = render_statement(PLAIN)
    assert statement_digest(data) == content_digest(pae(IN_TOTO_PAYLOAD, data))


@pytest.mark.parametrize("field", [f.name for f in msgspec.structs.fields(Statement)])
def test_no_field_can_be_of_another_type(field: str) -> None:
    changed = document()
    changed["predicate"][field] = {"x": []}
    assert code_of(changed) == "STO-A011"


@pytest.mark.parametrize(
    "field", [f.name for f in msgspec.structs.fields(Statement) if f.required]
)
def test_no_required_field_can_be_left_out(field: str) -> None:
    changed = document()
    del changed["predicate"][field]
    assert code_of(changed) == "STO-A011"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("attempt", 0),
        ("attempt", True),
        ("task_id", "../x"),
        ("task_id", "t\n"),
        ("entry", "a.b"),
        ("entry", ""),
        ("task_module", D[0].upper()),
        ("nonce", "00"),
        ("python", "2.7"),
        ("map_items", -1),
        ("admitted_at", 0),
        ("blobs", D * 8),
    ],
)
def test_values_out_of_range_are_refused(field: str, value: object) -> None:
    changed = document()
    changed["predicate"][field] = value
    assert code_of(changed) == "STO-A011"


@pytest.mark.parametrize("field", [f.name for f in dataclasses.fields(RunLimits)])
@pytest.mark.parametrize("value", [None, 0, -1, 2**53 + 1])
def test_limits_are_all_written_out_and_positive(field: str, value: int | None) -> None:
    changed = document()
    if value is None:
        del changed["predicate"]["limits"][field]
    else:
        changed["predicate"]["limits"][field] = value
    assert code_of(changed) == "STO-A011"


def test_unknown_critical_field_is_refused_and_other_unknown_fields_are_not() -> None:
    changed = document()
    changed["predicate"]["later"] = {"x": 1}
    assert parse_statement(json.dumps(changed).encode()) == PLAIN
    changed["predicate"]["critical"] = ["later"]
    assert code_of(changed) == "STO-A032"


@pytest.mark.parametrize("name", ["_type", "predicateType"])
def test_other_kind_of_statement_is_refused(name: str) -> None:
    assert code_of(document() | {name: "https://slsa.dev/provenance/v1"}) == "STO-A004"


@pytest.mark.parametrize("field", ["task_module", "validator_module", "arguments"])
def test_predicate_that_is_not_its_subjects_is_refused(field: str) -> None:
    changed = document()
    changed["predicate"][field] = D[8]
    assert code_of(changed) == "STO-A011"


def test_reordered_blobs_do_not_match_the_subjects() -> None:
    changed = document()
    changed["predicate"]["blobs"].reverse()
    assert code_of(changed) == "STO-A011"


def test_oversized_statement_is_refused_before_parsing() -> None:
    assert code_of(b"{" * 70_000) == "STO-A002"


def test_duplicate_key_is_refused() -> None:
    data = render_statement(PLAIN).replace(b'"attempt":1', b'"attempt":2,"attempt":1')
    assert code_of(data) == "STO-A002"


def test_a_statement_that_would_be_refused_cannot_be_rendered() -> None:
    with pytest.raises(TrustError, match="STO-A011"):
        render_statement(msgspec.structs.replace(PLAIN, attempt=0))


ODD = st.one_of(
    st.sampled_from([0, -1, 1, 2.0, 1.5, True, None, "", "a\\\\ud8", "é", (), (D[0],)]),
    st.integers(-(2**65), 2**65),
    st.text(max_size=5),
)


def accepted(parse: Callable[[], object]) -> bool:
    try:
        parse()
    except TrustError:
        return False
    return True


@given(st.sampled_from(Statement.__struct_fields__), ODD)
def test_statement_is_rendered_exactly_when_it_would_be_read_back(
    field: str, value: object
) -> None:
    changed = msgspec.structs.replace(PLAIN, **{field: value})
    try:
        data = _encode(changed)
    except (UnicodeEncodeError, OverflowError, AttributeError, TypeError):
        return  # no caller makes these: they are no statement's bytes
    assert accepted(lambda: render_statement(changed)) == accepted(
        lambda: parse_statement(data)
    )


@given(
    st.sampled_from(["limits", "redundancy"]),
    st.integers(0, 20),
    st.sampled_from([0, -1, 1, 2.0, 2**53, 2**53 + 1, True, 10**30]),
)
def test_amount_is_rendered_exactly_when_it_would_be_read_back(
    group: str, place: int, amount: float
) -> None:
    record = getattr(PLAIN, group)
    names = [field.name for field in dataclasses.fields(record)]
    name = names[place % len(names)]
    other = dataclasses.replace(record, **{name: amount})
    changed = msgspec.structs.replace(PLAIN, **{group: other})
    try:
        data = _encode(changed)
    except OverflowError:
        return
    assert accepted(lambda: render_statement(changed)) == accepted(
        lambda: parse_statement(data)
    )


@given(st.data())
def test_a_damaged_statement_is_our_error_or_well_formed(data: st.DataObject) -> None:
    good = bytearray(render_statement(PLAIN))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(good) - 1))
        good[at : at + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=2))
    with contextlib.suppress(TrustError):
        parse_statement(bytes(good))
