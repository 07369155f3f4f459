from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoilo.audit.format.facts import (
    CodeCount,
    FlavorRecord,
    KeyRecord,
    LevelRecord,
    MentionKind,
    NamedDigest,
    OperatorAct,
    OperatorRecord,
    OutcomeRecord,
    PolicyRecord,
    Record,
    RefusalsRecord,
    ReleaseRecord,
    RetentionRecord,
    ReviewRecord,
    RevocationRecord,
    WorkunitRecord,
)
from stoilo.audit.format.proof import Leaf, LeafKind, parse_leaf
from stoilo.audit.format.records import (
    MAX_RECORD_BYTES,
    Mention,
    check_record,
    mentions,
    parse_record,
    record_digest,
    record_leaf,
    render_record,
    salted_commitment,
    task_commitment,
)
from stoilo.core.digests import content_digest
from stoilo.core.errors import TrustError
from stoilo.core.statement import RevocationStatement, render_revocation
from stoilo.core.types import Redundancy, RunLimits

ORIGIN, NOW = "log.test/t", 1_700_000_000


def name(what: object) -> str:
    return content_digest(str(what).encode())


WORKUNIT = WorkunitRecord(
    origin=ORIGIN,
    time=NOW,
    state="issued",
    admission=7,
    admission_leaf=name("leaf"),
    task=name("task"),
    attempt=1,
    submitter=name("submitter"),
    public_source=False,
    source=name("source"),
    validator=name("validator"),
    arguments=name("arguments"),
    blobs=name("blobs"),
    level="pure",
    level_digest=name("level"),
    policy_digest=name("policy"),
    language_digest=name("language"),
    flavor=name("flavor"),
    limits=RunLimits(),
    redundancy=Redundancy(),
    epoch=1,
    admitted_at=NOW - 1,
    not_after=NOW + 86_400,
    checkpoint=8,
    codes=("STO-P011",),
    reviews=(name("review"),),
)
RECORDS: list[Record] = [
    WORKUNIT,
    OutcomeRecord(ORIGIN, NOW, name("task"), 1, 7, "succeeded", "", name("value"), 2),
    RefusalsRecord(
        ORIGIN,
        NOW,
        name("submitter"),
        1,
        61,
        3,
        name("root"),
        (CodeCount("STO-P011", 3),),
    ),
    ReviewRecord(ORIGIN, NOW, "signed", name("key"), name("review"), name("source")),
    KeyRecord(ORIGIN, NOW, "born", "gate", name("key"), name("file"), "gate/1.json"),
    PolicyRecord(ORIGIN, NOW, "in_force", name("policy")),
    LevelRecord(ORIGIN, NOW, "in_force", "pure", name("level"), name("earlier")),
    FlavorRecord(ORIGIN, NOW, "released", "pure", name("flavor"), (name("archive"),)),
    ReleaseRecord(
        ORIGIN,
        NOW,
        1,
        2,
        (NamedDigest("1.root.json", name("root")),),
        (NamedDigest("launcher/x86_64-linux", name("launcher")),),
        name("transcript"),
    ),
    RevocationRecord(
        ORIGIN, NOW, 1, "online", 2, 3, name("list"), (1,), 2, (name("bad"),), ()
    ),
    RetentionRecord(ORIGIN, NOW, "sources", NOW - 5, 2, (name("source"),), "00ff"),
    OperatorRecord(
        ORIGIN,
        NOW,
        OperatorAct.SERVER_STARTED,
        version="0.1.0",
        versions=(NamedDigest("policy", name("policy")),),
    ),
]
GOOD = render_record(WORKUNIT)
by_kind = pytest.mark.parametrize("record", RECORDS, ids=lambda one: one.kind.value)


@by_kind
def test_record_is_read_back_and_named_by_its_leaf(record: Record) -> None:
    data = render_record(record)
    assert parse_record(data) == record
    leaf = parse_leaf(record_leaf(data, "7"))
    assert (leaf.kind, leaf.time, leaf.digest) == (
        record.kind,
        NOW,
        record_digest(data),
    )
    assert check_record(leaf, data) == record


@by_kind
def test_every_flipped_byte_of_a_record_is_noticed(record: Record) -> None:
    data = render_record(record)
    leaf = parse_leaf(record_leaf(data, "7"))
    for place in range(0, len(data), 7):
        changed = data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]
        with pytest.raises(TrustError, match="STO-L141"):
            check_record(leaf, changed)


def test_largest_workunit_record_fits() -> None:
    codes = tuple(f"STO-P{number:03}" for number in range(64))
    full = msgspec.structs.replace(WORKUNIT, codes=codes, reviews=(name(1),) * 4)
    assert len(render_record(full)) < MAX_RECORD_BYTES // 2


@pytest.mark.parametrize(
    "leaf",
    [
        Leaf(LeafKind.KEY, record_digest(GOOD), "1", NOW),
        Leaf(LeafKind.WORKUNIT, record_digest(GOOD), "1", NOW + 1),
    ],
)
def test_record_of_another_kind_or_time_than_its_leaf_is_refused(leaf: Leaf) -> None:
    with pytest.raises(TrustError, match="STO-L141"):
        check_record(leaf, GOOD)


def test_refusals_of_another_number_than_their_leaf_are_refused() -> None:
    data = render_record(RECORDS[2])
    leaf = parse_leaf(record_leaf(data, "7"))
    lied = Leaf(leaf.kind, leaf.digest, leaf.epoch, leaf.time, 2, leaf.root)
    with pytest.raises(TrustError, match="STO-L141"):
        check_record(lied, data)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b"[" * 10_000,
        GOOD[:-1],
        GOOD + b" {}",
        GOOD.replace(b'"workunit"', b'"party"'),
        GOOD.replace(b'"attempt":1', b'"attempt":1,"attempt":1'),
        GOOD.replace(b'"attempt":1', b'"attempt":1.5'),
        GOOD.replace(b'"attempt":1', b'"attempt":1,"host":"h"'),
        GOOD.replace(b'"STO-P011"', b'"<script>"'),
        GOOD.replace(name("task").encode(), b"ada"),
        GOOD + b" " * MAX_RECORD_BYTES,
    ],
)
def test_malformed_record_is_refused(data: bytes) -> None:
    with pytest.raises(TrustError, match="STO-L010"):
        parse_record(data)


@given(st.binary(max_size=200) | st.text(max_size=100).map(str.encode))
def test_any_bytes_are_a_record_or_our_error(data: bytes) -> None:
    try:
        assert mentions(parse_record(data))
    except TrustError as error:
        assert error.code == "STO-L010"


def test_record_that_would_not_be_read_is_not_written() -> None:
    with pytest.raises(TrustError, match="STO-L010"):
        render_record(msgspec.structs.replace(WORKUNIT, task="ada's task"))


def test_revocation_statement_is_the_record_of_its_leaf() -> None:
    fields = msgspec.structs.asdict(RECORDS[9])
    data = render_revocation(RevocationStatement(**fields))
    assert parse_record(data) == RECORDS[9]


def test_source_is_found_by_digest_only_where_it_is_published() -> None:
    public = msgspec.structs.replace(WORKUNIT, public_source=True)
    source = name("source")
    assert Mention(MentionKind.DIGEST, source) in mentions(public)
    assert Mention(MentionKind.COMMITMENT, source) in mentions(WORKUNIT)
    assert Mention(MentionKind.DIGEST, source) not in mentions(WORKUNIT)


@by_kind
def test_nothing_empty_is_mentioned(record: Record) -> None:
    assert all(mention.value for mention in mentions(record))


def test_commitments_bind_salt_domain_and_every_value() -> None:
    salts = "0" * 64, "1" * 64
    made = {
        salted_commitment(salt, what, *values)
        for salt in salts
        for what in ("source", "arguments")
        for values in (("a",), ("b",), ("a", "b"), ("ab",), ())
    }
    assert len(made) == 20
    assert task_commitment("a") not in made
