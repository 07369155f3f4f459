"""What retention deletes, what it must leave alone, and that the log tells of it."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest
from sqlalchemy import insert, select

from stoilo.audit.format.facts import RetentionRecord
from stoilo.audit.log.side import ObjectKind
from stoilo.core.codec.skeleton import encode
from stoilo.core.digests import content_digest
from stoilo.core.errors import UsageError
from stoilo.executor.verifier.targets import ReviewerKey
from stoilo.server.admission import tokens
from stoilo.server.db import schema
from stoilo.server.db.records import Owner
from stoilo.server.log.public_records import submitter_commitment
from stoilo.server.operations.retention import Retained, What, delete_old, retain
from tests.support.server import make_result
from tests.support.serverbench import SOURCE, Bench, records

OTHER = b"def task(kwargs):\n    return 'other'\n"
DAY_S = 86_400


def finished(bench: Bench, key: str, **fields: object) -> str:
    """Return the id of a task that has its value, and is logged."""
    name, statement = asyncio.run(bench.issued(key, **fields))
    frame = {"status": "ok", "value": encode(f"value of {key}")}
    files = [make_result(f"{name}_{n}", statement, frame) for n in (0, 1)]
    bench.engine.deliver(name, files)
    bench.server.pipeline.run_once()
    bench.server.pipeline.run_once()
    return name.partition("_")[0]


def clean(bench: Bench, what: What, *reviewers: ReviewerKey) -> Retained:
    """Delete of what was final a day ago, and let the log tell of it."""
    now = bench.clock()
    blobs = bench.directory / "blobs"
    done = delete_old(bench.store, blobs, what, now - DAY_S, now, reviewers)
    bench.server.leaves.append_all(bench.log)
    return done


def told(bench: Bench) -> list[RetentionRecord]:
    return [one for one in records(bench) if isinstance(one, RetentionRecord)]


def contents(bench: Bench) -> set[str]:
    with bench.store.read() as connection:
        return set(connection.scalars(select(schema.content.c.digest)))


def owner(bench: Bench) -> Owner:
    with bench.store.read() as connection:
        return tokens.find_owner(connection, bench.token, bench.clock())


@pytest.fixture
def old(bench: Bench) -> Bench:
    """Return a bench whose first, published task was final two days ago."""
    finished(bench, "old", publish_source=True)
    bench.clock.now += 2 * DAY_S
    return bench


def test_sources_of_old_tasks_go_also_where_they_were_published(old: Bench) -> None:
    name = content_digest(SOURCE)
    assert old.side.get(ObjectKind.SOURCE, name) == SOURCE
    done = clean(old, What.SOURCES)
    assert done.published == (name,)
    assert name not in contents(old)
    assert old.side.get(ObjectKind.SOURCE, name) is None
    (record,) = told(old)
    assert (record.what, record.published, record.count) == ("sources", (name,), 2)


def test_source_that_a_younger_task_names_stays(old: Bench) -> None:
    asyncio.run(old.submit("young"))
    done = clean(old, What.SOURCES)
    assert (done.count, done.published) == (0, ())
    assert content_digest(SOURCE) in contents(old)
    assert told(old) == []


def test_task_whose_events_are_not_yet_logged_is_not_old(bench: Bench) -> None:
    task_id = asyncio.run(bench.submit())
    bench.server.desk.cancel(owner(bench), task_id)
    bench.clock.now += 2 * DAY_S
    now, blobs = bench.clock(), bench.directory / "blobs"
    done = delete_old(bench.store, blobs, What.SOURCES, now - DAY_S, now)
    assert done.count == 0
    assert clean(bench, What.SOURCES).count == 0  # now it is logged
    assert clean(bench, What.SOURCES).count == 2


def test_arguments_go_and_the_blobs_that_only_they_name(old: Bench) -> None:
    done = clean(old, What.ARGUMENTS)
    assert (done.count, len(contents(old))) == (1, 2)


def test_deleted_result_is_a_clear_answer_and_no_value(old: Bench) -> None:
    with old.store.read() as connection:
        (task_id,) = connection.scalars(select(schema.task.c.id))
    assert old.poll(task_id).value == encode("value of old")
    assert clean(old, What.RESULTS).count == 1
    with pytest.raises(UsageError, match="STO-L145"):
        old.poll(task_id)
    assert clean(old, What.RESULTS).count == 0
    assert [record.what for record in told(old)] == ["results"]


def test_large_result_s_file_goes_with_it(bench: Bench) -> None:
    text = "x" * (2 * 1024 * 1024)
    name, statement = asyncio.run(bench.issued())
    frame = {"status": "ok", "value": encode(text)}
    files = [make_result(f"{name}_{n}", statement, frame) for n in (0, 1)]
    bench.engine.deliver(name, files)
    bench.server.pipeline.run_once()
    bench.clock.now += 2 * DAY_S
    blob = bench.server.blobs.path(content_digest(encode(text)))
    assert blob.is_file()
    assert clean(bench, What.RESULTS).count == 1
    assert not blob.exists()


def test_file_that_a_killed_command_left_goes_with_the_next_one(old: Bench) -> None:
    left = old.server.blobs.path("ab" + "0" * 62)
    left.parent.mkdir(exist_ok=True)
    left.write_bytes(b"nobody's")
    clean(old, What.RESULTS)
    assert not left.exists()


def test_upload_waits_for_its_row_and_its_file_together(bench: Bench) -> None:
    data = encode("y" * 1000)
    with bench.store.write():  # as a retention command holds it
        upload = threading.Thread(target=bench.server.blobs.put, args=(1, data))
        upload.start()
        upload.join(0.3)
        assert not bench.server.blobs.path(content_digest(data)).exists()
    upload.join()
    assert bench.server.blobs.path(content_digest(data)).exists()


def test_blob_that_somebody_else_has_uploaded_too_stays(bench: Bench) -> None:
    data = encode("x" * (2 * 1024 * 1024))
    name, statement = asyncio.run(bench.issued())
    frame = {"status": "ok", "value": data}
    files = [make_result(f"{name}_{n}", statement, frame) for n in (0, 1)]
    bench.engine.deliver(name, files)
    bench.server.pipeline.run_once()
    with bench.store.write() as connection:
        values = {"name": "other", "salt": "5" * 64, "created_at": 1}
        made = connection.execute(insert(schema.account).values(values))
    (other,) = made.inserted_primary_key or ()
    blob = bench.server.blobs.put(other, data)
    bench.clock.now += 2 * DAY_S
    clean(bench, What.RESULTS)
    with bench.server.blobs.open_granted(other, blob) as file:
        assert file.read() == data


def test_salts_go_and_nothing_leads_from_task_to_leaf_any_more(old: Bench) -> None:
    assert clean(old, What.SALTS).count == 2
    with old.store.read() as connection:
        rows = connection.execute(select(schema.attempt)).all()
        payloads = list(connection.scalars(select(schema.outcome.c.payload)))
    assert [(row.statement, row.envelope) for row in rows] == [(None, None)]
    assert payloads == [None]
    assert clean(old, What.SALTS).count == 0


def test_account_that_nobody_can_use_gets_a_new_salt_once(old: Bench) -> None:
    before = owner(old).salt
    clean(old, What.SALTS)
    assert owner(old).salt == before  # its token still works
    with old.store.write() as connection:
        tokens.revoke_token(connection, old.token, old.clock())
    assert clean(old, What.SALTS).count == 1
    assert clean(old, What.SALTS).count == 0
    with old.store.read() as connection:
        assert list(connection.scalars(select(schema.account.c.salt))) != [before]


def test_account_beside_a_reviewer_s_key_keeps_its_salt(old: Bench) -> None:
    """Else nobody would know any more whose tasks the reviewer must not review."""
    name = submitter_commitment(owner(old).salt)
    with old.store.write() as connection:
        tokens.revoke_token(connection, old.token, old.clock())
    reviewer = ReviewerKey("0" * 64, "r", (name,))
    assert clean(old, What.SALTS, reviewer).count == 2
    with old.store.read() as connection:
        (salt,) = connection.scalars(select(schema.account.c.salt))
    assert submitter_commitment(salt) == name


def test_source_submitted_again_after_its_deletion_is_published_again(
    old: Bench,
) -> None:
    clean(old, What.SOURCES)
    finished(old, "again", publish_source=True)
    assert old.side.get(ObjectKind.SOURCE, content_digest(SOURCE)) == SOURCE


def test_many_published_sources_need_several_records(bench: Bench) -> None:
    for number in range(3):
        source = OTHER + b"# %d\n" % number
        finished(bench, f"k{number}", task_module=source, publish_source=True)
    bench.clock.now += 2 * DAY_S
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("stoilo.server.operations.retention.MOST_PUBLISHED", 2)
        done = clean(bench, What.SOURCES)
    assert [len(one.published) for one in told(bench)] == [2, 1]
    assert sum(one.count for one in told(bench)) == done.count == 4


def test_time_to_come_and_a_foreign_directory_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="STO-U003"):
        retain(tmp_path, What.SALTS, 11, 10, {})
    with pytest.raises(UsageError, match="STO-U004"):
        retain(tmp_path, What.SALTS, 9, 10, {})
    assert list(tmp_path.iterdir()) == []


def test_what_a_trainer_said_goes_with_results(bench: Bench) -> None:
    table = schema.training
    row = {"account_id": 1, "label": "run", "body": b"x"}
    with bench.store.write() as connection:
        connection.execute(insert(table).values(row | {"updated_at": bench.clock()}))
    assert clean(bench, What.RESULTS).count == 0  # control: it is young
    bench.clock.now += 2 * DAY_S
    assert clean(bench, What.RESULTS).count == 1
