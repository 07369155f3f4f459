from __future__ import annotations

import asyncio
import base64
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from stoilo.audit.format.merkle import Checkpoint, render_checkpoint
from stoilo.audit.log.seen import SeenStore, parse_seen_page, result_commitment
from stoilo.core.codec.skeleton import encode
from stoilo.core.errors import InternalError
from stoilo.core.statement import statement_digest
from stoilo.executor.verifier.workunit import Disposition
from stoilo.server.log.sightings import Sightings, task_of
from stoilo.server.validation.docket import Docket
from stoilo.server.validation.results import ResultValidation
from stoilo.server.validation.validators import Validators
from tests.support.faulty_log import LogKey
from tests.support.server import make_result
from tests.support.serverbench import Bench

KEY = LogKey("log.test/t")
NOTE = KEY.sign(render_checkpoint(Checkpoint(KEY.origin, 1, b"\1" * 32))).decode()
OK = {"status": "ok", "value": encode(2)}


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[SeenStore]:
    store = SeenStore.below(tmp_path / "data")
    yield store
    store.close()


def check(
    bench: Bench, kept: SeenStore, *, times: int = 1, **header: object
) -> tuple[str, str]:
    """Deliver one result to a validation that keeps checkpoints; return its verdict."""
    name, statement = asyncio.run(bench.issued())
    validation = ResultValidation(
        bench.store,
        Docket(Validators(lambda *_: bench.validators)),
        Sightings(kept, lambda: KEY.policy).record,
    )
    result = bench.engine.receive(
        name, 0, make_result(f"{name}_0", statement, OK, **header)
    )
    for _ in range(times):
        answer = validation.check(result)
    return answer.verdict.value, answer.code


def test_checkpoint_of_a_result_is_kept_once_with_commitments(
    bench: Bench, kept: SeenStore
) -> None:
    assert check(bench, kept, times=2, checkpoint=NOTE) == ("valid", "")
    (row,) = parse_seen_page(kept.page(0) or b"")
    (name,) = bench.engine.specs
    statement = bench.statement(name.partition("_")[0])
    assert row.result == result_commitment(f"{name}_0")
    assert (row.task, row.attempt) == (task_of(name), 1)
    assert row.admission == statement_digest(statement)
    assert row.checkpoint == NOTE
    assert name.partition("_")[0].encode() not in (kept.page(0) or b"")


@pytest.mark.parametrize("note", ["", "8 00", NOTE.replace("\n1\n", "\n2\n")])
def test_result_without_a_checkpoint_of_the_log_is_invalid(
    bench: Bench, kept: SeenStore, note: str
) -> None:
    assert check(bench, kept, checkpoint=note) == ("invalid", "STO-L131")
    assert kept.size() == 0


def test_copy_that_was_not_run_states_none(bench: Bench, kept: SeenStore) -> None:
    refused = {"disposition": Disposition.REFUSED, "status": None, "code": "STO-A040"}
    assert check(bench, kept, **refused) == ("invalid", "STO-A040")


def test_our_own_trouble_is_not_the_volunteer_s(
    bench: Bench, kept: SeenStore, tmp_path: Path
) -> None:
    kept.size()
    (tmp_path / "data/audit").mkdir(parents=True)
    (tmp_path / "data/audit/seen.sqlite").write_bytes(b"no database at all" * 100)
    with pytest.raises(InternalError, match="STO-R030") as caught:
        check(bench, kept, checkpoint=NOTE)
    assert not isinstance(caught.value, sqlite3.Error)


def test_what_no_known_key_signed_is_not_published(
    bench: Bench, kept: SeenStore
) -> None:
    junk = base64.b64encode(b"keyid, then anybody's text").decode()
    bent = f"{NOTE}\u2014 my-name-and-address {junk}\n"
    assert check(bench, kept, checkpoint=bent) == ("valid", "")
    (row,) = parse_seen_page(kept.page(0) or b"")
    assert row.checkpoint == NOTE
