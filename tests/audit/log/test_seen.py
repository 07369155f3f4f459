import sqlite3
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoilo.audit.format.merkle import Checkpoint, render_checkpoint
from stoilo.audit.log.seen import (
    PAGE_ROWS,
    SeenRow,
    SeenStore,
    open_seen,
    parse_seen_page,
    render_seen_row,
    result_commitment,
)
from stoilo.core.digests import content_digest
from stoilo.core.errors import TrustError
from tests.support.faulty_log import LogKey

KEY = LogKey("log.test/t")
NOTE = KEY.sign(render_checkpoint(Checkpoint(KEY.origin, 1, b"\1" * 32)))


def row(number: int = 0, note: bytes = NOTE) -> SeenRow:
    return SeenRow(
        result=result_commitment(f"t_1_{number}"),
        task=content_digest(b"t"),
        attempt=1,
        admission=content_digest(b"s"),
        checkpoint=note.decode(),
    )


@pytest.fixture
def store(tmp_path: Path):
    made = SeenStore(tmp_path / "audit" / "seen.sqlite")
    yield made
    made.close()


def test_kept_rows_come_back_in_order(store: SeenStore) -> None:
    rows = [row(number) for number in range(3)]
    assert all(store.put(one) for one in rows)
    assert parse_seen_page(store.page(0) or b"") == tuple(rows)


def test_the_same_result_is_kept_once(store: SeenStore) -> None:
    store.put(row())
    assert not store.put(row())
    assert store.size() == 1


def test_pages_hold_256_rows_and_end(store: SeenStore) -> None:
    for number in range(PAGE_ROWS + 1):
        store.put(row(number))
    sizes = [len(parse_seen_page(store.page(n) or b"")) for n in range(3)]
    assert sizes == [PAGE_ROWS, 1, 0]
    assert store.page(2) is None


def test_absent_file_is_an_empty_store_and_is_not_made(tmp_path: Path) -> None:
    store = SeenStore(tmp_path / "seen.sqlite", read_only=True)
    assert (store.page(0), store.size()) == (None, 0)
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE seen SET body = CAST(replace(body, 't\":1', 't\":2') AS BLOB) WHERE place=1",
        "UPDATE seen SET place = 5 WHERE place = 1",
        "UPDATE note SET text = CAST(replace(text, 'log', 'lag') AS BLOB)",
        "DELETE FROM note",
    ],
)
def test_changed_row_is_named(store: SeenStore, tmp_path: Path, change: str) -> None:
    for number in range(3):
        store.put(row(number))
    store.close()
    with sqlite3.connect(tmp_path / "audit" / "seen.sqlite") as other:
        other.execute(change)
    other.close()
    with pytest.raises(TrustError, match=r"row [01] of seen|row 1 of"):
        store.page(0)


@given(st.binary(max_size=400))
def test_any_bytes_are_a_page_or_our_error(data: bytes) -> None:
    try:
        parse_seen_page(data)
    except TrustError as error:
        assert error.code == "STO-L010"


@pytest.mark.parametrize(
    "line",
    [
        render_seen_row(row())[:-1],
        render_seen_row(row()).replace(b'"attempt":1', b'"attempt":-1'),
        render_seen_row(row()).replace(b'"attempt":1', b'"attempt":1,"host":3'),
        render_seen_row(row()).replace(content_digest(b"s").encode(), b"S" * 64),
        render_seen_row(row(note=b"x" * 4097)),
        render_seen_row(row()) * (PAGE_ROWS + 1),
        b"[]\n",
    ],
)
def test_malformed_page_is_refused(line: bytes) -> None:
    with pytest.raises(TrustError, match="STO-L010"):
        parse_seen_page(line)


def test_note_of_the_log_opens_without_its_witnesses() -> None:
    strict = LogKey(KEY.origin, witness_time=5)
    assert open_seen(NOTE.decode(), strict.policy).size == 1


@pytest.mark.parametrize(
    "note",
    [
        "",
        "8 " + "0" * 64,
        NOTE.decode().replace("\n1\n", "\n2\n"),
        "x" * 5000,
        LogKey("log.other/t").sign(NOTE.partition(b"\n\n")[0] + b"\n").decode(),
        "\ud800",
    ],
)
def test_what_is_no_note_of_the_log_is_refused(note: str) -> None:
    with pytest.raises(TrustError, match="STO-L131"):
        open_seen(note, KEY.policy)


def test_row_names_nothing_but_commitments() -> None:
    assert b"t_1_0" not in render_seen_row(row())
